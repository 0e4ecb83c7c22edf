"""Read the source of a finished corpus again, as its run configuration says: what ``verify --source`` compares with."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from tokenreel.build.blocks import InputBytes
from tokenreel.build.sources import read_records, settled_shape
from tokenreel.config.recipe import CHUNK_BYTES, SourceTable
from tokenreel.corpus.receipts import RunConfig, parse_as
from tokenreel.errors import ManifestError
from tokenreel.verify.sources import Reread

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterator

    from tokenreel.corpus.receipts import InputFile


def source_reader(
    corpus: str | os.PathLike[str], folder: str | os.PathLike[str]
) -> Callable[[InputFile], Iterator[Reread]] | None:
    """Return a function that yields an input's records, or None without ``run_config.json``.

    `folder` is the recipe's. Raises what reading raises, and `ManifestError` (MAN003) for a source that the
    configuration does not describe.
    """
    path = Path(corpus) / "run_config.json"
    if not path.is_file():
        return None
    config = parse_as(RunConfig, path.read_bytes(), path)
    tables = {str(facts.get("name")): facts for facts in config.sources}

    def read(listed: InputFile) -> Iterator[Reread]:
        facts = tables.get(str(listed.source))
        if facts is None:
            raise ManifestError("MAN003", f"source {listed.source!r} is not described", path=path)
        table = msgspec.convert({**facts, "paths": [listed.path]}, SourceTable)
        shape = settled_shape(table, listed.path)
        for records in read_records(InputBytes(Path(folder) / listed.path), shape, CHUNK_BYTES):
            records.check()
            sources = shape.constant if records.sources is None else records.sources
            yield Reread(records.texts.to_pylist(), records.ids, sources)

    return read
