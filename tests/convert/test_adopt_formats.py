"""adopt in every format: what it writes is enough to read without options, and every byte is attested afterwards."""

from __future__ import annotations

from pathlib import Path

import pytest

import tokenreel
from tests.convert.test_pairs import FAST, WRITABLE
from tests.verify.formats import ONE, bare, dtype_of, made
from tokenreel.convert.adopt import adopt
from tokenreel.verify import verify
from tokenreel.verify.attested import NOT_ATTESTED

WANTED = [list(document) for shard in ONE.shards for document in shard]


@pytest.mark.parametrize(
    "name", [name if name in FAST else pytest.param(name, marks=pytest.mark.slow) for name in WRITABLE]
)
def test_every_format(name: str, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    for path, data in bare(made(name, tmp_path_factory)).items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_bytes(data)
    adopt(tmp_path, boundary=ONE.boundary, dtype=dtype_of(name))
    assert [ids.tolist() for ids in tokenreel.open(tmp_path)] == WANTED
    whole = verify(tmp_path, level="full")
    assert (whole.status, [note for note in whole.not_checked if note.what == NOT_ATTESTED]) == ("ok", [])
    files = [path for path in tmp_path.rglob("*") if path.is_file() and path.suffix != ".json"]
    largest = max(files, key=lambda path: path.stat().st_size)
    data = bytearray(largest.read_bytes())
    data[-3] ^= 1
    largest.write_bytes(bytes(data))
    assert verify(tmp_path, level="full").status == "broken"
