"""Sides of bench/pipeline.py. Ours runs the command; datatrove's has the same steps. Run as `python pipeline_sides.py SIDE [ENGINE_PATH]`.

What is easier for datatrove here than it would be: its words are split at whitespace, since its own splitter needs language models that are not
installed and is slower; exact duplicates are looked for within one worker only, by a set of SHA-256 (its own three passes read everything twice),
and 13-grams of words in a set of Python hashes (an index for its own filter is made with another package); it counts no tokens before it writes
them, and hashes, splits and reads nothing again. With an engine, its tokenizer step calls ours in place of the one it ships.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import unicodedata
from pathlib import Path
from typing import Any

from harness import serve

EOD = "<|endoftext|>"
WORKERS = 2
N = 13
LEAST_CHARACTERS, LEAST_QUALITY = 200, 0.05


def tokenreel(recipe: str, out: str, workers: int = WORKERS) -> dict[str, Any]:
    """Run `tokenreel build`, start-up, checksums and the final re-reading included."""
    command = [sys.executable, "-m", "tokenreel", "build", recipe, "--out", out, "--workers", str(workers), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"tokenreel build ended with {done.returncode}: {done.stdout}{done.stderr}")
    return dict(json.loads(done.stdout))


def staging(recipe: str, out: str, workers: int = WORKERS) -> dict[str, Any]:
    """Read, normalise, gate, hash and tokenise alone, into staged parts."""
    from tokenreel.build.staging_run import stage_all
    from tokenreel.build.staging_settings import choose_mixed, settle_mixed
    from tokenreel.config.mixed import load_mixed

    loaded, folder = load_mixed(recipe), Path(recipe).parent
    settings = settle_mixed(loaded, folder)
    engine = choose_mixed(loaded, folder, settings).name
    found = stage_all(loaded, folder, Path(out) / "stage", settings, engine=engine, workers=workers)
    return {"tokens": sum(one.totals.tokens_staged for one in found), "dropped": found[0].totals.dropped}


def exact_dedup(documents: int, seed: int = 1) -> dict[str, Any]:
    """Find first places among synthetic keys, two fifths of them duplicates; also how large the process became."""
    import tempfile

    import numpy as np

    from tokenreel.build.dedup import first_places

    def batches() -> Any:
        drawn = np.random.default_rng(seed)
        for low in range(0, documents, 1 << 20):
            count = min(1 << 20, documents - low)
            high = drawn.integers(0, max(1, documents * 9 // 10), count, dtype=np.uint64)
            # What stands for a document is its number, mixed: like a hash, its top bits are even.
            yield np.stack([high * np.uint64(0x9E3779B97F4A7C15), high ^ np.uint64(0xA5A5A5A5)], axis=1)

    first_places(iter([np.zeros((2, 2), np.uint64)]), 2)
    before = _peak()
    with tempfile.TemporaryDirectory() as folder:
        first = first_places(batches(), documents, Path(folder))
    grown = _peak() - before
    kept = int(np.count_nonzero(first == np.arange(documents, dtype=first.dtype)))
    return {"kept": kept, "bytes_each": grown / documents}


def _peak() -> int:
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


class Audit:
    """Counts documents that share an n-gram of words with the items."""

    def __init__(self, items: str) -> None:
        self.items = items
        self.grams: set[int] | None = None

    def __call__(self, document: Any) -> bool:
        if self.grams is None:
            self.grams = set()
            for line in Path(self.items).read_text().splitlines():
                words = json.loads(line)["text"].split()
                self.grams.update(hash(tuple(words[k : k + N])) for k in range(len(words) - N + 1))
        words = document.text.lower().split()
        document.metadata["flagged"] = any(
            hash(tuple(words[k : k + N])) in self.grams for k in range(len(words) - N + 1)
        )
        return True


class Once:
    """Lets every text pass once a worker."""

    def __init__(self) -> None:
        self.seen: set[bytes] = set()

    def __call__(self, document: Any) -> bool:
        key = hashlib.sha256(document.text.encode()).digest()[:16]
        new = key not in self.seen
        self.seen.add(key)
        return new


class Encoded:
    """What datatrove's tokenizer step takes from an encoding."""

    def __init__(self, ids: list[int]) -> None:
        self.ids = ids
        self.tokens = ids


