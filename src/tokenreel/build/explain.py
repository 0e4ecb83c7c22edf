"""What became of a document: the stage, the rule and the value that dropped it, or where it is.

Looked for in everything that a build leaves: lists of dropped documents (``*.dropped.arrow``, below ``stage`` and
``stages``), staged parts, and ``documents.parquet`` with the lists of what is in it (``*.kept.parquet``). A document is named by its id (32 hex digits: XXH3-128 of its final
text, or the first 16 bytes of the text's SHA-256 while it is staged), by its upstream id, or by ``INPUT#RECORD``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import numpy as np

from tokenreel.build.staging_receipt import receipt_at
from tokenreel.corpus.documents import DOCUMENTS
from tokenreel.errors import SourceError, StorageError, require
from tokenreel.store.atomic import read_error

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import numpy.typing as npt

KEPT = "kept"
DROPPED_SUFFIX, KEPT_SUFFIX = ".dropped.arrow", ".kept.parquet"
_HEX = re.compile(r"[0-9a-fA-F]{32}")


@dataclass(frozen=True, slots=True)
class Fate:
    """What one stage did with a document."""

    stage: str
    """``normalise``, ``documents``, ``gate``, ``min_tokens``, ``dedup``, ...; ``staged`` and ``corpus`` are where it is kept."""
    rule: str
    value: str
    source: str
    input: str
    """Path of its input, as recorded; empty where it is not known any more."""
    record: int | None
    upstream_id: str | None
    id: str | None
    """32 hex digits."""

    @property
    def dropped(self) -> bool:
        """Whether the document went here."""
        return self.rule != KEPT

    def as_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "stage": self.stage,
            "rule": self.rule,
            "value": self.value,
            "dropped": self.dropped,
            "source": self.source,
            "input": self.input,
            "record": self.record,
            "upstream_id": self.upstream_id,
            "id": self.id,
        }

    def line(self) -> str:
        """Return a line for a terminal."""
        who = f"{self.source}: {self.input}#{self.record}" if self.record is not None else self.source
        name = f" ({self.upstream_id})" if self.upstream_id else ""
        what = f"kept: {self.value}" if not self.dropped else f"dropped by {self.rule}: found {self.value or 'nothing'}"
        return f"{who}{name}: {self.stage}: {what}"


def explain(out: Path, identity: str) -> list[Fate]:
    """Return everything that is recorded of a document in a build's folder, where it was dropped last of all.

    Several documents may have one id: each is there. Raises `SourceError` (SRC031) where nothing is recorded of it,
    `StorageError` (STO001, STO002). Cost: reads two columns of every staged part and list, about 10 ms a million rows.
    """
    if not out.is_dir():
        raise StorageError("STO001", path=out, expected="a folder that was built", hint=f"ls {out}")
    wanted = _Wanted.of(identity)
    found = [*_in_parquet(out, wanted), *_in_stage(out, wanted), *_in_lists(out, wanted)]
    if not found:
        raise _unknown(out, wanted)
    return found


def _unknown(out: Path, wanted: _Wanted) -> SourceError:
    """Return the error for a document that nothing names; it says of which inputs documents are named."""
    receipts = [receipt for path in _receipts(out) if (receipt := receipt_at(path)) is not None]
    message = ""
    if wanted.input is not None and receipts:
        mine = [receipt for receipt in receipts if receipt.path == wanted.input]
        message = "no part is of this input: it was not read, or is spelled otherwise"
        if mine:
            seen = max(receipt.docs_seen for receipt in mine)
            message = f"{seen:,} documents of this input were seen"
            message += "; then its source's budget was reached" if any(one.reached for one in mine) else ""
    return SourceError(
        "SRC031",
        message,
        path=out,
        expected="an id of 32 hex digits, an upstream id, or INPUT#RECORD",
        found=wanted.text,
        hint=f"tokenreel build RECIPE --explain '{receipts[0].path}#0'" if receipts else f"ls {out}",
    )


def _receipts(out: Path) -> list[Path]:
    return sorted(path for name in ("stages", "stage") for path in (out / name).glob("*/part-*.json"))


@dataclass(frozen=True, slots=True)
class _Wanted:
    """A document as it was asked for."""

    text: str
    id: bytes | None
    input: str | None
    record: int
    kept: frozenset[int] = frozenset()
    """Rows of ``documents.parquet`` that it is, by its input."""

    @classmethod
    def of(cls, text: str) -> _Wanted:
        """Return what a word may stand for: all of it is looked for."""
        name, mark, number = text.rpartition("#")
        by_record = bool(mark) and number.isdecimal()
        return cls(
            text,
            bytes.fromhex(text) if _HEX.fullmatch(text) else None,
            name if by_record else None,
            int(number) if by_record else -1,
        )

    def rows(self, table: Any, names: tuple[str, ...], path: str) -> list[dict[str, Any]]:
        """Return the rows of a table that are it: by one of the columns `names`, upstream id, or record of `path`."""
        import pyarrow as pa
        import pyarrow.compute as pc

        masks = [pc.fill_null(pc.equal(table.column("upstream_id"), pa.scalar(self.text, pa.string())), False)]
        if self.id is not None:
            key = pa.scalar(self.id, pa.binary(16))
            masks += [pc.fill_null(pc.equal(table.column(name), key), False) for name in names]
        if self.input is not None and self.input == path:
            masks.append(pc.equal(table.column("record"), self.record))
        if self.kept and "row" in table.schema.names:
            masks.append(pc.is_in(table.column("row"), pa.array(sorted(self.kept), pa.int64())))
        mask = masks[0]
        for one in masks[1:]:
            mask = pc.or_(mask, one)
        rows: list[dict[str, Any]] = table.filter(mask).to_pylist()
        return rows


def _open(path: Path, columns: tuple[str, ...]) -> Any:
    pa = require("pyarrow", extra="build")
    try:
        return pa.ipc.open_file(pa.memory_map(str(path))).read_all().select(list(columns))
    except OSError as error:
        raise read_error(path, error) from error


def _place(path: Path) -> tuple[str, str]:
    """Return (source, input) of a file of a part, from the receipt beside it; of any other list, its folder's name."""
    receipt = receipt_at(path.parent / f"{path.name.split('.')[0]}.json")
    return (unquote(path.parent.name), "") if receipt is None else (receipt.source, receipt.path)


