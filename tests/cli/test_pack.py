"""pack stats on the command line: numbers of the corpus, of each source, of each policy."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.cli.command import run
from tests.cli.test_order import call, written
from tests.index.data import lengths_of, opened, write
from tokenreel.pack.packed_policy import Packing
from tokenreel.pack.plan_sizes import Sizes
from tokenreel.pack.stats import pack_stats
from tokenreel.pack.waste import waste_of

GOLDEN = Path(__file__).resolve().parent.parent / "golden"
LONGCTX = GOLDEN / "hobbylm" / "longctx"
WASTE = json.loads((GOLDEN / "packing" / "hobbylm_waste.json").read_text("utf-8"))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write(tmp_path / "web", lengths_of(1, 80))
    return tmp_path


def test_a_corpus(folder: Path, capsys: Any) -> None:
    status, shown = call(capsys, "pack", "stats", folder / "web.idx", "--seq-length", 16, "--seq-length", 24)
    assert status == 0, shown
    (facts,) = shown["corpora"]
    sizes = Sizes.of(opened(folder / "web").table())
    assert (facts["documents"], facts["tokens"]) == (sizes.documents, sizes.tokens)
    assert [one["row_tokens"] for one in facts["whole"]["waste"]] == [16, 24]
    for one in facts["whole"]["waste"]:
        longer = one.pop("longer")
        assert one == waste_of(sizes.lengths, one["row_tokens"]).as_dict()
        assert longer == float(np.mean(sizes.lengths > one["row_tokens"]))
    # decompose needs a power of two.
    assert [one["packing"]["policy"] for one in facts["packing"]].count("decompose") == 1
    for one in facts["packing"]:
        assert one["kept"] + one["cropped"] + one["dropped"] == sizes.tokens
        assert one["kept"] + one["padded"] == one["rows"] * one["row_takes"]


def test_the_seed_s_table(tmp_path: Path, capsys: Any) -> None:
    """The golden lengths, as a corpus of their own."""
    write(tmp_path / "all", [n - 1 for n in WASTE["lengths"]])
    lengths = [word for row in (8, 32, 48) for word in ("--seq-length", row)]
    status, shown = call(capsys, "pack", "stats", tmp_path / "all.idx", *lengths)
    assert status == 0
    for one in shown["corpora"][0]["whole"]["waste"]:
        expected = WASTE["waste"][str(one["row_tokens"])]
        assert one["chunked"] == expected["one_doc_per_row_chunked"]
        assert one["truncated"] == expected["one_doc_per_row_truncated"]
        assert one["packed"] == expected["packed_one_rank_one_epoch"]
        assert one["bound"] == expected["bound_(S-1)/T"]
    assert shown["corpora"][0]["whole"]["top"]["1"] == WASTE["top_k_share"]["1"]


def test_sources_and_groups(tmp_path: Path, capsys: Any) -> None:
    words = ("pack", "stats", LONGCTX, "--boundary", "prefix=50256", "--seq-length", 32, "--policy", "concat")
    status, shown = call(capsys, *words)
    assert status == 0, shown
    (facts,) = shown["corpora"]
    assert sum(source["tokens"] for source in facts["sources"]) == facts["tokens"]
    names = [source["name"] for source in facts["sources"]]
    assert names == sorted({path.name.rsplit("_", 1)[0] for path in LONGCTX.glob("*.bin")})
    status, shown = call(capsys, *words, "--group", "source")
    groups = shown["corpora"][0]["groups"]
    largest = max(source["tokens"] for source in facts["sources"]) / facts["tokens"]
    assert (groups["count"], groups["top"]["1"]) == (len(names), largest)
    status, shown = call(capsys, *words, "--group", "colour")
    assert (status, shown["error"]["code"]) == (2, "USE003")


def test_groups_by_metadata(tmp_path: Path, capsys: Any) -> None:
    ids = np.array([1, 5, 1, 6, 7, 1, 8, 9, 9], "<u2")
    head = np.zeros(256, "<i4")
    head[:3] = 20240520, 1, len(ids)
    (tmp_path / "code_000000.bin").write_bytes(head.tobytes() + ids.tobytes())
    table = [("code_000000.bin", at, n, repo) for at, n, repo in ((0, 2, "a"), (2, 3, "b"), (5, 4, "a"))]
    (tmp_path / "code_index.json").write_text(
        json.dumps([{"shard": s, "offset": o, "length": n} for s, o, n, _ in table])
    )
    (tmp_path / "code_docs.jsonl").write_text(
        "".join(json.dumps({"shard": s, "offset": o, "length": n, "meta": {"repo": r}}) + "\n" for s, o, n, r in table)
    )
    status, shown = call(
        capsys, "pack", "stats", tmp_path, "--boundary", "prefix=1", "--seq-length", 4, "--group", "repo"
    )
    assert status == 0, shown
    assert shown["corpora"][0]["groups"] == {"by": "repo", "count": 2, "top": {"1": 6 / 9, "5": 1.0, "50": 1.0}}
    assert shown["corpora"][0]["whole"]["top"]["1"] == 4 / 9


RUN = """
[[corpus]]
name = "web"
path = "web.idx"
[order]
kind = "packed"
row_tokens = 16
policy = "bestfit"
oversize = "drop"
"""


def test_a_run_file_says_its_policy(folder: Path, capsys: Any) -> None:
    path = written(folder, RUN)
    status, shown = call(capsys, "pack", "stats", path)
    assert status == 0, shown
    (facts,) = shown["corpora"]
    sizes = Sizes.of(opened(folder / "web").table())
    assert facts["corpus"] == "web"
    assert facts["packing"] == [
        json.loads(json.dumps(pack_stats(sizes, Packing.of("bestfit", 16, oversize="drop")).as_dict()))
    ]
    status, shown = call(capsys, "pack", "stats", path, "--seq-length", 8, "--seq-length", 32)
    assert [one["row_tokens"] for one in shown["corpora"][0]["packing"]] == [8, 32]


def test_a_lineage_shows_every_packing(folder: Path, capsys: Any) -> None:
    segments = "".join(
        f"[[segment]]\nfirst = {4 * k}\nlast = {4 * k + 3}\nat_sample = 0\norder = {{ row_tokens = {row} }}\n"
        for k, row in enumerate((16, 32))
    )
    path = written(folder, RUN + "[schedule]\nbatch = 2\n" + segments)
    status, shown = call(capsys, "pack", "stats", path)
    assert status == 0, shown
    (facts,) = shown["corpora"]
    assert [one["row_tokens"] for one in facts["packing"]] == [16, 32]


def test_splits_are_shown_one_by_one(tmp_path: Path, capsys: Any) -> None:
    for name, count in (("train", 30), ("validation", 9)):
        (tmp_path / name).mkdir()
        write(tmp_path / name / "part-000000", lengths_of(count, count))
    status, shown = call(capsys, "pack", "stats", tmp_path, "--seq-length", 16, "--policy", "concat")
    assert status == 0, shown
    assert [(one["corpus"], one["documents"]) for one in shown["corpora"]] == [("train", 30), ("validation", 9)]


def test_policies_and_what_they_do_with_long_documents(folder: Path, capsys: Any) -> None:
    words = ("pack", "stats", folder / "web.idx", "--seq-length", 16, "--policy", "firstfit(4)", "--policy", "concat")
    status, shown = call(capsys, *words)
    assert (status, shown["error"]["code"]) == (2, "PCK021")
    status, shown = call(capsys, *words, "--oversize", "truncate", "--threads", 2)
    assert status == 0
    said = [one["packing"] for one in shown["corpora"][0]["packing"]]
    assert [(one["policy"], one.get("oversize")) for one in said] == [("firstfit", "truncate"), ("concat", None)]
    assert said[0]["open_rows"] == 4


def test_every_policy_at_once(folder: Path, capsys: Any) -> None:
    every = ("concat", "flat", "bestfit, split", "firstfit(8), drop", "one-per-row, truncate", "truncate", "crop, wait",
             "bos-aligned", "levanter-greedy, split", "decompose")  # fmt: skip
    words = ("pack", "stats", folder / "web.idx", "--seq-length", 16)
    status, shown = call(capsys, *words, *(word for policy in every for word in ("--policy", policy)))
    assert status == 0, shown
    (facts,) = shown["corpora"]
    said = [one["packing"] for one in facts["packing"]]
    names = [", ".join(filter(None, (one["policy"], one.get("oversize")))) for one in said]
    assert names == [policy.replace("(8)", "") for policy in every]
    for one in facts["packing"]:
        assert one["kept"] + one["cropped"] + one["dropped"] == one["tokens"] == facts["tokens"]
        assert one["kept"] + one["padded"] == one["rows"] * one["row_takes"]
        assert one["row_takes"] == 16 + (one["packing"]["policy"] in ("crop", "bos-aligned"))
    status, shown = call(capsys, *words, "--policy", "bestfit, wait")
    assert (status, shown["error"]["code"]) == (2, "PCK020")


def test_what_cannot_be_is_refused(folder: Path, capsys: Any) -> None:
    for words, code in (
        ((folder / "web.idx",), "USE003"),
        ((folder / "web.idx", "--seq-length", 0), "USE003"),
        ((folder / "web.idx", "--seq-length", 8, "--policy", "worstfit"), "PCK020"),
    ):
        status, shown = call(capsys, "pack", "stats", *words)
        assert (status, shown["error"]["code"]) == (2, code)
    np.arange(40, dtype="<u2").tofile(folder / "x.bin")
    status, shown = call(capsys, "pack", "stats", folder / "x.bin", "--dtype", "uint16", "--seq-length", 8)
    assert (status, shown["error"]["code"]) == (1, "PCK023")


def test_the_real_entry_point_prints_tables(folder: Path) -> None:
    done = run("pack", "stats", folder / "web.idx", "--seq-length", 16)
    assert done.status == 0, done.err
    assert "needlessly" in done.out
    assert "bestfit, split" in done.out
    assert run("pack").status == 2
