"""What a target cannot hold, found before anything is written."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tokenreel.convert.framing import Exceptions, Separable, contents, plain, reframe
from tokenreel.convert.source import has_weights
from tokenreel.errors import DocumentError, TokenError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    import numpy as np
    import numpy.typing as npt

    from tokenreel.convert.source import Batch, Source
    from tokenreel.formats import Boundary
    from tokenreel.formats.writing import Holds

    Ids = npt.NDArray[np.integer[Any]]


@dataclass(frozen=True, slots=True)
class Target:
    """What is to be written, apart from where."""

    format: str
    holds: Holds
    dtype: str
    boundary: Boundary
    options: dict[str, object] = field(default_factory=dict)

    def reframes(self, source: Source) -> bool:
        """Return whether documents get another boundary than they have."""
        have = source.boundary
        return (have.prefix, have.suffix) != (self.boundary.prefix, self.boundary.suffix)


def choose_dtype(source: Source, holds: Holds, wanted: str | None, format_name: str) -> str:
    """Return the target's dtype: as asked, else the source's if the format has it, else the narrowest that surely fits.

    Raises `UsageError` (USE003) for one that the format does not have, or where sources differ and none is asked for.
    """
    import numpy as np

    if wanted is not None:
        try:
            name = np.dtype(wanted).name
        except TypeError:
            name = wanted
        if name not in holds.dtypes:
            raise UsageError(
                "USE003",
                f"--dtype: {format_name} has no such ids",
                expected=" or ".join(holds.dtypes),
                found=wanted,
                hint=f"--dtype {holds.dtypes[-1]}",
            )
        return name
    kinds = source.dtypes
    if len(kinds) > 1:
        raise UsageError(
            "USE003",
            "the sources differ in dtype: which one shall the target have?",
            expected=" or ".join(holds.dtypes),
            found=", ".join(kinds),
            hint=f"--dtype {holds.dtypes[-1]}",
        )
    if kinds[0] in holds.dtypes:
        return kinds[0]
    have = np.iinfo(kinds[0])
    for name in sorted(holds.dtypes, key=lambda one: np.dtype(one).itemsize):
        if np.iinfo(name).max >= have.max:
            return name
    # Signed ids of 32 bits go into unsigned ones, and ids of 64 bits into 32: what does not fit is refused later.
    return max(holds.dtypes, key=lambda one: int(np.iinfo(one).max))


def check_fit(
    source: Source, target: Target, accept: Collection[str] = (), progress: Callable[[int], None] | None = None
) -> Exceptions:
    """Raise what refuses the conversion, naming the document; return exceptions that the target cannot tell.

    Reads the ids only where something about them is in doubt. Raises `TokenError`: TOK010 an id that does not fit the
    dtype, TOK042 no separator for a format without tables, TOK043 separators that cannot be told apart, TOK044 a separator
    inside a document, TOK045 a document without one; `DocumentError`: DOC020 an empty document, DOC021 weights that the
    format does not hold (`accept` overrules it).
    """
    import numpy as np

    from tokenreel.corpus.scanning import separator_inside

    holds, boundary = target.holds, target.boundary
    if not source.documents:
        raise DocumentError("DOC022", path=source.corpora[0].path)
    _check_separators(source, target)
    if not holds.weights and "DOC021" not in accept and any(map(has_weights, source.corpora)):
        raise DocumentError(
            "DOC021",
            path=source.corpora[0].path,
            expected="a format that holds weights",
            found=target.format,
            hint="--accept DOC021",
        )
    reframes = target.reframes(source)
    exceptions = Exceptions()
    if not holds.empty and not reframes:
        _check_lengths(source, target)
    narrow = any(_narrower(kind, target.dtype) for kind in source.dtypes)
    scanned = not holds.inside and bool(boundary.prefix or boundary.suffix)
    if not (narrow or reframes or scanned or not holds.table):
        return exceptions
    separable = None if holds.table else Separable(boundary)
    for batch in source.batches(0, source.documents):
        ids, lengths = batch.ids, batch.lengths
        if reframes:
            if holds.table and holds.inside and (holds.empty or boundary.prefix or boundary.suffix):
                exceptions.add(contents(ids, lengths, source.boundary).lacking, batch.first)
            else:
                ids, lengths, found, _ = reframe(ids, lengths, source.boundary, boundary)
                exceptions.add(found.lacking, batch.first)
                if not holds.empty and not bool(lengths.all()):
                    raise _empty(source, target, batch.first + int((lengths == 0).argmax()))
        if narrow:
            _check_range(source, target, batch)
        if scanned and holds.table and len(lengths):
            edges = np.concatenate(([0], np.cumsum(lengths, dtype=np.int64)))
            inside = separator_inside(lambda begin, end, ids=ids: ids[begin:end], edges, boundary)  # type: ignore[misc]
            if inside is not None:
                raise _inseparable(source, target, batch.first + inside[0], inside=True)
        if separable is not None:
            wrong = separable.first_wrong(ids, lengths)
            if wrong is not None:
                raise _inseparable(source, target, batch.first + wrong[0], inside=wrong[1])
        if progress is not None:
            progress(len(batch.ids))
    return exceptions


def _check_separators(source: Source, target: Target) -> None:
    import numpy as np

    boundary = target.boundary
    largest = int(np.iinfo(target.dtype).max)
    for value in (*boundary.prefix, *boundary.suffix):
        if value > largest:
            raise TokenError(
                "TOK010", "an id of the boundary", path=source.corpora[0].path, expected=f"0..{largest}", found=value
            )
    if target.holds.table:
        return
    if not (boundary.prefix or boundary.suffix):
        raise TokenError(
            "TOK042",
            f"{target.format} has no table: something must stand between documents",
            path=source.corpora[0].path,
            hint="--to-boundary suffix=ID",
        )
    if not plain(boundary):
        raise TokenError(
            "TOK043",
            path=source.corpora[0].path,
            expected="a prefix and a suffix without a common id, neither overlapping itself",
            found=f"prefix {list(boundary.prefix)}, suffix {list(boundary.suffix)}",
            hint="--to-boundary suffix=ID",
        )


def _check_lengths(source: Source, target: Target) -> None:
    for first, lengths in source.blocks():
        if not bool(lengths.all()):
            raise _empty(source, target, first + int((lengths == 0).argmax()))


def _empty(source: Source, target: Target, document: int) -> DocumentError:
    return DocumentError(
        "DOC020",
        **source.place(document),
        expected="documents with an id at least",
        found=f"0 ids, and {target.format} holds no empty document",
        hint="--to-boundary suffix=ID",
    )


def _narrower(have: str, wanted: str) -> bool:
    import numpy as np

    return not np.can_cast(np.dtype(have), np.dtype(wanted), casting="safe")


def check_vocab(source: Source, vocab: int | None) -> None:
    """Raise `TokenError` (TOK041) for the first id that is not below a declared number of ids. Reads every id, where one is."""
    for batch in source.batches(0, source.documents if vocab is not None else 0):
        if vocab is None or not len(batch.ids) or 0 <= int(batch.ids.min()) <= int(batch.ids.max()) < vocab:
            continue
        at, document, within = _first(batch, (batch.ids < 0) | (batch.ids >= vocab))
        raise TokenError(
            "TOK041",
            f"token {within} of the document",
            **source.place(document),
            expected=f"ids below {vocab}",
            found=int(batch.ids[at]),
            hint="--vocab, as the tokenizer has it",
        )


def _first(batch: Batch, wrong: Any) -> tuple[int, int, int]:
    """Return where the first wrong id is in a batch, its document, and its place in that."""
    import numpy as np

    at = int(wrong.argmax())
    ends = np.cumsum(batch.lengths)
    document = int(np.searchsorted(ends, at, side="right"))
    return at, batch.first + document, at - int(ends[document] - batch.lengths[document])


def _check_range(source: Source, target: Target, batch: Batch) -> None:
    import numpy as np

    ids = batch.ids
    low, high = int(np.iinfo(target.dtype).min), int(np.iinfo(target.dtype).max)
    if not len(ids) or (int(ids.min()) >= low and int(ids.max()) <= high):
        return
    at, document, within = _first(batch, (ids < low) | (ids > high))
    raise TokenError(
        "TOK010",
        f"token {within} has id {int(ids[at])}, which does not fit {target.dtype}",
        **source.place(document),
        expected=f"{low}..{high}",
        found=int(ids[at]),
        hint=f"--dtype {target.holds.dtypes[-1]}",
    )


def _inseparable(source: Source, target: Target, document: int, *, inside: bool) -> TokenError:
    boundary = target.boundary
    said = f"prefix {list(boundary.prefix)}, suffix {list(boundary.suffix)}"
    return TokenError(
        "TOK044" if inside else "TOK045",
        f"{target.format} tells documents apart by {said}",
        **source.place(document),
        expected="a separator only at the ends" if inside else "a separator between it and the document before",
        found="one inside" if inside else "none",
        hint="--to megatron-v1, or another format with a table",
    )
