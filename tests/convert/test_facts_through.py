"""What is known of documents survives every format: in its own place, or in documents.parquet beside it; verify agrees."""

from __future__ import annotations

import gzip
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tokenreel.convert import convert
from tokenreel.formats import FORMATS
from tokenreel.verify import verify

if TYPE_CHECKING:
    from collections.abc import Callable

GOLDEN = Path(__file__).parents[1] / "golden" / "olmo"
WRITTEN = [row.name for row in FORMATS if row.writes]


@pytest.fixture
def source(tmp_path: Path) -> Path:
    (tmp_path / "source").mkdir()
    shutil.copy(GOLDEN / "part-000-00000.npy", tmp_path / "source")
    shutil.copy(GOLDEN / "dolma-style-000.csv.gz", tmp_path / "source" / "part-000-00000.csv.gz")
    return tmp_path / "source"


@pytest.fixture
def table() -> Callable[[Path], bytes]:
    return lambda folder: b"".join(gzip.decompress(path.read_bytes()) for path in sorted(folder.glob("*.csv.gz")))


@pytest.mark.parametrize("name", WRITTEN)
def test_there_and_back(source: Path, tmp_path: Path, name: str, table: Callable[[Path], bytes]) -> None:
    convert(source, tmp_path / "there", to=name, boundary="suffix=50256")
    report = verify(tmp_path / "there", level="full")
    assert not [finding for finding in report.findings if finding.severity == "error"], report.findings
    assert not [finding for finding in verify(tmp_path / "there").findings if finding.severity == "error"]
    convert(tmp_path / "there", tmp_path / "back", to="olmo-uint16", dtype="uint16")
    have = [row.split(b",")[:4] for row in table(tmp_path / "back").splitlines()]
    assert have == [row.split(b",")[:4] for row in table(source).splitlines()]


def test_names_that_say_a_split(source: Path, tmp_path: Path) -> None:
    # modded-nanogpt looks for fineweb_train_*.bin
    convert(source, tmp_path / "there", to="llmc", boundary="suffix=50256", options={"name": "fineweb_train"})
    assert (tmp_path / "there" / "fineweb_train_000000.bin").is_file()
    report = verify(tmp_path / "there", level="full")
    assert not [finding for finding in report.findings if finding.severity == "error"], report.findings


@pytest.mark.parametrize("layout", ["sharded", "consolidated"])
def test_rows_name_a_levanter_store_as_its_reader_does(source: Path, tmp_path: Path, layout: str) -> None:
    convert(source, tmp_path / "there", to="levanter", boundary="suffix=50256", options={"layout": layout})
    rows = pq.read_table(tmp_path / "there" / "documents.parquet", columns=["shard"])
    names = {"sharded": "part-00000/input_ids", "consolidated": "input_ids"}
    assert set(rows.column("shard").to_pylist()) == {names[layout]}
    assert verify(tmp_path / "there", level="full").status == "ok"


@pytest.mark.parametrize("to", ["datatrove", "levanter", "llmc-v1"])
def test_a_document_that_its_id_does_not_name_is_found(tmp_path: Path, to: str) -> None:
    """Ids of kind tokens are hashes of what is between prefix and suffix: computed again, whatever records there are."""
    source = tmp_path / "source"
    write_parquet(source, [[5, 6, 2], [7, 2], [8, 9, 10, 2]])
    convert(source, tmp_path / "there", to=to, boundary="suffix=2")
    rows = pq.read_table(tmp_path / "there/documents.parquet")
    assert set(rows.column("kind").to_pylist()) == {"tokens"}
    assert verify(tmp_path / "there", level="full").status == "ok"
    ids = rows.column("id").to_pylist()
    swapped = rows.set_column(
        rows.schema.get_field_index("id"),
        rows.schema.field("id"),
        pa.array([ids[1], ids[0], ids[2]], rows.schema.field("id").type),
    )
    pq.write_table(swapped, tmp_path / "there/documents.parquet")
    found = verify(tmp_path / "there", level="full")
    assert found.counts["DOC027"] == 2


def write_parquet(folder: Path, documents: list[list[int]]) -> None:
    folder.mkdir()
    table = pa.table({"input_ids": pa.array(documents, pa.list_(pa.uint16())), "source": ["web"] * len(documents)})
    pq.write_table(table, folder / "a.parquet")
