"""repair: the source stays, every kept id is hashed before and after, what was lost is said."""

from __future__ import annotations

import json
import shutil
import struct
from pathlib import Path

import numpy as np
import pytest

import tokenreel
from tests.convert.test_pairs import CASES, make
from tokenreel.convert import convert, repair
from tokenreel.errors import DocumentError, FormatError, UsageError
from tokenreel.hashing import sha256_file
from tokenreel.verify import verify

GOLDEN = Path(__file__).parent.parent / "golden" / "hobbylm"
EOT = 50256


def shard(path: Path, ids: list[int], *, said: int | None = None, behind: bytes = b"") -> None:
    header = struct.pack("<3i", 20240520, 1, len(ids) if said is None else said).ljust(1024, bytes(1))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(header + np.array(ids, "<u2").tobytes() + behind)


def files(folder: Path) -> dict[str, str]:
    return {str(p.relative_to(folder)): sha256_file(p) for p in folder.rglob("*") if p.is_file()}


def documents(path: Path, boundary: str) -> list[list[int]]:
    return [ids.tolist() for ids in tokenreel.open(path, boundary=boundary)]


@pytest.mark.parametrize("bad", sorted(path.name for path in (GOLDEN / "bad").iterdir()))
def test_the_golden_wrong_tables_become_the_golden_right_one(tmp_path: Path, bad: str) -> None:
    (tmp_path / "in").mkdir()
    shutil.copy(GOLDEN / "longctx/replay_000000.bin", tmp_path / "in")
    shutil.copy(GOLDEN / "bad" / bad, tmp_path / "in/replay_index.json")
    assert verify(tmp_path / "in").status == "broken"
    repair(tmp_path / "in", tmp_path / "out")
    right = json.loads((GOLDEN / "longctx/replay_index.json").read_text())
    assert json.loads((tmp_path / "out/replay_index.json").read_text()) == right


SLICE_ONE, SLICE_TWO = [7, 8, EOT, 5], [9, EOT, 6, 6, EOT, 4]


@pytest.mark.parametrize(
    "entries",
    [
        [("replay_000000.bin", 0, 4), ("replay_000000.bin", 4, 6)],
        [("replay_000000.bin", 8_000_000, 4), ("replay_000000.bin", 16_000_000, 6)],
    ],
    ids=["slices indexed as documents", "offsets overwritten by metadata"],
)
def test_the_two_bugs_of_the_replay_index(tmp_path: Path, entries: list[tuple[str, int, int]]) -> None:
    source = tmp_path / "in"
    shard(source / "replay_000000.bin", SLICE_ONE + SLICE_TWO)
    rows = [{"shard": s, "offset": o, "length": n, "source_shard": "dclm_000001.bin"} for s, o, n in entries]
    (source / "replay_index.json").write_text(json.dumps(rows))
    before = files(source)
    assert verify(source).status == "broken"
    done = repair(source, tmp_path / "out")
    assert files(source) == before, "the source is never changed"
    assert done.exit_status == 1
    assert done.verified == "ok"
    assert done.hashes == {"replay_000000.bin": before["replay_000000.bin"]}
    assert documents(tmp_path / "out", "") == [[7, 8], [EOT, 5], [9], [EOT, 6, 6], [EOT, 4]]
    lines = [json.loads(line) for line in (tmp_path / "out/replay_docs.jsonl").read_text().splitlines()]
    assert [line["meta"].get("truncated_start", False) for line in lines] == [True, False, True, False, False]
    assert {line["meta"]["source_shard"] for line in lines} == {"dclm_000001.bin"}


def test_split_by_eot_is_the_golden_one(tmp_path: Path) -> None:
    from tokenreel.convert.repair_tables import split_by_eot

    right = json.loads((GOLDEN / "longctx/replay_index.json").read_text())
    ids = np.fromfile(GOLDEN / "longctx/replay_000000.bin", "<u2", offset=1024)
    found = [(row["offset"], row["offset"] + row["length"]) for row in right]
    assert split_by_eot(ids[:100]) + [(a + 100, b + 100) for a, b in split_by_eot(ids[100:])] == found
    assert split_by_eot(ids[:100], keep_head=False) == found[1:2]
    assert split_by_eot(ids[:0]) == []


def test_tables_for_shards_that_have_none(tmp_path: Path) -> None:
    shard(tmp_path / "in/web_000000.bin", [EOT, 1, EOT, 2, 2])
    assert repair(tmp_path / "in", tmp_path / "no").exit_status == 0
    done = repair(tmp_path / "in", tmp_path / "out", as_format="hobbylm-v1")
    assert (done.exit_status, done.verified, done.tables[0].documents) == (1, "ok", 2)
    assert documents(tmp_path / "out", "") == [[EOT, 1], [EOT, 2, 2]]


