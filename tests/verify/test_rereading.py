"""`verify --source`: documents, splits and the receipts' counts against the input read again, for every split rule."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.verify.corpora import files_of
from tests.verify.test_forged import put, resealed, said
from tokenreel.build.rereading import source_reader
from tokenreel.build.run import build
from tokenreel.errors import SplitError, UsageError
from tokenreel.store import dumps_canonical
from tokenreel.verify import Report, verify

RECIPE = """\
[corpus]
name = "small"
layout = "{layout}"
[tokenizer]
name = "bytes"
special_in_text = "{special}"
recheck = 2
[split]
{split}
[documents]
empty = "drop"
[[source]]
name = "letters"
paths = ["in*.jsonl"]
id = "id"
source = {{ field = "of" }}
"""
TEXTS = (
    "one", "", "two", "two", "two", "three <|endoftext|>", "<|endo<|endoftext|>ftext|> four", "two", "five", "", "two",
    "<|endoftext|>",
)  # fmt: skip
HASH, NTH, IDS = 'rule = "hash-mod"\nmodulo = 3', 'rule = "every-nth"\nn = 3', 'rule = "by-id"\nids = ["2", "4", "8"]'
SPLITS = pytest.mark.parametrize("split", [HASH, NTH, IDS, 'rule = "none"'], ids=["hash", "nth", "ids", "none"])


def made(folder: Path, split: str = HASH, special: str = "text", layout: str = "mahan") -> Path:
    """Build a corpus of one part, with empty and equal texts, special tokens and two sources."""
    folder.mkdir(exist_ok=True)
    rows = [{"text": text, "id": str(k), "of": "ab"[k % 2]} for k, text in enumerate(TEXTS)]
    (folder / "in0.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "recipe.toml").write_text(RECIPE.format(split=split, special=special, layout=layout))
    build(folder / "recipe.toml", out=folder / "out", workers=1)
    return folder / "out"


def reread(out: Path, split_ids: Path | None = None, tokenizer: Path | None = None, level: str = "full") -> Report:
    reader = source_reader(out, out.parent)
    return verify(out, level=level, source=out.parent, source_reader=reader, split_ids=split_ids, tokenizer=tokenizer)


def reseal(out: Path) -> None:
    for path, data in resealed(files_of(out)).items():
        (out / path).write_bytes(data)


@SPLITS
@pytest.mark.parametrize("special", ["text", "drop", "special"])
def test_every_document_is_compared_whatever_the_rule(tmp_path: Path, split: str, special: str) -> None:
    report = reread(made(tmp_path / "a", split, special))
    documents = 9 if special == "drop" else 10
    assert (report.exit_status, report.findings, report.facts["documents_from_source"]) == (0, (), documents)
    assert any(f"{documents} documents" in what and "against their source" in what for what in report.checked)
    # The splits are derived from the source, but for a list that the corpus does not hold.
    assert [note.how for note in report.not_checked] == (["--split-ids FILE"] if split == IDS else [])
    assert ("eod_inside" in json.loads((tmp_path / "a/out/receipts/part-000000.json").read_bytes())) == (
        special == "special"
    )


@SPLITS
def test_a_tokenizer_beside_the_source_is_no_check_unmade(tmp_path: Path, split: str) -> None:
    out = made(tmp_path / "a", split, layout="native")
    assert reread(out, tokenizer=out / "tokenizer" / "tokenizer.json").exit_status == 0


def test_a_split_by_id_is_derived_from_its_list(tmp_path: Path) -> None:
    out = made(tmp_path / "a", IDS)
    (tmp_path / "ids").write_text("8\n2\n\n4\n")
    report = reread(out, tmp_path / "ids")
    assert (report.exit_status, report.not_checked) == (0, ())
    assert any("and their splits" in what for what in report.checked)
    (tmp_path / "ids").write_text("8\n2\n")
    with pytest.raises(SplitError, match="SPL014"):
        reread(out, tmp_path / "ids")
    with pytest.raises(UsageError, match="USE003"):
        reread(made(tmp_path / "b", HASH), tmp_path / "ids")


@SPLITS
def test_documents_that_are_not_the_source_s_are_found(tmp_path: Path, split: str) -> None:
    """The last document of train is another one, and everything is sealed again."""
    out = made(tmp_path / "a", split)
    path = out / "shards/train/part-000000.bin"
    data = bytearray(path.read_bytes())
    data[-4] ^= 1  # the last letter: two bytes an id, EOD at the end
    path.write_bytes(bytes(data))
    report = reread(out)
    assert "DOC012" in report.counts
    assert str(out.parent / "in0.jsonl") in said(report, "DOC012")


def test_a_document_too_few_is_found_without_the_list(tmp_path: Path) -> None:
    out = made(tmp_path / "a", IDS)
    longer = made(tmp_path / "b", IDS.replace('"8"', '"5"'))  # another document is held out
    shutil.rmtree(out / "shards" / "validation")
    shutil.copytree(longer / "shards" / "validation", out / "shards" / "validation")
    assert "DOC012" in reread(out).counts


FORGERIES = [
    (put("special_in_text", value=1), "special tokens spelled in text"),
    (put("dropped", "empty", value=1), "empty documents that were dropped"),
    (put("lossless", value={"checked": 2, "decoded_back": 1}), "documents checked for decoding back"),
]


@pytest.mark.parametrize(("change", "words"), FORGERIES, ids=[row[1] for row in FORGERIES])
def test_counts_that_only_the_source_knows_are_asked_of_it(tmp_path: Path, change: object, words: str) -> None:
    out = made(tmp_path / "a")
    path = out / "receipts/part-000000.json"
    receipt = json.loads(path.read_bytes())
    change(receipt)  # type: ignore[operator]
    if "dropped" in words:
        receipt["input"]["rows"] = 11
    path.write_bytes(dumps_canonical(receipt))
    reseal(out)
    assert words in said(reread(out), "MAN061")


def test_sources_are_read_again(tmp_path: Path) -> None:
    out = made(tmp_path / "a")
    path = out / "receipts/part-000000.json"
    receipt = json.loads(path.read_bytes())
    receipt["by_source"] = {"a": receipt["by_source"]["b"], "b": receipt["by_source"]["a"]}
    path.write_bytes(dumps_canonical(receipt))
    reseal(out)
    assert verify(out, level="full").findings == ()
    report = reread(out)
    assert set(report.counts) == {"MAN061"}
    assert "of source a in " in said(report, "MAN061")


def test_nothing_compared_is_nothing_checked(tmp_path: Path) -> None:
    out = made(tmp_path / "a")
    (out.parent / "in0.jsonl").write_text("{}\n")
    report = reread(out)
    assert set(report.counts) == {"MAN058"}
    assert not any("document" in what and "source" in what for what in report.checked)
    assert f"{out.parent / 'in0.jsonl'} has 3 bytes; run_config.json records " in said(report, "MAN058")


def test_one_split_is_not_compared_with_the_whole_source(tmp_path: Path) -> None:
    out = made(tmp_path / "a")
    report = verify(out / "train", source=out.parent, source_reader=source_reader(out, out.parent))
    assert (report.exit_status, report.counts) == (4, {})
