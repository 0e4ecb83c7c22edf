"""The act of the demo about formats: five formats and back, proved the same; two historic bugs found and mended."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

    from tokenreel.corpus.corpus import Corpus
    from tokenreel.demo.acts import Stage
    from tokenreel.verify.report import Report

FOLDER = "formats"
THROUGH = ("llmc-v1", "datatrove", "olmo-uint16", "mds", "litdata")
"""None of them needs more than the core."""
SLICE = 6
"""Documents of a slice that was indexed as one document."""


def formats(stage: Stage) -> dict[str, Any]:
    """Convert the validation split through five formats and back; break HobbyLM's tables as history did, and mend them."""
    from tokenreel.convert import convert
    from tokenreel.corpus.opening import open_corpus

    folder = stage.folder / FOLDER
    shutil.rmtree(folder, ignore_errors=True)
    source: Path = stage.corpus / "validation"
    corpus = open_corpus(source)
    recorded = corpus.recorded_identity.get("validation") or corpus.identity().digest
    stage.say(f"identity of validation, as recorded: {recorded}")
    same = []
    for name in THROUGH:
        out = convert(source, folder / name, to=name, workers=stage.workers)
        back = convert(folder / name, folder / f"{name}-back", to="megatron-v1", workers=stage.workers)
        same.append(out.identity == back.identity == recorded)
        word = "the same identity, there and back" if same[-1] else f"ANOTHER: {out.identity}, {back.identity}"
        stage.say(f"$ tokenreel convert corpus/validation formats/{name} --to {name}")
        stage.say(f"  {word}")
    mended = _historic(stage, corpus, folder / "hobbylm")
    corpus.close()
    return {"formats": list(THROUGH), "identity": recorded, "same": all(same), "mended": mended}


def _historic(stage: Stage, corpus: Corpus, folder: Path) -> dict[str, Any]:
    """Write a replay shard with each of its two wrong tables, verify, repair, and compare the documents."""
    import numpy as np

    from tokenreel.convert import repair
    from tokenreel.corpus.opening import open_corpus
    from tokenreel.formats import Boundary
    from tokenreel.formats.llmc_write import open_writer
    from tokenreel.formats.writing import WriteOptions
    from tokenreel.verify import verify

    (separator,) = corpus.boundary.suffix
    documents = [[separator, *corpus.content(i).tolist()] for i in range(min(len(corpus), 3 * SLICE))]
    lengths = np.array([len(document) for document in documents], dtype=np.int64)
    ids = np.array([value for document in documents for value in document], dtype=np.uint16)
    slices = [int(lengths[at : at + SLICE].sum()) for at in range(0, len(documents), SLICE)]
    wrong = {
        "slices indexed as documents": [sum(slices[:k]) for k in range(len(slices))],
        "offsets overwritten by metadata": [8_000_000 * (k + 1) for k in range(len(slices))],
    }
    out = {}
    for number, (bug, offsets) in enumerate(wrong.items(), 1):
        place = folder / str(number)
        writer = open_writer(place, "replay_000000", WriteOptions("uint16", Boundary((separator,), ())))
        writer.add_documents(ids, lengths)
        writer.finish()
        rows = [
            {"shard": "replay_000000.bin", "offset": offset, "length": length}
            for offset, length in zip(offsets, slices, strict=True)
        ]
        (place / "replay_index.json").write_text(json.dumps(rows))
        boundary = f"prefix={separator}"
        found: Report = verify(place, boundary=boundary)
        stage.say(f"HobbyLM's bug {number}, {bug}: {', '.join(sorted(found.counts)) or 'nothing found'}")
        mended = repair(place, folder / f"{number}-mended", boundary=boundary)
        whole = [ids.tolist() for ids in open_corpus(folder / f"{number}-mended", boundary=boundary)] == documents
        stage.say(
            f"  $ tokenreel repair: {len(rows)} entries, {mended.tables[0].documents} documents now; {mended.verified}"
        )
        out[bug] = {"found": sorted(found.counts), "documents": mended.tables[0].documents, "whole": whole}
    return out
