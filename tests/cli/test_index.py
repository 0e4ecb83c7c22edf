"""index convert, blend and check on the command line; ten planted differences."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.cli.command import run
from tests.index.data import lengths_of, write
from tokenreel.cli.main import main

FLAGS = ("--seq-length", "16", "--num-samples", "120")
TOKENIZER = '{"class": "a.Tokenizer", "tokenizer_path": null, "vocab_size": "60"}'


def call(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, Any]:
    """Run a command in this process and return its status and its one JSON document."""
    capsys.readouterr()
    status = main([*map(str, words), "--json"])
    return status, json.loads(capsys.readouterr().out)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Return a folder with a pair, `web`, and two shards."""
    write(tmp_path / "web", lengths_of(1))
    write(tmp_path / "shards/a", lengths_of(2, 20))
    write(tmp_path / "shards/b", lengths_of(3, 20), first=11)
    return tmp_path


def test_convert_as_maxtext_s_builder_is_called(data: Path) -> None:
    words = ("--input", "web", "shards", "--output-dir", "out", "--seq-length", "16", "--num-samples", "300")
    first = run("index", "convert", *words, "--json", cwd=data)
    assert first.status == 0, first.err
    names = first.json["written"]
    assert [name.partition("-")[2] for name in names if name.endswith(".npy")] == [
        "document_index.npy",
        "sample_index.npy",
        "shuffle_index.npy",
    ]
    assert all((data / "out" / name).is_file() for name in names)
    again = run("index", "convert", *words, "--json", cwd=data)
    assert again.json["written"] == []
    assert sorted(again.json["kept"]) == sorted(names)
    flags = ("--seq-length", "16", "--num-samples", "300")
    checked = run("index", "check", "out", "--corpus", "web", "--corpus", "shards", *flags, cwd=data)
    assert checked.status == 0
    assert "is what these inputs give: 3 files compared" in checked.out


