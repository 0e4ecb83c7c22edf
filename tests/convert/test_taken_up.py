"""What an earlier run left is taken up only as it was written, and what was not proved then is proved when it is asked for."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tokenreel
from tests.convert.test_pairs import CASES, Case, make
from tokenreel.convert import conversion as engine
from tokenreel.convert import convert, repair
from tokenreel.corpus.documents import DOCUMENTS
from tokenreel.errors import DocumentError, FormatError, UsageError
from tokenreel.verify import verify

SEVERAL = CASES[0]


class Stopped(Exception):
    pass


def stopped_before_the_proof(source: Path, out: Path, patch: pytest.MonkeyPatch, **given: object) -> None:
    """Convert, and stop when all shards stand and nothing is recorded."""
    with patch.context() as here:
        here.setattr(engine, "_reopened", lambda *_: (_ for _ in ()).throw(Stopped()))
        with pytest.raises(Stopped):
            convert(source, out, workers=1, **given)  # type: ignore[arg-type]


def stopped_before_the_tables(source: Path, out: Path, patch: pytest.MonkeyPatch) -> None:
    """Convert to HobbyLM's files, and stop when all shards stand and no table does."""
    from tokenreel.formats import hobbylm_write

    with patch.context() as here:
        here.setattr(hobbylm_write, "_write_tables", lambda *_: (_ for _ in ()).throw(Stopped()))
        with pytest.raises(Stopped):
            convert(source, out, to="hobbylm-v1", boundary="suffix=2", workers=1)


def test_a_proof_that_was_left_out_is_made_when_it_is_asked_for(tmp_path: Path) -> None:
    source = make(tmp_path / "in", SEVERAL)
    first = convert(source, tmp_path / "out", to="mds", boundary="suffix=2", proof=False)
    assert first.identity is None
    again = convert(source, tmp_path / "out", to="mds", boundary="suffix=2")
    assert (again.kept_shards, again.identity) == (3, tokenreel.open(source, boundary="suffix=2").identity().digest)
    written = json.loads((tmp_path / "out/convert.json").read_text())
    assert written["converted"]["identity"] == again.identity
    manifest = json.loads((tmp_path / "out/tokenreel.json").read_text())
    assert manifest["splits"][""]["identity"] == again.identity
    assert verify(tmp_path / "out", level="full").status == "ok"


def test_a_proof_that_is_asked_for_late_finds_what_changed(tmp_path: Path) -> None:
    source = make(tmp_path / "in", SEVERAL)
    convert(source, tmp_path / "out", to="raw-uint16", boundary="suffix=2", proof=False)
    path = next((tmp_path / "out").glob("*.bin"))
    path.write_bytes(b"\7\0" + path.read_bytes()[2:])
    with pytest.raises(DocumentError, match="DOC025"):
        convert(source, tmp_path / "out", to="raw-uint16", boundary="suffix=2")


def test_what_is_accepted_afterwards_counts(tmp_path: Path) -> None:
    source = make(tmp_path / "in", next(case for case in CASES if case.name == "a document without its suffix"))
    given = {"to": "llmc", "boundary": "suffix=2", "to_boundary": "prefix=9"}
    assert convert(source, tmp_path / "out", **given).exit_status == 1  # type: ignore[arg-type]
    assert convert(source, tmp_path / "out", accept=["TOK046"], **given).exit_status == 0  # type: ignore[arg-type]
    assert json.loads((tmp_path / "out/convert.json").read_text())["converted"]["accepted"] == ["TOK046"]


def test_a_finished_shard_that_changed_is_written_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = make(tmp_path / "in", SEVERAL)
    stopped_before_the_proof(source, tmp_path / "out", monkeypatch, to="mds", boundary="suffix=2")
    shard = sorted((tmp_path / "out").glob("*.mds"))[1]
    data = bytearray(shard.read_bytes())
    data[-1] ^= 1
    shard.write_bytes(data)
    done = convert(source, tmp_path / "out", to="mds", boundary="suffix=2", workers=1)
    assert done.kept_shards == 2
    assert verify(tmp_path / "out", level="full").status == "ok"


def test_killed_between_the_two_records_it_goes_on(tmp_path: Path) -> None:
    source = make(tmp_path / "in", SEVERAL)
    convert(source, tmp_path / "whole", to="mds", boundary="suffix=2", workers=1)
    real = engine.Journal.end
    try:
        engine.Journal.end = lambda self: None  # type: ignore[method-assign]
        convert(source, tmp_path / "out", to="mds", boundary="suffix=2", workers=1)
    finally:
        engine.Journal.end = real  # type: ignore[method-assign]
    (tmp_path / "out/tokenreel.json").unlink()
    done = convert(source, tmp_path / "out", to="mds", boundary="suffix=2", workers=1)
    assert done.kept_shards == 3
    assert (tmp_path / "out/tokenreel.json").read_bytes() == (tmp_path / "whole/tokenreel.json").read_bytes()
    assert not (tmp_path / "out/.convert").exists()


def test_killed_before_there_was_a_plan_it_begins(tmp_path: Path) -> None:
    source = make(tmp_path / "in", SEVERAL)
    (tmp_path / "out/.convert").mkdir(parents=True)
    (tmp_path / "out/.convert/.plan.json.7-00000000.tokenreel-tmp").write_bytes(b"{")
    assert convert(source, tmp_path / "out", to="mds", boundary="suffix=2").documents == 5
    assert not (tmp_path / "out/.convert").exists()


