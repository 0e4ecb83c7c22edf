"""What a folder holds together: whole sets of shards, one format, and nothing left out without a word."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tokenreel
from tokenreel.cli.main import main
from tokenreel.corpus.members import gaps, of_sets
from tokenreel.errors import FormatError
from tokenreel.formats.megatron_write import MegatronWriter
from tokenreel.verify.inspect import inspect
from tokenreel.verify.verify import verify


def _pair(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with MegatronWriter(str(path), np.uint16) as writer:
        writer.add_documents(np.array([5, 6, 0, 7, 0]), np.array([3, 2]))
        writer.finish()


def _llmc(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    header = np.zeros(256, "<i4")
    header[:3] = 20240520, 1, 100
    path.write_bytes(header.tobytes() + np.arange(100, dtype="<u2").tobytes())


def _parquet(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"input_ids": pa.array([[1, 2], [3]], pa.list_(pa.int32()))}), path)


def _codes(folder: Path) -> list[tuple[str, str]]:
    seen = [(finding.code, finding.severity) for finding in verify(folder).findings]
    assert [(finding.code, finding.severity) for finding in inspect(folder).findings] == seen
    return seen


@pytest.mark.parametrize("numbers", [(0, 1, 3), (1, 2, 3), (0, 2), (3,)])
def test_a_set_that_lacks_members_is_broken(tmp_path: Path, numbers: tuple[int, ...]) -> None:
    for number in numbers:
        _pair(tmp_path / f"data/train-{number:05d}-of-00004_text_document")
    assert _codes(tmp_path) == [("DOC014", "error")]
    assert not verify(tmp_path / f"data/train-{numbers[0]:05d}-of-00004_text_document.bin").findings


@pytest.mark.parametrize(
    "names",
    [
        [f"train-{i:05d}-of-00003" for i in range(3)] + ["validation-00000-of-00001"],
        [f"a/x-{i}-of-2" for i in (1, 2)] + [f"b/x-{i}-of-3" for i in range(3)],
        [f"train-{i:05d}-of-00002-{i + 1:016x}" for i in range(2)],
    ],
)
def test_whole_sets_are_whole(names: list[str]) -> None:
    assert not list(of_sets(names))
    assert not list(gaps(names))


def test_two_versions_of_a_set_and_members_beyond_it_are_surplus() -> None:
    names = [f"t-{i}-of-2" for i in range(2)] + [f"t-{i}-of-3" for i in range(3)]
    (one,) = of_sets(names)
    assert one.surplus == ("t-0-of-3", "t-1-of-3", "t-2-of-3")
    (one,) = of_sets(["t-0-of-2", "t-1-of-2", "t-7-of-2"])
    assert (one.missing, one.surplus) == ((), ("t-7-of-2",))


def test_a_name_may_say_any_number_of_members() -> None:
    (one,) = of_sets([f"t-0-of-{1 << 62}"])
    assert len(one.missing) == 1000
    assert one.said - one.there == (1 << 62) - 1


@pytest.mark.parametrize(
    "names",
    [
        [f"fineweb_train_{i:06d}" for i in range(1, 6)] + ["fineweb_val_000000"],
        [f"{i:05d}_unshuffled" for i in range(40, 44)],
        [f"part-{p}-{i:05d}" for p in range(3) for i in range(2 + p)],
        [f"CC-MAIN-2019-{i}" for i in (10, 11, 13)],
        [f"step_{i}" for i in (1000, 2000, 3000)],
        [f"train/part-{i}" for i in range(3)] + [f"val/part-{i}" for i in (9, 10, 11)],
        ["wiki_000000", "wiki_000002"],
    ],
)
def test_numbers_as_writers_use_them_have_no_gap(names: list[str]) -> None:
    assert not list(gaps(names))


def test_a_gap_is_a_warning(tmp_path: Path) -> None:
    for number in (1, 2, 4):
        _llmc(tmp_path / f"fineweb_train_{number:06d}.bin")
    assert _codes(tmp_path) == [("DOC015", "warning")]
    assert verify(tmp_path).status == "ok"


def test_formats_side_by_side_are_refused_by_all(tmp_path: Path) -> None:
    for folder, name in (("npy", "b.npy"), ("parquet", "b.parquet"), ("ds", "b.ds")):
        root = tmp_path / folder
        _pair(root / "a")
        if folder == "npy":
            np.save(root / name, np.arange(100, dtype=np.uint16))
        elif folder == "parquet":
            _parquet(root / name)
        else:
            (root / name).write_bytes(np.arange(10, dtype="<u2").tobytes())
            (root / f"{name}.index").write_bytes(np.array([4, 10], "<u8").tobytes())
        with pytest.raises(FormatError, match="FLT006") as caught:
            tokenreel.open(root)
        assert name in str(caught.value)
        assert _codes(root) == [("FLT006", "error")]
        assert tokenreel.open(root / "a.bin").documents == 2


def test_what_stands_beside_shards_is_no_other_format(tmp_path: Path) -> None:
    _pair(tmp_path / "a")
    pq.write_table(pa.table({"id": ["x", "y"]}), tmp_path / "documents.parquet")
    np.save(tmp_path / "a_shuffle_idx.npy", np.arange(4, dtype=np.uint32))
    np.save(tmp_path / "x-GPTDataset-train-shuffle_index.npy", np.arange(4, dtype=np.uint32))
    np.save(tmp_path / "lengths.npy", np.arange(4, dtype=np.int64))
    for name in ("README.md", ".gitattributes", ".DS_Store"):
        (tmp_path / name).write_bytes(b"x")
    for name in ("._a.bin", "._a.idx"):
        (tmp_path / name).write_bytes(b"\0\5\x16\7" + bytes(100))
    assert tokenreel.open(tmp_path).documents == 2
    assert _codes(tmp_path) == []


def test_files_of_ids_that_nothing_reads_are_said(tmp_path: Path) -> None:
    _llmc(tmp_path / "a_000000.bin")
    for name in ("a_000001.BIN", "a_000001.bin.gz"):
        (tmp_path / name).write_bytes(b"\x1f\x8b")
    assert _codes(tmp_path) == [("FLT009", "warning"), ("FLT009", "warning")]


def test_the_commands_say_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _parquet(tmp_path / "train-00000-of-00002.parquet")
    for command in ("verify", "inspect"):
        status = main([command, str(tmp_path), "--json"])
        said = json.loads(capsys.readouterr().out)
        assert status == 1
        assert [finding["code"] for finding in said["findings"]] == ["DOC014"]


def test_one_raw_file_beside_tables_of_others_has_none(tmp_path: Path) -> None:
    (tmp_path / "web_000000.bin").write_bytes(np.arange(1, 101, dtype="<u2").tobytes())
    (tmp_path / "other_index.json").write_text("[]")
    assert not inspect(tmp_path / "web_000000.bin", dtype="uint16").boundary.table
    assert not inspect(tmp_path, dtype="uint16").boundary.table


def test_links_to_blobs_are_shards(tmp_path: Path) -> None:
    _pair(tmp_path / "blobs/x")
    snapshot = tmp_path / "snapshots/main/data"
    snapshot.mkdir(parents=True)
    for suffix in ("bin", "idx"):
        (tmp_path / f"blobs/x.{suffix}").rename(tmp_path / f"blobs/{suffix}0f")
        (snapshot / f"wéb.{suffix}").symlink_to(f"../../../blobs/{suffix}0f")
    assert tokenreel.open(tmp_path / "snapshots/main").documents == 2
    assert _codes(tmp_path / "snapshots/main") == []
