"""From a command's choices to an index: what the input is, how documents are named, what goes beside them."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from tokenreel.errors import ReplayError, TokenreelError, UsageError
from tokenreel.hashing import sha256_file
from tokenreel.replay import metadata as meta
from tokenreel.replay.assignments import read_assignments
from tokenreel.replay.build import IndexPlan, build_index, made_from
from tokenreel.replay.documents import TextShape, corpus_documents, grouped, text_documents, text_files
from tokenreel.store.jsonio import loads_strict
from tokenreel.text.normalise import Normaliser

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from tokenreel.corpus.corpus import Corpus
    from tokenreel.replay.documents import Documents
    from tokenreel.replay.trace import Traced
    from tokenreel.text import Tokenizer

KINDS = ("text", "normalised", "tokens")
NORMALISERS = {
    "none": Normaliser(),
    "nfc": Normaliser("nfc"),
    "marin": Normaliser("marin"),
    "marin-columnar": Normaliser("marin", "columnar"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Choices:
    """What was asked for, besides input, buckets and output."""

    ids: str | None = None
    normalise: str = "none"
    tokenizer: Path | None = None
    source: str | None = None
    text: str = "text"
    id_field: str | None = None
    source_field: str | None = None
    sources: Path | None = None
    mix: Path | None = None
    task_documents: int | None = None


def make_index(
    inputs: Sequence[Path],
    buckets: Path,
    out: Path,
    choices: Choices = Choices(),
    progress: Callable[[int, int | None, int], None] | None = None,
) -> meta.Manifest:
    """Build the index of a corpus or of files of text; raises what reading and `build_index` raise."""
    normalise = NORMALISERS.get(choices.normalise)
    if normalise is None:
        raise UsageError("USE003", "--normalise", expected=", ".join(NORMALISERS), found=choices.normalise)
    if choices.ids not in (None, *KINDS):
        raise UsageError("USE003", "--ids", expected=", ".join(KINDS), found=choices.ids)
    if choices.task_documents is not None and choices.task_documents < 1:
        raise UsageError("USE003", "--task-documents", expected="1 or more", found=choices.task_documents)
    corpus = _corpus(inputs)
    tasks: Iterable[Iterator[Documents]]
    if corpus is not None:
        kind = choices.ids or ("text" if normalise.kind == "none" else "normalised")
        if kind == "text" and normalise.kind != "none":
            raise ReplayError("RPL005", "ids of exact texts", expected="--normalise none", found=choices.normalise)
        tokenizer = _tokenizer(corpus, choices, kind)
        tasks = corpus_documents(corpus, kind, normalise, choices.source, tokenizer)
        facts: object = _facts(corpus, tokenizer)
    else:
        kind = choices.ids or ("text" if normalise.kind == "none" else "normalised")
        if kind == "tokens":
            raise ReplayError("RPL005", "ids of tokens", expected="a tokenised corpus", found="text")
        files = text_files(inputs)
        shape = TextShape(choices.text, choices.id_field, choices.source_field, choices.source or "text")
        tasks = (text_documents(file, shape, normalise) for file in files)
        facts = [sha256_file(file) for file in files]
    if choices.task_documents is not None:
        tasks = grouped(chain.from_iterable(tasks), choices.task_documents)
    beside = [sha256_file(path) for path in (buckets, choices.sources, choices.mix) if path is not None]
    words = {key: str(value) for key, value in asdict(choices).items() if key not in ("sources", "mix", "tokenizer")}
    plan = IndexPlan(
        made_from=made_from(facts, beside, words, kind),
        id_kind=kind,
        normalise=normalise,
        sources=None if choices.sources is None else meta.parse_sources(_json(choices.sources)),
        mix=meta.Mix() if choices.mix is None else meta.parse_mix(_json(choices.mix)),
    )
    return build_index(tasks, read_assignments(buckets), out, plan, progress)


def index_of_ledger(
    traced: Traced, ledger: Path, out: Path, buckets: Path | None, task_documents: int
) -> meta.Manifest:
    """Build the index of what a ledger's steps read, each document once, in the order of their first token read.

    Without `buckets` all documents are in bucket 0. Raises `ReplayError` (RPL053) where ids are not recorded.
    """
    from tokenreel.replay.assignments import Assignments
    from tokenreel.replay.ledgers import consumed_documents, read_ledger

    steps = read_ledger(ledger)
    assignments = Assignments("", "any", {}, default=0) if buckets is None else read_assignments(buckets)
    beside = [sha256_file(path) for path in (ledger, buckets) if path is not None]
    plan = IndexPlan(made_from=made_from("ledger", beside, task_documents), id_kind="text", normalise=Normaliser())
    return build_index(grouped(consumed_documents(traced, steps), task_documents), assignments, out, plan)


def _corpus(inputs: Sequence[Path]) -> Corpus | None:
    """Return the corpus that one path names, or None where the paths name text."""
    from tokenreel.corpus.opening import open_corpus

    if len(inputs) != 1:
        return None
    try:
        corpus = open_corpus(inputs[0])
    except TokenreelError as error:
        if error.code in ("DOC006", "FLT001", "STO001") and inputs[0].exists():
            return None
        raise
    if corpus.splits:
        names = ", ".join(f"{inputs[0]}/{name}" for name in corpus.splits)
        raise ReplayError("RPL005", "a corpus with splits", path=inputs[0], expected=f"one of them: {names}")
    return corpus


def _json(path: Path) -> object:
    from tokenreel.store import LocalStore

    parsed: object = loads_strict(LocalStore(path.parent).read(path.name), path)
    return parsed


def _facts(corpus: Corpus, tokenizer: Tokenizer | None) -> list[object]:
    """Return what the rows of a corpus's index follow from: its contents, its rows, and what decodes it."""
    key, rows = corpus.table().key, Path(corpus.store.root) / "documents.parquet"
    # A key that is a hash of tables knows lengths alone.
    contents = [] if key.kind == "identity" else [corpus.identity().digest]
    recorded = sha256_file(rows) if rows.is_file() else None
    return [key.as_list(), contents, recorded, None if tokenizer is None else tokenizer.sha256]


def _tokenizer(corpus: Corpus, choices: Choices, kind: str) -> Tokenizer | None:
    from tokenreel.text import load_tokenizer

    if kind != "normalised":
        return None
    if choices.tokenizer is not None:
        return load_tokenizer(str(choices.tokenizer))
    inside = Path(corpus.store.root) / "tokenizer.json"
    if inside.is_file():
        return load_tokenizer(str(inside))
    said = (corpus.manifest.tokenizer or {}) if corpus.manifest is not None else {}
    return load_tokenizer("bytes") if said.get("kind") == "bytes" else None