def test_megatron_s_layout(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = ("--input", data / "web", "--output-dir", data / "cache", *FLAGS, "--layout", "megatron")
    status, shown = call(capsys, "index", "convert", *made, "--split", "90,5,5", "--tokenizer-identity", TOKENIZER)
    assert status == 0
    text = next(name for name in shown["written"] if name.endswith("-GPTDataset-train-description.txt"))
    said = json.loads((data / "cache" / text).read_text())
    assert (said["dataset_path"], said["num_samples"]) == (str(data / "web"), 120)
    check = ("index", "check", data / "cache", "--corpus", data / "web", *FLAGS, "--layout", "megatron")
    # The tokenizer may be given as the description text that holds it.
    same = ("--split", "90,5,5", "--tokenizer-identity", data / "cache" / text)
    assert call(capsys, *check, *same)[0] == 0
    status, shown = call(capsys, *check, "--split", "9,1", *same[2:])
    assert status == 1
    assert [one["what"] for one in shown["differences"]][1:] == ["split", "split_matrix"]


@pytest.mark.parametrize("layout", ["maxtext", "megatron"])
def test_a_blend(layout: str, data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    datasets = f"{data / 'web'},0.7;{data / 'shards/a'},0.3"
    flags = ("--seq-length", 16, "--total-samples", 50, "--layout", layout, "--tokenizer-identity", TOKENIZER)
    assert call(capsys, "index", "blend", "--datasets", datasets, "--output-dir", data / "out", *flags)[0] == 0
    check = ("index", "check", data / "out", *flags, "--datasets")
    status, shown = call(capsys, *check, datasets)
    assert (status, shown["differences"]) == (0, [])
    # Weights
    status, shown = call(capsys, *check, datasets.replace("0.7", "0.6"))
    assert status == 1
    assert shown["differences"]


def test_a_blend_is_laid_out_as_maxtext_does(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    datasets = f"{data / 'web'},0.7;{data / 'shards/a'},0;{data / 'shards/b'},0.3"
    flags = ("--seq-length", 16, "--total-samples", 50)
    call(capsys, "index", "blend", "--datasets", datasets, "--output-dir", data / "out", *flags)
    inside = {path.name for path in (data / "out").iterdir()}
    assert inside == {"dataset_0", "dataset_2", "dataset_index.npy", "dataset_sample_index.npy"}


def test_megatron_s_blend_without_weights(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flags = (
        "--seq-length",
        16,
        "--layout",
        "megatron",
        "--per-split",
        "--datasets",
        f"{data / 'web'};{data / 'shards/a'}",
    )
    status, shown = call(capsys, "index", "blend", *flags, "--output-dir", data / "out")
    assert status == 0
    assert any("BlendedDataset-train-dataset_index.npy" in name for name in shown["written"])


# ---- ten planted differences ----------------------------------------------------------------------------------------


@pytest.fixture
def built(data: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    """Return the folder, with an index of `shards` in `out`."""
    flags = ("--input", data / "shards", "--output-dir", data / "out", *FLAGS, "--split", "9,1")
    assert call(capsys, "index", "convert", *flags)[0] == 0
    assert check(capsys, data) == (0, [])
    return data


def check(capsys: pytest.CaptureFixture[str], data: Path, **changes: object) -> tuple[int, list[dict[str, Any]]]:
    flags: dict[str, object] = {
        "corpus": data / "shards",
        "seq-length": 16,
        "num-samples": 120,
        "split": "9,1",
        **changes,
    }
    words = [str(word) for name, value in flags.items() for word in (f"--{name}", value)]
    status, shown = call(capsys, "index", "check", data / "out", *words)
    return status, shown["differences"]


@pytest.mark.parametrize(
    ("changes", "what", "expected", "found"),
    [
        ({"seed": 7}, "seed", 7, 1234),
        ({"seq-length": 15}, "seq_length", 15, 16),
        ({"split": "8,2"}, "split", "8,2", "9,1"),
        ({"num-samples": 5000}, "num_samples_requested", 5000, 120),
    ],
    ids=["seed", "length", "split", "count"],
)
def test_other_inputs_are_named(
    changes: dict[str, object], what: str, expected: object, found: object, built: Path, capsys: Any
) -> None:
    status, wrong = check(capsys, built, **changes)
    assert status == 1
    assert wrong[0]["code"] == "IDX001"
    assert (wrong[1]["what"], wrong[1]["expected"], wrong[1]["found"]) == (what, expected, found)
    assert len(wrong) == 2


def test_a_count_in_the_same_bucket_is_the_same_index(built: Path, capsys: Any) -> None:
    assert check(capsys, built, **{"num-samples": 119})[0] == 0


def test_without_metadata_the_arrays_are_compared(built: Path, capsys: Any) -> None:
    next((built / "out").glob("*-metadata.json")).unlink()
    status, wrong = check(capsys, built, seed=7)
    assert status == 1
    assert [one["file"].partition("-")[2] for one in wrong[1:]] == [
        "document_index.npy",
        "sample_index.npy",
        "shuffle_index.npy",
    ]


def test_shards_in_another_order(built: Path, capsys: Any) -> None:
    for suffix in ("bin", "idx"):
        a, b, t = (built / f"shards/{name}.{suffix}" for name in "abt")
        a.rename(t)
        b.rename(a)
        t.rename(b)
    status, wrong = check(capsys, built)
    assert status == 1
    assert {one["code"] for one in wrong} == {"IDX004", "IDX007"}
    assert wrong[0]["file"].endswith("sample_index.npy")


def test_another_eod(built: Path, capsys: Any) -> None:
    assert check(capsys, built, eod=2)[0] == 0
    status, wrong = check(capsys, built, eod=3)
    assert status == 1
    assert (wrong[0]["code"], wrong[0]["expected"], wrong[0]["found"]) == ("IDX008", 3, 2)


@pytest.mark.parametrize("array", ["document_index", "sample_index", "shuffle_index"])
def test_a_truncated_file(array: str, built: Path, capsys: Any) -> None:
    path = next((built / "out").glob(f"*-{array}.npy"))
    path.write_bytes(path.read_bytes()[:-4])
    status, wrong = check(capsys, built)
    assert (status, [one["code"] for one in wrong]) == (1, ["IDX002"])


def test_a_replaced_bin_of_the_same_size(built: Path, capsys: Any) -> None:
    path = built / "shards/b.bin"
    path.write_bytes(path.read_bytes()[::-1])
    status, wrong = check(capsys, built)
    assert status == 1
    assert [(one["code"], one["what"].partition(" ")[0]) for one in wrong] == [("IDX007", "sampled_ids")]


def test_replaced_data_of_the_same_counts(built: Path, capsys: Any) -> None:
    write(built / "shards/b", lengths_of(3, 20)[::-1], first=11)
    status, wrong = check(capsys, built)
    assert status == 1
    assert {one["code"] for one in wrong} == {"IDX004", "IDX007"}


def test_swapped_arrays(built: Path, capsys: Any) -> None:
    documents = next((built / "out").glob("*-document_index.npy"))
    shuffle = next((built / "out").glob("*-shuffle_index.npy"))
    one, other = documents.read_bytes(), shuffle.read_bytes()
    documents.write_bytes(other)
    shuffle.write_bytes(one)
    status, wrong = check(capsys, built)
    assert status == 1
    assert [(one["file"].partition("-")[2], one["what"]) for one in wrong] == [
        ("document_index.npy", "dtype"),
        ("shuffle_index.npy", "dtype"),
    ]


def test_one_value_changed(built: Path, capsys: Any) -> None:
    path = next((built / "out").glob("*-shuffle_index.npy"))
    array = np.load(path)
    array[[4, 9]] = array[[9, 4]]
    np.save(path, array)
    status, wrong = check(capsys, built)
    assert (status, wrong[0]["what"], wrong[0]["expected"], wrong[0]["found"]) == (1, "entry 4", array[9], array[4])


def test_an_empty_directory(data: Path, capsys: Any) -> None:
    (data / "out").mkdir()
    status, wrong = check(capsys, data)
    assert (status, [one["code"] for one in wrong]) == (1, ["IDX001"])


# ---- usage ----------------------------------------------------------------------------------------------------------


def test_flags_that_do_not_go_together(data: Path, capsys: Any) -> None:
    convert = ("index", "convert", "--input", data / "web", "--output-dir", data / "out", "--seq-length", 16)
    for words, code in (
        ((), "ORD078"),
        (("--num-samples", 1, "--num-epochs", 1), "ORD078"),
        (("--layout", "megatron", "--num-epochs", 1), "USE003"),
        (("--layout", "megatron", "--tokenizer-identity", "absent.json"), "USE003"),
        (("--layout", "megatron", "--tokenizer-identity", "{}"), "USE003"),
    ):
        status, shown = call(capsys, *convert, *words)
        assert (status, shown["error"]["code"]) == (2, code)
    status, shown = call(capsys, "index", "check", data, "--seq-length", 16)
    assert (status, shown["error"]["code"]) == (2, "USE003")
    assert not (data / "out").exists()


def test_a_folder_that_cannot_be_written_exits_3(data: Path, capsys: Any) -> None:
    (data / "out").write_text("a file")
    status, shown = call(capsys, "index", "convert", "--input", data / "web", "--output-dir", data / "out", *FLAGS)
    assert (status, shown["error"]["code"]) == (3, "STO003")


def test_a_url_is_refused_with_what_to_do(tmp_path: Path, capsys: Any) -> None:
    flags = ("--input", "gs://bucket/data", "--output-dir", tmp_path / "out", *FLAGS)
    status, shown = call(capsys, "index", "convert", *flags)
    assert (status, shown["error"]["code"]) == (2, "ORD069")
    assert "mount" in shown["error"]["hint"]


def test_help_names_the_flags_of_the_builder() -> None:
    shown = run("index", "convert", "--help", env={"COLUMNS": "200"}).out
    for flag in ("--input", "--output-dir", "--seq-length", "--num-samples", "--num-epochs", "--split-index"):
        assert flag in shown
