"""`inspect` names the format of every golden file, or the option that settles it, or what is wrong with it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.command import run

GOLDEN = Path(__file__).parents[1] / "golden"
NAMED = {
    "llmc/fineweb_train_000001.bin": "llmc-v1",
    "llmc/llama3_train_000000.bin": "llmc-v7",
    "hobbylm/longctx": "hobbylm-v1",
    "hobbylm/longctx/wiki_000000.bin": "hobbylm-v1",
    "hobbylm/mix": "llmc-v1",
    "ounce": "ounce-v1",
    "ounce/val/shard_00000.bin": "ounce-v1",
    "olmo/part-000-00000.npy": "olmo-uint16",
    "raw/edufineweb_train_000001.npy": "npy",
    **{f"datatrove/{name}": "datatrove" for name in ("plain", "loss", "shuffled", "chunked", "twofiles", "merged")},
}
REFUSED = {
    "raw/train.bin": "FLT001",
    "olmo/no-final-eos.npy": "FLT001",
    "olmo/dolma-style-000.csv.gz": "OLM001",
    "llmc/hellaswag_val.bin": "LMC003",
    "llmc/bad/bad_magic.bin": "LMC001",
    "ounce/bad/short.bin": "OFF002",
    "ounce/bad/unknown_flags.bin": "OFF003",
    "ounce/bad/offsets0_nonzero.bin": "OFF004",
    "ounce/bad/offsets_last.bin": "OFF006",
    "ounce/bad/vocab_violation.bin": "OFF007",
}


@pytest.mark.parametrize("path", sorted(NAMED))
def test_named(path: str, tmp_path: Path) -> None:
    place = GOLDEN / path
    if path == "ounce":  # beside it lie shards that are to be refused
        place = tmp_path / "ounce"
        place.mkdir()
        for file in ("manifest.json", *(f"shard_0000{k}.bin" for k in range(4)), "val/shard_00000.bin"):
            (place / file).parent.mkdir(exist_ok=True)
            (place / file).write_bytes((GOLDEN / "ounce" / file).read_bytes())
    shown = run("inspect", place, "--json")
    assert (shown.status, shown.json["formats"]) == (0, [NAMED[path]])
    assert not [finding for finding in shown.json["findings"] if finding["severity"] == "error"]


@pytest.mark.parametrize("path", sorted(REFUSED))
def test_refused(path: str) -> None:
    shown = run("inspect", GOLDEN / path, "--json")
    assert (shown.status, [finding["code"] for finding in shown.json["findings"]]) == (1, [REFUSED[path]])
    if REFUSED[path] == "FLT001":
        assert "--dtype uint16 or uint32" in run("inspect", GOLDEN / path).out


def test_the_option_settles_it() -> None:
    for option in (("--dtype", "uint16"), ("--vocab", 50257)):
        shown = run("inspect", GOLDEN / "raw/train.bin", *option, "--boundary", "suffix=50256")
        assert shown.status == 0
        assert "raw-uint16" in shown.out
        assert "10 documents" in shown.out
