"""repair where tables say more than headers do: HobbyLM's documents, ounce's counts, datasets' list of files."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import pytest

import tokenreel
from tests.convert.test_pairs import Case, make
from tokenreel.convert import convert, repair
from tokenreel.verify import verify

CASE = Case("rows", "uint16", "suffix=2", (((5, 6, 2), (7, 2)), ((8, 8, 2), (6, 2)), ((9, 9, 9, 2), (4, 2))), {})


def made(tmp_path: Path, to: str) -> list[Path]:
    convert(make(tmp_path / "made", CASE), tmp_path / "in", to=to, boundary="suffix=2", workers=1)
    for name in ("tokenreel.json", "convert.json"):
        (tmp_path / "in" / name).unlink()
    return sorted(path for path in (tmp_path / "in").iterdir() if path.suffix in (".bin", ".arrow"))


def documents(path: Path) -> list[list[int]]:
    return [ids.tolist() for ids in tokenreel.open(path, boundary="suffix=2")]


@pytest.mark.parametrize("boundary", [None, "suffix=2"])
@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_a_hobbylm_shard_cut_short_keeps_the_documents_of_its_table(
    tmp_path: Path, boundary: str | None, count: int
) -> None:
    shard = made(tmp_path, "hobbylm-v1")[1]
    shard.write_bytes(shard.read_bytes()[:-count])
    done = repair(tmp_path / "in", tmp_path / "out", boundary=boundary)
    assert (done.exit_status, done.verified, done.copied) == (1, "ok", 2)
    assert (done.mended[0].documents, done.mended[0].tokens, done.mended[0].lost) == (1, 3, 2)
    assert documents(tmp_path / "out") == [[5, 6, 2], [7, 2], [8, 8, 2], [9, 9, 9, 2], [4, 2]]
    lines = [json.loads(line) for line in (tmp_path / "out/corpus_docs.jsonl").read_text().splitlines()]
    assert [line["length"] for line in lines] == [3, 2, 3, 4, 2]
    assert done.tables[0].how["corpus_000001"] == "entries kept, 1 entry of what is gone left out"


def test_a_hobbylm_shard_without_a_header_is_left_out(tmp_path: Path) -> None:
    shard = made(tmp_path, "hobbylm-v1")[1]
    shard.write_bytes(b"?" + shard.read_bytes()[1:])
    done = repair(tmp_path / "in", tmp_path / "out", boundary="suffix=2")
    assert len(done.beyond) == 1
    assert documents(tmp_path / "out") == [[5, 6, 2], [7, 2], [9, 9, 9, 2], [4, 2]]


@pytest.mark.parametrize(("at", "value"), [(4, 1), (4, 3), (4, 1 << 31), (8, 2), (8, 60), (8, 0), (8, (1 << 32) - 1)])
def test_a_count_of_an_ounce_header_that_is_wrong_loses_nothing(tmp_path: Path, at: int, value: int) -> None:
    shard = made(tmp_path, "ounce-v1")[0]
    whole = shard.read_bytes()
    assert struct.unpack("<4I", whole[:16])[1:3] == (2, 5)
    shard.write_bytes(whole[:at] + struct.pack("<I", value) + whole[at + 4 :])
    assert verify(tmp_path / "in").status == "broken"
    repair(tmp_path / "in", tmp_path / "out", boundary="suffix=2")
    assert (tmp_path / "out" / shard.name).read_bytes() == whole


def test_counts_of_an_ounce_header_that_nothing_confirms_are_not_believed(tmp_path: Path) -> None:
    shards = made(tmp_path, "ounce-v1")
    whole = shards[0].read_bytes()
    shards[0].write_bytes(whole[:4] + struct.pack("<2I", 1, 4) + whole[12:])
    done = repair(tmp_path / "in", tmp_path / "out", boundary="suffix=2")
    assert len(done.beyond) == 1
    assert "confirms the counts" in done.beyond[0]
    assert documents(tmp_path / "out") == [[8, 8, 2], [6, 2], [9, 9, 9, 2], [4, 2]]


def test_files_that_are_left_out_are_not_named_by_datasets_list(tmp_path: Path) -> None:
    shard = made(tmp_path, "arrow")[1]
    shard.write_bytes(shard.read_bytes()[:20])
    done = repair(tmp_path / "in", tmp_path / "out", boundary="suffix=2")
    assert (done.verified, len(done.beyond)) == ("ok", 1)
    assert documents(tmp_path / "out") == [[5, 6, 2], [7, 2], [9, 9, 9, 2], [4, 2]]
    named = json.loads((tmp_path / "out/state.json").read_text())["_data_files"]
    assert [one["filename"] for one in named] == ["part-000000.arrow", "part-000002.arrow"]


def test_one_id_before_and_behind_documents_is_in_its_place(tmp_path: Path) -> None:
    case = Case("both", "uint16", "prefix=7,suffix=7", (((7, 5, 7), (7, 7), (7, 6, 7)),), {})
    convert(make(tmp_path / "made", case), tmp_path / "in", to="hobbylm-v1", boundary="prefix=7,suffix=7", workers=1)
    assert [finding.code for finding in verify(tmp_path / "in", level="full").findings] == []


def test_tables_of_many_documents_are_checked_in_one_pass(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tokenreel.verify.hobbylm_tables import Entry

    case = Case("many", "uint16", "suffix=2", (tuple((5, 2) for _ in range(300)),), {})
    convert(make(tmp_path / "made", case), tmp_path / "in", to="hobbylm-v1", boundary="suffix=2", workers=1)
    compared = []
    monkeypatch.setattr(Entry, "__eq__", lambda self, other: compared.append(self) or self is other)
    assert verify(tmp_path / "in", level="full").status == "ok"
    assert len(compared) < 1000


def test_the_width_of_olmo_s_ids_is_what_any_table_proves(tmp_path: Path) -> None:
    wide = Case("wide", "int32", "suffix=2", (((70_000, 6, 2), (7, 2)), ((8, 70_001, 2), (6, 2))), {})
    convert(make(tmp_path / "made", wide), tmp_path / "in", to="olmo-uint32", boundary="suffix=2", workers=1)
    for name in ("tokenreel.json", "convert.json"):
        (tmp_path / "in" / name).unlink()
    first = min((tmp_path / "in").glob("*.npy"))
    first.write_bytes(first.read_bytes()[:-3])
    done = repair(tmp_path / "in", tmp_path / "out", boundary="suffix=2")
    assert (done.verified, done.copied) == ("ok", 1)
    assert documents(tmp_path / "out") == [[70_000, 6, 2], [8, 70_001, 2], [6, 2]]


def test_a_hobbylm_table_that_fits_is_taken_where_the_other_does_not(tmp_path: Path) -> None:
    made(tmp_path, "hobbylm-v1")
    whole = (tmp_path / "in/corpus_index.json").read_bytes()
    lines = tmp_path / "in/corpus_docs.jsonl"
    lines.write_text(lines.read_text().replace('"offset": 3', '"offset": 1', 1))
    done = repair(tmp_path / "in", tmp_path / "out", boundary="suffix=2")
    assert done.verified == "ok"
    assert done.tables[0].how["corpus_000000"] == "entries kept, of corpus_index.json"
    assert json.loads((tmp_path / "out/corpus_index.json").read_bytes()) == json.loads(whole)


def test_a_hobbylm_table_is_made_of_declared_suffixes(tmp_path: Path) -> None:
    made(tmp_path, "hobbylm-v1")
    whole = (tmp_path / "in/corpus_index.json").read_bytes()
    for name in ("corpus_docs.jsonl", "corpus_index.json"):
        path = tmp_path / "in" / name
        path.write_text(path.read_text().replace('"length": 3', '"length": 4'))
    done = repair(tmp_path / "in", tmp_path / "out", boundary="suffix=2")
    assert done.verified == "ok"
    assert json.loads((tmp_path / "out/corpus_index.json").read_bytes()) == json.loads(whole)
