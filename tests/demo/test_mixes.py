"""The act about mixes: each planted document is dropped by its stage, and the mix verifies clean."""

from __future__ import annotations

from pathlib import Path

from tests.build.making import tokenizer_file
from tokenreel.demo.acts import Stage
from tokenreel.demo.mixes import mixes
from tokenreel.demo.texts import write_texts


def test_what_is_planted_stays_out(tmp_path: Path) -> None:
    (tmp_path / "text").mkdir()
    write_texts(tmp_path / "text", limit=900_000)
    (tmp_path / "corpus/tokenizer").mkdir(parents=True)
    made = tokenizer_file(tmp_path)
    (tmp_path / "corpus/tokenizer/tokenizer.json").write_bytes(made.read_bytes().replace(b"<eod>", b"<|endoftext|>"))
    said: list[str] = []
    facts = mixes(Stage(tmp_path, said.append, 0, 1))
    assert facts["fates"] == {
        "copy": "dedup/exact",
        "question": "decontaminate/overlap",
        "nothing": "documents/empty",
    }
    assert facts["status"] == "ok"
    for one in facts["sources"]:
        assert one["complete"]
        assert one["docs_seen"] == one["documents"] + sum(one["dropped"].values())
    assert any("second: second.jsonl#0 (copy): dedup: dropped by exact" in line for line in said)
