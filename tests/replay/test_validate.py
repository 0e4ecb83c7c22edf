"""Twelve planted faults, each with its code; and the same over http and through a hub."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyarrow import parquet

from tests.cli.command import run
from tests.replay.made import Made, make
from tokenreel.replay.metadata import schemas
from tokenreel.replay.opening import open_place
from tokenreel.replay.validate import Asked, validate
from tokenreel.testing.hub_server import HubServer, Repository

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Made:
    return make(tmp_path_factory.mktemp("index"), documents=900, task=300)


def manifest(root: Path) -> dict[str, Any]:
    return json.loads((root / "manifest.json").read_text())


def put(root: Path, table: dict[str, Any]) -> None:
    (root / "manifest.json").write_text(json.dumps(table))


def rewrite(root: Path, task: int, change: Callable[[pa.Table], pa.Table], *, rows: bool = True) -> None:
    """Change a file's rows and make the manifest fit its bytes, so that only the rows can tell."""
    said = manifest(root)
    row = said["files"][task]
    table = change(parquet.read_table(root / row["path"]))
    parquet.write_table(table, root / row["path"])
    data = (root / row["path"]).read_bytes()
    row.update(bytes=len(data), sha256=hashlib.sha256(data).hexdigest())
    if rows:
        row["documents"] = table.num_rows
    put(root, said)


def fault_missing(root: Path) -> None:
    (root / manifest(root)["files"][1]["path"]).unlink()


def fault_extra(root: Path) -> None:
    (root / "index/task-000099.parquet").write_bytes(b"PAR1")


def fault_size(root: Path) -> None:
    path = root / manifest(root)["files"][1]["path"]
    path.write_bytes(path.read_bytes()[:-1])


def fault_bytes(root: Path) -> None:
    path = root / manifest(root)["files"][1]["path"]
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(bytes(data))


def fault_totals(root: Path) -> None:
    said = manifest(root)
    put(root, said | {"documents": said["documents"] + 1})


def fault_metadata(root: Path) -> None:
    (root / "mix.json").unlink()


def fault_schema(root: Path) -> None:
    rewrite(root, 1, lambda table: table.rename_columns(["source", "document_id", "bucket_id"]))


def fault_id(root: Path) -> None:
    def shorter(table: pa.Table) -> pa.Table:
        ids = [value[:15] for value in table.column("document_id").to_pylist()]
        return table.set_column(1, "document_id", pa.array(ids, pa.binary()))

    rewrite(root, 1, shorter)


def fault_bucket(root: Path) -> None:
    def outside(table: pa.Table) -> pa.Table:
        return table.set_column(2, "bucket_id", pa.array([200, *table.column("bucket_id").to_pylist()[1:]]))

    rewrite(root, 1, outside)


def fault_source(root: Path) -> None:
    def renamed(table: pa.Table) -> pa.Table:
        return table.set_column(0, "source_id", pa.array(["nowhere", *table.column("source_id").to_pylist()[1:]]))

    rewrite(root, 1, renamed)


def fault_counts(root: Path) -> None:
    said = manifest(root)
    counts = said["documents_by_bucket"]
    one, other = sorted(counts)[:2]
    counts[one] += 1
    counts[other] -= 1
    put(root, said)


def fault_rows(root: Path) -> None:
    rewrite(root, 1, lambda table: table.slice(0, table.num_rows - 1), rows=False)


def fault_tasks(root: Path) -> None:
    said = manifest(root)
    said["files"][1]["task_id"] = 7
    put(root, said)


def in_order(root: Path) -> None:
    for number in range(len(manifest(root)["files"])):
        rewrite(root, number, lambda table: table.take(pc.sort_indices(table, [("document_id", "ascending")])))


def fault_order(root: Path) -> None:
    in_order(root)
    assert "RPL021" not in validate(open_place(root), Asked(full=True)).counts
    rewrite(root, 1, lambda table: table.take(pa.array(sorted(range(table.num_rows), key=lambda k: k * 37 % 101))))


FAULTS = {
    "RPL012": fault_missing,
    "RPL013": fault_extra,
    "RPL014": fault_size,
    "RPL015": fault_bytes,
    "RPL011": fault_totals,
    "RPL010": fault_metadata,
    "RPL016": fault_schema,
    "RPL017": fault_id,
    "RPL018": fault_bucket,
    "RPL019": fault_source,
    "RPL020": fault_counts,
    "RPL026": fault_rows,
    "RPL022": fault_tasks,
    "RPL021": fault_order,
}


def test_a_whole_index_is_fine(whole: Made) -> None:
    report = validate(open_place(whole.index), Asked(full=True))
    # Rows are in the order of the text, not of ids: sources that were normalised are known to be sorted.
    assert set(report.counts) <= {"RPL021", "RPL023"}
    assert report.status == "ok"
    assert report.facts["documents_read"] == 900


@pytest.mark.parametrize("code", FAULTS)
def test_planted_faults(whole: Made, tmp_path: Path, code: str) -> None:
    root = tmp_path / "index"
    shutil.copytree(whole.index, root)
    FAULTS[code](root)
    report = validate(open_place(root), Asked(full=True))
    assert code in report.counts
    assert report.status == ("ok" if code == "RPL021" else "broken")