def test_offsets_over_all_shards_become_relative(tmp_path: Path) -> None:
    shard(tmp_path / "in/wiki_000000.bin", [EOT, 1, EOT, 2])
    shard(tmp_path / "in/wiki_000001.bin", [EOT, 3, 3])
    rows = [("wiki_000000.bin", 0, 2), ("wiki_000000.bin", 2, 2), ("wiki_000001.bin", 4, 3)]
    lines = [{"shard": s, "offset": o, "length": n, "meta": {"title": o}} for s, o, n in rows]
    (tmp_path / "in/wiki_docs.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    done = repair(tmp_path / "in", tmp_path / "out")
    assert "made relative" in done.tables[0].how["wiki_000001"]
    kept = [json.loads(line) for line in (tmp_path / "out/wiki_docs.jsonl").read_text().splitlines()]
    assert [(row["offset"], row["meta"]["title"]) for row in kept] == [(0, 0), (2, 2), (0, 4)]


def test_a_cut_stream_loses_the_document_that_was_cut_and_no_other(tmp_path: Path) -> None:
    shard(tmp_path / "in/a_0.bin", [EOT, 1, 1, EOT, 2, 2], said=8)
    shard(tmp_path / "in/a_1.bin", [2, 2, EOT, 3])
    done = repair(tmp_path / "in", tmp_path / "out", boundary=f"prefix={EOT}")
    assert documents(tmp_path / "out", f"prefix={EOT}") == [[EOT, 1, 1], [EOT, 3]]
    assert {mended.name: mended.lost for mended in done.mended} == {"a_0": 5, "a_1": 2}
    assert done.exit_status == 1


def test_bytes_behind_are_taken_off_and_nothing_is_lost(tmp_path: Path) -> None:
    shard(tmp_path / "in/a_0.bin", [EOT, 1, 1], behind=b"xyz")
    done = repair(tmp_path / "in", tmp_path / "out", boundary=f"prefix={EOT}")
    assert [mended.lost for mended in done.mended] == [0]
    assert documents(tmp_path / "out", f"prefix={EOT}") == [[EOT, 1, 1]]


def test_an_index_from_a_payload(tmp_path: Path) -> None:
    source = make(tmp_path / "in", CASES[0])
    whole = files(source)
    for path in source.glob("*.idx"):
        path.unlink()
    with pytest.raises(FormatError, match="FLT020"):
        repair(source, tmp_path / "no", as_format="megatron-v1", dtype="uint16")
    repair(source, tmp_path / "out", boundary="suffix=2", as_format="megatron-v1", dtype="uint16")
    assert files(tmp_path / "out") == whole, "the very bytes that were there"


def test_a_pair_cut_short_keeps_whole_documents(tmp_path: Path) -> None:
    source = make(tmp_path / "in", CASES[0])
    payload = source / "part-0.bin"
    payload.write_bytes(payload.read_bytes()[:-1])
    done = repair(source, tmp_path / "out")
    assert [(one.name, one.documents, one.lost) for one in done.mended] == [("part-0", 1, 2)]
    assert documents(tmp_path / "out", "suffix=2") == [[5, 6, 2], [8, 2], [9, 9, 9, 2], [4, 2]]
    assert done.copied == 2


@pytest.mark.parametrize(
    ("to", "gone"),
    [("datatrove", ".ds.metadata"), ("datatrove", ".ds.index"), ("olmo-uint16", ".csv.gz")],
)
def test_a_missing_file_beside_is_made_anew(tmp_path: Path, to: str, gone: str) -> None:
    convert(make(tmp_path / "made", CASES[0]), tmp_path / "in", to=to, boundary="suffix=2")
    for path in (tmp_path / "in").iterdir():
        if path.name.endswith(gone) or path.name in ("tokenreel.json", "convert.json"):
            path.unlink()
    before = documents(tmp_path / "made", "suffix=2")
    repair(tmp_path / "in", tmp_path / "out", boundary="suffix=2", dtype="uint16")
    assert documents(tmp_path / "out", "suffix=2") == before


def test_nothing_to_repair_writes_nothing(tmp_path: Path) -> None:
    done = repair(make(tmp_path / "in", CASES[0]), tmp_path / "out")
    assert done.exit_status == 0
    assert not (tmp_path / "out").exists()


def test_where_it_may_write(tmp_path: Path) -> None:
    source = make(tmp_path / "in", CASES[0])
    with pytest.raises(UsageError, match="USE005"):
        repair(source, source / "inside")
    shutil.copytree(source, tmp_path / "there")
    with pytest.raises(UsageError, match="USE011"):
        repair(source, tmp_path / "there")
    (tmp_path / "nothing").mkdir()
    with pytest.raises(DocumentError, match="DOC006"):
        repair(tmp_path / "nothing", tmp_path / "out")