def _in_stage(out: Path, wanted: _Wanted) -> Iterator[Fate]:
    for path in sorted((out / "stage").glob("*/part-*.arrow")):
        receipt = receipt_at(path.with_suffix(".json"))
        if path.name.endswith(DROPPED_SUFFIX) or receipt is None:
            continue
        table = _open(path, ("id", "doc", "upstream_id", "record", "full_tokens", "ids"))
        for row in wanted.rows(table, ("id", "doc"), receipt.path):
            tokens, full = len(row["ids"]), row["full_tokens"]
            value = f"{tokens} tokens" if tokens == full else f"{tokens} tokens, the first of {full}"
            yield _fate("staged", KEPT, value, receipt.source, receipt.path, row, row["doc"])


def _in_lists(out: Path, wanted: _Wanted) -> Iterator[Fate]:
    for path in sorted(out.rglob(f"*{DROPPED_SUFFIX}")):
        source, place = _place(path)
        table = _open(path, ("record", "upstream_id", "id", "stage", "rule", "value"))
        for row in wanted.rows(table, ("id",), place):
            yield _fate(row["stage"], row["rule"], row["value"], source, place, row, row["id"])


def _in_parquet(out: Path, wanted: _Wanted) -> Iterator[Fate]:
    if not (out / DOCUMENTS).is_file():
        return
    parquet = require("pyarrow.parquet", extra="build")
    with parquet.ParquetFile(out / DOCUMENTS) as file:
        have = [
            name
            for name in ("id", "upstream_id", "source", "split", "shard", "index", "length")
            if name in file.schema_arrow.names
        ]
        if "id" not in have or "upstream_id" not in have:
            return
        asked = replace(wanted, kept=frozenset(_kept_rows(out, wanted)))
        found, at = [], 0
        for batch in file.iter_batches(columns=have):
            numbers = np.arange(at, at + batch.num_rows)
            found += asked.rows(batch.append_column("row", numbers), ("id",), "")
            at += batch.num_rows
    places = _places(out, {row["row"] for row in found})
    for row in found:
        split = f"{row.get('split')}, " if row.get("split") else ""
        value = f"{row.get('length')} tokens, {split}{row.get('shard')} document {row.get('index')}"
        place, record = places.get(row["row"], ("", None))
        yield _fate("corpus", KEPT, value, str(row.get("source", "")), place, {**row, "record": record}, row["id"])


def _kept_rows(out: Path, wanted: _Wanted) -> Iterator[int]:
    """Yield the rows of ``documents.parquet`` that came from the input and record asked for."""
    if wanted.input is None:
        return
    for path in sorted(out.rglob(f"*{KEPT_SUFFIX}")):
        if _place(path)[1] == wanted.input:
            record, row = _kept(path)
            yield from row[record == wanted.record].tolist()


def _places(out: Path, rows: set[int]) -> dict[int, tuple[str, int]]:
    """Return (input, record) of rows of ``documents.parquet``, where lists of what is kept name them."""
    places: dict[int, tuple[str, int]] = {}
    wanted = np.array(sorted(rows), np.int64)
    for path in sorted(out.rglob(f"*{KEPT_SUFFIX}")) if rows else ():
        record, row = _kept(path)
        mine = np.flatnonzero(np.isin(row, wanted))
        places |= {int(row[k]): (_place(path)[1], int(record[k])) for k in mine}
    return places


def _kept(path: Path) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    table = require("pyarrow.parquet", extra="build").read_table(path)
    return table.column("record").to_numpy(), table.column("row").to_numpy()


def _fate(stage: str, rule: str, value: str, source: str, place: str, row: dict[str, Any], name: bytes | None) -> Fate:
    return Fate(
        stage=stage,
        rule=rule,
        value=value,
        source=source,
        input=place,
        record=row.get("record"),
        upstream_id=row["upstream_id"],
        id=None if name is None else name.hex(),
    )