@pytest.mark.parametrize("record", [b"", bytes(40), b"[]", b'{"files": [{"x": 1}]}', b'{"files": 3}'])
def test_a_record_that_is_none_is_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, record: bytes) -> None:
    source = make(tmp_path / "in", SEVERAL)
    stopped_before_the_proof(source, tmp_path / "out", monkeypatch, to="mds", boundary="suffix=2")
    (tmp_path / "out/.convert/000001.json").write_bytes(record)
    assert convert(source, tmp_path / "out", to="mds", boundary="suffix=2", workers=1).kept_shards == 2


def test_a_refused_option_leaves_nothing(tmp_path: Path) -> None:
    source = make(tmp_path / "in", SEVERAL)
    with pytest.raises(UsageError):
        convert(source, tmp_path / "out", to="mds", boundary="suffix=2", options={"nothing": "1"})
    assert not (tmp_path / "out").exists()
    (tmp_path / "given").mkdir()
    with pytest.raises(UsageError):
        convert(source, tmp_path / "given", to="mds", boundary="suffix=2", options={"nothing": "1"})
    assert list((tmp_path / "given").iterdir()) == [], "a folder that was there stays"
    assert convert(source, tmp_path / "given", to="mds", boundary="suffix=2").documents == 5


def flip(path: Path) -> None:
    data = path.read_bytes()
    at = data.index(b'"source"') + len(b'"source": "')
    path.write_bytes(data[:at] + b"X" + data[at + 1 :])


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-30])


@pytest.mark.parametrize("damage", [flip, cut, Path.unlink])
def test_lines_that_wait_for_tables_are_taken_up_as_they_were_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: Callable[[Path], None]
) -> None:
    source = make(tmp_path / "in", SEVERAL)
    known(source)
    convert(source, tmp_path / "whole", to="hobbylm-v1", boundary="suffix=2", workers=1)
    stopped_before_the_tables(source, tmp_path / "out", monkeypatch)
    damage(sorted((tmp_path / "out").glob(".*.docs"))[1])
    done = convert(source, tmp_path / "out", to="hobbylm-v1", boundary="suffix=2", workers=1)
    assert done.kept_shards == 2
    for name in ("corpus_index.json", "corpus_docs.jsonl"):
        assert (tmp_path / "out" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


def known(source: Path, origin: str = "web") -> None:
    """Say something of every document of `SEVERAL`."""
    from tokenreel.corpus.documents import documents_schema

    rows = [
        {
            "id": bytes([number, k]) * 8,
            "kind": "text",
            "source": origin,
            "upstream_id": f"{number}-{k}",
            "split": "",
            "shard": f"part-{number}",
            "index": k,
            "length": len(ids),
            "metadata": None,
        }
        for number, shard in enumerate(SEVERAL.shards)
        for k, ids in enumerate(shard)
    ]
    pq.write_table(pa.Table.from_pylist(rows, schema=documents_schema()), source / DOCUMENTS)


def test_what_is_known_of_documents_is_part_of_the_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = make(tmp_path / "in", SEVERAL)
    known(source)
    stopped_before_the_tables(source, tmp_path / "out", monkeypatch)
    known(source, "books")
    with pytest.raises(UsageError, match="USE015"):
        convert(source, tmp_path / "out", to="hobbylm-v1", boundary="suffix=2", workers=1)


# ---- repair --------------------------------------------------------------------------------------------------------------


def test_a_pair_whose_tables_say_two_things_is_not_settled_by_one_of_them(tmp_path: Path) -> None:
    case = Case("two lengths", "uint16", "suffix=2", (((5, 6, 2), (7, 2), (8, 9, 9, 2)),), {})
    source = make(tmp_path / "in", case)
    index = source / "part-0.idx"
    data = bytearray(index.read_bytes())
    lengths = np.frombuffer(bytes(data[34:46]), "<i4")
    assert lengths.tolist() == [3, 2, 4]
    data[34:46] = np.array([2, 3, 4], "<i4").tobytes()
    index.write_bytes(data)
    with pytest.raises(FormatError, match="FLT020"):
        repair(source, tmp_path / "none")
    done = repair(source, tmp_path / "out", boundary="suffix=2")
    assert done.verified == "ok"
    assert [ids.tolist() for ids in tokenreel.open(tmp_path / "out")] == [[5, 6, 2], [7, 2], [8, 9, 9, 2]]


def test_mds_without_description_and_first_offset_is_named(tmp_path: Path) -> None:
    convert(make(tmp_path / "made", SEVERAL), tmp_path / "in", to="mds", boundary="suffix=2", workers=1)
    for name in ("tokenreel.json", "convert.json"):
        (tmp_path / "in" / name).unlink()
    shards = sorted((tmp_path / "in").glob("*.mds"))
    good = shards[0].read_bytes()
    count = int.from_bytes(good[:4], "little")
    head = 4 * (count + 2)
    for first in (0, head - 4, len(good) + 1, 0xFFFFFFFF):
        bad = good[:4] + first.to_bytes(4, "little") + good[8:head] + b"!" + good[head + 1 :]
        shards[0].write_bytes(bad)
        done = repair(tmp_path / "in", tmp_path / f"out-{first}")
        assert len(done.beyond) == 1
        assert "its first offset too" in done.beyond[0]
        shutil.rmtree(tmp_path / f"out-{first}")
