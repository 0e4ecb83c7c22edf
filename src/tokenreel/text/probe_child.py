"""The child process of a probe: loads one engine, encodes, writes the ids. Run as ``python -m`` by the probe only."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tokenreel.errors import TokenreelError
from tokenreel.text.engines import Candidate, Encoder
from tokenreel.text.tokenizer import tokenizer_from_bytes

if TYPE_CHECKING:
    from tokenreel.text.spec import SpecialInText


def main(request: Path, folder: Path) -> None:
    """Answer one order: ``result.json`` is written last, so a child that died has none."""
    order = json.loads((folder / "order.json").read_text("utf-8"))
    result: dict[str, Any] = {}
    try:
        _say(folder, "loading")
        tok = tokenizer_from_bytes((request / "tokenizer").read_bytes(), name=order["tokenizer"])
        candidate = Candidate(order["name"], order["factory"])
        engine = candidate.open(tok, special=order["special"])
        mode: SpecialInText = "special" if order["special"] else "text"
        encoder = Encoder(tok, engine, candidate.name, candidate.version() or "", mode)
        _say(folder, "encoding a first text")
        encoder.encode(["a"])  # imports and tables are start-up, not speed
        # The sample first: its time is that of an engine with nothing in its caches.
        for part in ("sample", "probe"):
            _say(folder, f"encoding the {part}")
            texts = _texts(request / f"{part}.arrow")
            begin = time.process_time()
            ids, lengths = encoder.encode(texts)
            if part == "sample":
                result["seconds"] = time.process_time() - begin
            np.save(folder / f"{part}-ids.npy", ids, allow_pickle=False)
            np.save(folder / f"{part}-lengths.npy", lengths, allow_pickle=False)
    except TokenreelError as error:
        result["error"] = error.message or str(error)
    (folder / "result.json").write_text(json.dumps(result), "utf-8")


def _say(folder: Path, stage: str) -> None:
    (folder / "stage").write_text(stage, "ascii")


def _texts(path: Path) -> Any:
    import pyarrow as pa

    with pa.OSFile(str(path)) as source, pa.ipc.open_file(source) as reader:
        return reader.read_all().column("text")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