def test_duplicates_are_information(whole: Made) -> None:
    report = validate(open_place(whole.index), Asked(full=True))
    twice = report.facts["duplicates"]
    ids = [text for _, text, _ in whole.rows]
    assert twice["documents"] == len(ids) - len(set(ids))
    assert twice["within_source"] == len(whole.rows) - len({(source, text) for source, text, _ in whole.rows})
    assert twice["ids"] == sum(ids.count(one) > 1 for one in set(ids))


def served(root: Path) -> dict[str, bytes]:
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def upstreams() -> dict[str, Repository | dict[str, bytes]]:
    return {"org/web": {"a": b"1"}, "org/code": {"a": b"1"}, "org/books": {"a": b"1"}}


def test_through_a_hub(whole: Made) -> None:
    with HubServer({"me/index": served(whole.index), **upstreams()}, drops=2, busy=1, page=2) as hub:
        ran = run(
            "replay", "validate", "--repo-id", "me/index", "--level", "full", "--json", env={"HF_ENDPOINT": hub.url}
        )
        assert ran.status == 0, ran.err
        assert ran.json["facts"]["documents_read"] == 900
        assert any("upstream" in what for what in ran.json["checked"])
        hub.repository("org/code").gated = True
        ran = run("replay", "validate", "--repo-id", "me/index", "--json", env={"HF_ENDPOINT": hub.url})
        assert ran.status == 1
        assert ran.json["counts"]["RPL025"] == 1
        hub.repository("org/books").revisions = ()
        ran = run("replay", "validate", "--repo-id", "me/index", "--json", env={"HF_ENDPOINT": hub.url})
        assert ran.json["counts"]["RPL024"] == 1
        hub.repository("me/index").files["more.parquet"] = b"x"
        ran = run("replay", "validate", "--repo-id", "me/index", "--json", env={"HF_ENDPOINT": hub.url})
        assert ran.json["counts"]["RPL013"] == 1


def test_over_plain_http(whole: Made) -> None:
    with HubServer({"me/index": served(whole.index)}) as hub:
        ran = run("replay", "validate", f"{hub.url}/datasets/me/index/resolve/main", "--level", "full", "--json")
        assert ran.status == 0, ran.err
        said = [note["what"] for note in ran.json["not_checked"]]
        assert "that no other files are there" in said
        assert any(what.startswith("upstream revisions") for what in said)


def test_offline_upstreams_are_not_called_fine(whole: Made) -> None:
    ran = run("replay", "validate", whole.index, "--json")
    assert ran.status == 0
    assert any(note["why"] == "offline" for note in ran.json["not_checked"])
    assert not any("upstream" in what for what in ran.json["checked"])


def test_schemas_that_ship_are_those_of_the_types() -> None:
    folder = Path(__file__).parents[2] / "src/tokenreel/replay/schema"
    for name, schema in schemas().items():
        assert json.loads((folder / f"{name}-1.json").read_text()) == schema


@pytest.mark.parametrize("code", ["RPL016", "RPL017"])
def test_a_file_that_cannot_be_read_is_not_read_on_where_its_finding_is_not_wanted(
    whole: Made, tmp_path: Path, code: str
) -> None:
    root = tmp_path / "index"
    shutil.copytree(whole.index, root)
    FAULTS[code](root)
    for asked in (("--ignore", code), ("--select", "RPL015")):
        ran = run("replay", "validate", root, "--level", "full", *asked, "--json")
        assert ran.status == 0, ran.err
        assert code not in ran.json["counts"]
        assert any(note["what"] == "ids that stand twice" for note in ran.json["not_checked"])


def test_sources_that_are_no_utf_8(whole: Made, tmp_path: Path) -> None:
    root = tmp_path / "index"
    shutil.copytree(whole.index, root)

    def spoiled(table: pa.Table) -> pa.Table:
        data = [b"we\xffb", *(name.encode() for name in table.column("source_id").to_pylist()[1:])]
        broken = pa.Array.from_buffers(pa.string(), len(data), pa.array(data, pa.binary()).buffers())
        return table.set_column(0, pa.field("source_id", pa.string()), pa.chunked_array([broken]))

    rewrite(root, 1, spoiled)
    ran = run("replay", "validate", root, "--level", "full", "--json")
    assert (ran.status, ran.json["counts"].get("RPL016")) == (1, 1)


def test_a_file_of_two_tasks(whole: Made, tmp_path: Path) -> None:
    root = tmp_path / "index"
    shutil.copytree(whole.index, root)
    said = manifest(root)
    twice = said["files"][0] | {"task_id": len(said["files"])}
    said["files"].append(twice)
    said["tasks"] += 1
    said["documents"] += twice["documents"]
    put(root, said)
    assert validate(open_place(root), Asked(full=True)).counts["RPL022"] == 1


def test_a_path_outside_is_no_file_of_the_index(whole: Made, tmp_path: Path) -> None:
    root = tmp_path / "index"
    shutil.copytree(whole.index, root)
    said = manifest(root)
    said["files"][0]["path"] = "../../../secret-000000.parquet"
    put(root, said)
    with HubServer({"me/index": served(root)}) as hub:
        for place in (root, f"{hub.url}/datasets/me/index/resolve/main"):
            ran = run("replay", "validate", place, "--level", "full", "--json")
            assert (ran.status, ran.json["counts"].get("RPL012")) == (1, 1)