class Engine:
    """Our engine, gigatoken, behind the calls that datatrove's tokenizer step makes."""

    def __init__(self, tokenizer: str, path: str) -> None:
        # Behind all that datatrove has: only what it lacks is taken from our environment.
        sys.path.append(path)
        import gigatoken

        self._tokenizer = gigatoken.Tokenizer.from_json(Path(tokenizer).read_text())

    def encode_batch(self, texts: list[str]) -> list[Encoded]:
        import awkward
        import pyarrow as pa

        rows = self._tokenizer.encode_batch(awkward.from_arrow(pa.array(texts, pa.large_string())), parallel=False)
        return [Encoded([*ids, 50256]) for ids in awkward.to_list(rows)]

    def get_vocab_size(self) -> int:
        return 50257

    def token_to_id(self, token: str) -> int:  # noqa: ARG002 (it asks for one alone)
        return 50256


def datatrove(source: str, tokenizer: str, items: str, out: str, engine: str = "") -> dict[str, Any]:
    """Reader, filters, dedup, audit, DocumentTokenizer under LocalPipelineExecutor."""
    from datatrove.executor import LocalPipelineExecutor
    from datatrove.pipeline.filters import GopherRepetitionFilter, LambdaFilter
    from datatrove.pipeline.readers import JsonlReader
    from datatrove.pipeline.tokens import DocumentTokenizer

    made: Any = DocumentTokenizer
    if engine:

        class WithEngine(DocumentTokenizer):  # type: ignore[misc]
            @property
            def tokenizer(self) -> Engine:
                if "engine" not in self.__dict__:
                    self.__dict__["engine"] = Engine(self.tokenizer_name_or_path, engine)
                found: Engine = self.__dict__["engine"]
                return found

        made = WithEngine
    tokens = made(
        f"{out}/tokens", tokenizer, eos_token=EOD, save_filename="part", batch_size=1000, shuffle_documents=False
    )
    LocalPipelineExecutor(
        pipeline=[
            JsonlReader(source, glob_pattern="*.jsonl"),
            LambdaFilter(_good_enough),
            GopherRepetitionFilter(),
            LambdaFilter(Once()),
            LambdaFilter(Audit(items)),
            tokens,
        ],
        tasks=WORKERS,
        workers=WORKERS,
        logging_dir=f"{out}/logs",
    ).run()
    return {"tokens": sum(path.stat().st_size for path in Path(out).glob("tokens/**/*.ds")) // 2}


def _words(text: str, _language: str) -> list[str]:
    return text.split()


def _good_enough(document: Any) -> bool:
    # The first step of every worker process: the splitter of the next one is replaced here.
    from datatrove.pipeline.filters import gopher_repetition_filter

    gopher_repetition_filter.split_into_words = _words
    document.text = unicodedata.normalize("NFC", document.text)
    return len(document.text) >= LEAST_CHARACTERS and document.metadata["quality"] >= LEAST_QUALITY


def main() -> None:
    os.environ["HF_HUB_OFFLINE"] = "1"
    if sys.argv[1] == "datatrove":
        engine = sys.argv[2] if len(sys.argv) > 2 else ""

        def build(source: str, tokenizer: str, items: str, out: str) -> dict[str, Any]:
            Path(out).mkdir(parents=True)
            return datatrove(source, tokenizer, items, out, engine=engine)

        serve({"build": build})
    else:
        serve({"build": tokenreel, "staging": staging, "exact_dedup": exact_dedup})


if __name__ == "__main__":
    main()
