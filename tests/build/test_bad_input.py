"""Bad input, as a user meets it: the code, the exit status, the place, and nothing half-written."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.build.making import CORPUS, leftovers, run, tokenizer_file, tree, write_jsonl, write_recipe
from tokenreel.build.run import build
from tokenreel.errors import ManifestError, StorageError, TokenreelError


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    tokenizer_file(tmp_path)
    write_jsonl(tmp_path / "in" / "a.jsonl", CORPUS)
    return tmp_path


def invalid_utf8(folder: Path) -> None:
    (folder / "in" / "b.jsonl").write_bytes(b'{"text": "fine", "id": "x"}\n{"text": "\xff", "id": "y"}\n')


def lone_surrogate(folder: Path) -> None:
    (folder / "in" / "b.jsonl").write_bytes(b'{"text": "fine", "id": "x"}\n{"text": "\\ud800", "id": "y"}\n')


def not_json(folder: Path) -> None:
    (folder / "in" / "b.jsonl").write_text('{"text": "fine", "id": "x"}\n{"text": "a"\n')


def not_an_object(folder: Path) -> None:
    (folder / "in" / "b.jsonl").write_text('{"text": "fine", "id": "x"}\n["a"]\n')


def no_such_field(folder: Path) -> None:
    (folder / "in" / "b.jsonl").write_text('{"text": "fine", "id": "x"}\n{"id": "y"}\n')


def null_text(folder: Path) -> None:
    (folder / "in" / "b.jsonl").write_text('{"text": "fine", "id": "x"}\n{"text": null, "id": "y"}\n')


def no_such_column(folder: Path) -> None:
    pq.write_table(pa.table({"body": ["a"], "id": ["x"]}), folder / "in" / "b.parquet")


def empty_file(folder: Path) -> None:
    (folder / "in" / "b.jsonl").write_bytes(b"")


def empty_parquet(folder: Path) -> None:
    pq.write_table(
        pa.table({"text": pa.array([], pa.string()), "id": pa.array([], pa.string())}), folder / "in" / "b.parquet"
    )


def only_blank_lines(folder: Path) -> None:
    (folder / "in" / "b.jsonl").write_bytes(b"\n \n")


def truncated_gzip(folder: Path) -> None:
    import gzip

    (folder / "in" / "b.jsonl.gz").write_bytes(gzip.compress(b'{"text": "fine", "id": "x"}\n' * 9)[:-5])


INPUTS: list[tuple[Callable[[Path], None], str, dict[str, Any]]] = [
    (invalid_utf8, "SRC001", {"line": 2, "offset": 38}),
    (lone_surrogate, "SRC002", {"line": 2, "offset": 38}),
    (not_json, "SRC003", {"line": 2}),
    (not_an_object, "SRC004", {"line": 2}),
    (no_such_field, "SRC005", {"line": 2}),
    (null_text, "SRC006", {"line": 2}),
    (no_such_column, "SRC008", {}),
    (empty_file, "SRC009", {}),
    (empty_parquet, "SRC009", {}),
    (only_blank_lines, "SRC009", {}),
    (truncated_gzip, "SRC010", {}),
]


@pytest.mark.parametrize(("spoil", "code", "where"), INPUTS, ids=[spoil.__name__ for spoil, _, _ in INPUTS])
def test_bad_inputs(folder: Path, spoil: Callable[[Path], None], code: str, where: dict[str, Any]) -> None:
    spoil(folder)
    out = folder / "out"
    status, said = run(write_recipe(folder), out, "--workers", "2")
    error = said["error"]
    assert (status, error["code"]) == (1, code)
    assert "/in/b." in f"/{error['where']['path']}"
    assert where.items() <= error["where"].items()
    assert error["hint"]
    assert leftovers(out) == []


def test_a_build_that_failed_goes_on_once_the_input_is_mended(folder: Path) -> None:
    not_json(folder)
    with pytest.raises(TokenreelError):
        build(write_recipe(folder), folder / "out", in_process=True)
    write_jsonl(folder / "in" / "b.jsonl", ["mended"])
    # The inputs are not those the folder was begun with: that is said, not passed over.
    with pytest.raises(ManifestError, match="MAN010"):
        build(write_recipe(folder), folder / "out", in_process=True)
    assert build(write_recipe(folder), folder / "other", in_process=True).built == 2


RECIPES = [
    ({"tokenizer": {"path": "tokenizer.json", "eod": "<nope>"}}, 2, "TKZ003"),
    ({"tokenizer": {"path": "tokenizer.json", "eod": 99999}}, 2, "TKZ003"),
    ({"tokenizer": {"path": "tokenizer.json"}}, 2, "TKZ004"),
    ({"tokenizer": {"path": "absent.json", "eod": "<eod>"}}, 3, "STO001"),
    ({"tokenizer": {"path": "recipe.toml", "eod": "<eod>"}}, 1, "TKZ002"),
    ({"tokenizer": {"pth": "tokenizer.json"}}, 2, "RCP003"),
    ({"tokenizer": {"path": "tokenizer.json", "eod": "<eod>", "engine": "fast"}}, 2, "RCP004"),
    ({"source": {"name": "a", "paths": ["none/*"]}}, 2, "SRC014"),
    ({"source": {"name": "a", "paths": ["none.jsonl"]}}, 3, "STO001"),
    ({"source": {"name": "a", "paths": ["in"]}}, 2, "SRC018"),
    ({"tokenizer": {"name": "train:bpe:40000"}}, 2, "TKZ012"),
    ({"split": {"rule": "hash-mod", "modulo": 0}}, 2, "SPL011"),
    ({"split": {"rule": "hash"}}, 2, "SPL010"),
    ({"split": {"rule": "by-id", "file": "absent.txt"}}, 3, "STO001"),
]


@pytest.mark.parametrize(("tables", "status", "code"), RECIPES)
def test_bad_recipes(folder: Path, tables: dict[str, Any], status: int, code: str) -> None:
    recipe = write_recipe(folder, **tables)
    with pytest.raises(TokenreelError) as caught:
        build(recipe, folder / "out", in_process=True)
    assert (caught.value.code, caught.value.exit_status) == (code, status)
    # A build that is refused before it begins leaves nothing: no folder, no log.
    assert not (folder / "out").exists()


def test_a_typo_in_a_recipe_names_the_nearest_key(folder: Path) -> None:
    status, said = run(write_recipe(folder, documents={"emtpy": "drop"}), folder / "out")
    assert (status, said["error"]["code"]) == (2, "RCP003")
    assert "did you mean empty" in said["error"]["message"]
    assert not (folder / "out").exists()


def test_no_output_folder(folder: Path) -> None:
    with pytest.raises(TokenreelError, match="RCP007"):
        build(write_recipe(folder))
    report = build(write_recipe(folder, output={"folder": "there"}), in_process=True)
    assert report.out == folder / "there"
    assert (folder / "there" / "COMPLETE.json").exists()


def test_an_input_that_cannot_be_read(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = folder / "in" / "b.jsonl"
    write_jsonl(path, ["secret"])
    path.chmod(0)
    if os.access(path, os.R_OK):  # the superuser may read everything: let the system refuse by hand
        from tokenreel.build import inputs as module

        def refuse(name: str, *how: Any, **more: Any) -> Any:
            if name.endswith("b.jsonl"):
                raise PermissionError(13, "Permission denied", name)
            return open(name, *how, **more)  # noqa: PTH123

        monkeypatch.setattr(module, "open", refuse, raising=False)
    with pytest.raises(StorageError) as caught:
        build(write_recipe(folder), folder / "out", in_process=True)
    assert (caught.value.code, caught.value.exit_status) == ("STO002", 3)
    assert caught.value.where["path"] == str(path)
    assert not (folder / "out").exists()


LIMITED = """
import resource, sys
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[1]), resource.RLIM_INFINITY))
from tokenreel.cli import main
sys.exit(main(sys.argv[2:]))
"""


@pytest.mark.parametrize("layout", ["mahan", "native"])
@pytest.mark.parametrize("limit", [15_000, 30_000])
def test_a_disk_that_is_full_in_the_middle(folder: Path, layout: str, limit: int) -> None:
    """A limit on the size of files stands for the full disk: writing fails in the worker, in the middle of a part."""
    write_jsonl(folder / "in" / "b.jsonl", CORPUS * 40)
    recipe, out = write_recipe(folder, corpus={"layout": layout}), folder / "out"
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[1] == resource.RLIM_INFINITY
    words = [sys.executable, "-c", LIMITED, str(limit), "build", str(recipe), "--out", str(out), "--json"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120)
    assert done.returncode == 3
    assert json.loads(done.stdout)["error"]["code"] == "STO003"
    assert leftovers(out) == []
    build(recipe, folder / "whole", in_process=True)
    assert run(recipe, out)[0] == 0
    assert tree(out) == tree(folder / "whole")


@pytest.mark.parametrize("size", ["300k", "600k"])
def test_a_small_file_system(folder: Path, size: str) -> None:
    """The real thing, where this user may mount one."""
    write_jsonl(folder / "in" / "b.jsonl", CORPUS * 4000)
    disk = folder / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(disk)], capture_output=True)
    if mounted.returncode:
        pytest.skip("file systems cannot be mounted here")
    try:
        status, said = run(write_recipe(folder), disk / "out", "--workers", "1")
        assert (status, said["error"]["code"]) == (3, "STO003")
        assert leftovers(disk / "out") == []
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def test_a_file_that_does_not_read_back_is_never_declared_complete(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is changed between writing and the end is found when everything is read again."""
    from tokenreel.build import run as module

    whole = module.finish

    def spoil(ending: Any) -> Any:
        path = ending.out / "shards" / "train" / "part-000000.bin"
        data = bytearray(path.read_bytes())
        data[0] ^= 1
        path.write_bytes(data)
        return whole(ending)

    out = folder / "out"
    monkeypatch.setattr(module, "finish", spoil)
    with pytest.raises(ManifestError, match=r"MAN013 .*part-000000\.bin"):
        build(write_recipe(folder), out, in_process=True)
    assert not (out / "COMPLETE.json").exists()
    monkeypatch.undo()
    assert build(write_recipe(folder), out, in_process=True).built == 1


def test_an_engine_that_is_asked_for_and_cannot(folder: Path) -> None:
    (folder / "in" / "a.jsonl").write_text('{"text": "a", "id": "x"}\n')
    pytest.importorskip("fastokens")
    config = json.loads((folder / "tokenizer.json").read_bytes())
    config["normalizer"] = {"type": "NFKC"}
    (folder / "tokenizer.json").write_text(json.dumps(config))
    recipe = write_recipe(folder, tokenizer={"path": "tokenizer.json", "eod": "<eod>", "engine": "fastokens"})
    with pytest.raises(TokenreelError, match="TKZ013"):
        build(recipe, folder / "out", in_process=True)


@pytest.mark.parametrize("engine", ["gigatoken", "fastokens"])
def test_engines_give_the_same_bytes(folder: Path, engine: str) -> None:
    pytest.importorskip(engine)
    out = {}
    for name in (engine, "reference"):
        recipe = write_recipe(folder, tokenizer={"path": "tokenizer.json", "eod": "<eod>", "engine": name})
        report = build(recipe, folder / name, 1)
        assert report.engine.split()[0] == ("tokenizers" if name == "reference" else engine)
        out[name] = tree(folder / name)
    assert out[engine] == out["reference"]
