"""`RowPolicy`: how a sample is laid out as a row, and which arrays a batch then holds.

Two kinds are ours: ``plain`` (ids and labels) and ``documents`` (documents kept apart by masks, positions and segment ids, all
of it from extents and the edges of documents, never from a token id). Three are declared compatibility with other systems,
which look for an id: ``megatron``, ``maxtext``, ``levanter``. Their arrays bear the names that those systems use.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from tokenreel.errors import RecipeError, nearest

if TYPE_CHECKING:
    import numpy as np

HINT = "tokenreel schema run"

_OPTIONS: dict[str, tuple[str, ...]] = {
    "plain": ("loss_mask", "pad_id", "ignore_index"),
    "documents": (
        "pad_id", "ignore_index", "positions", "segments", "ends", "end_id", "weights", "cu_seqlens",
        "cu_seqlens_length", "attention",
    ),
    "megatron": (
        "eod", "pad", "specials", "reset_position_ids", "reset_attention_mask", "eod_mask_loss",
        "create_attention_mask", "inter_document_masking", "allow_ambiguous_pad_tokens",
    ),
    "maxtext": ("eod", "reset_attention_mask", "eod_mask_loss", "packing_max_segments_per_sample", "direct"),
    "levanter": ("eod", "block_cross_document_attention", "packed"),
}  # fmt: skip
KINDS = tuple(_OPTIONS)

_CHOICES = {
    "positions": ("reset", "running", "offset"),
    "segments": ("one", "zero"),
    "ends": ("mask", "next", "token"),
    "cu_seqlens": ("none", "rows", "batch"),
    "attention": ("none", "mask", "bias"),
}
_INTEGERS = {
    "pad_id", "ignore_index", "end_id", "cu_seqlens_length", "eod", "pad", "packing_max_segments_per_sample",
}  # fmt: skip
_OPTIONAL = {"end_id", "cu_seqlens_length", "eod", "specials", "reset_attention_mask"}
_DEFAULT_EOD = {"maxtext": 0}


@dataclass(frozen=True, slots=True, kw_only=True)
class RowPolicy:
    """How samples become rows. An option that its kind does not have is refused (`RecipeError`, RCP041).

    >>> RowPolicy(kind="documents", cu_seqlens="rows").arrays()
    ('input_ids', 'labels', 'loss_mask', 'position_ids', 'segment_ids', 'cu_seqlens', 'max_seqlen')
    """

    kind: str
    """One of `KINDS`."""
    loss_mask: bool = False
    """plain: a loss mask too."""
    pad_id: int = 0
    """plain, documents: the input where a sample is shorter than its row."""
    ignore_index: int = -100
    """plain, documents: the label where there is none."""
    positions: str = "reset"
    """documents: ``reset`` counts from 0 in every piece of a document, ``running`` over the row, ``offset`` in the document."""
    segments: str = "one"
    """documents: numbers of the pieces of a row from ``one`` with 0 for padding, or from ``zero`` with -1 for padding."""
    ends: str = "mask"
    """documents: the label at a document's end is none (``mask``), the row's next id (``next``), or `end_id` (``token``)."""
    end_id: int | None = None
    weights: bool = False
    """documents: the loss mask holds the weights of tokens and documents where a corpus has them."""
    cu_seqlens: str = "none"
    """documents: edges of the pieces of each row (``rows``) or of all rows end to end (``batch``)."""
    cu_seqlens_length: int | None = None
    """documents: entries of `cu_seqlens`, filled up with its last; rows take ``row_tokens + 1`` where it is left out."""
    attention: str = "none"
    """documents: a dense ``mask`` (True may attend) or ``bias`` (0 and -inf). Memory grows with the square of the row."""
    eod: int | None = None
    """megatron, maxtext, levanter: the id that ends a document. MaxText's is 0 unless set."""
    pad: int = -1
    """megatron: the tokenizer's pad id; -1 stands for none."""
    specials: tuple[int, ...] | None = None
    """megatron: special ids that make a pad id ambiguous; `eod` where it is left out."""
    reset_position_ids: bool = False
    reset_attention_mask: bool | None = None
    """megatron: False unless set; maxtext: True unless set."""
    eod_mask_loss: bool = False
    create_attention_mask: bool = False
    """megatron: a dense mask in every sample (True is masked out); without it `reset_attention_mask` does nothing."""
    inter_document_masking: bool = False
    allow_ambiguous_pad_tokens: bool = False
    packing_max_segments_per_sample: int = 25
    """maxtext: short segments are joined to about this many; 0 keeps every boundary."""
    direct: bool = False
    """maxtext: rows of ``grain_file_type=mmap`` (no look-ahead), not of ``mmap_npy``."""
    block_cross_document_attention: bool = True
    """levanter: segment ids from `eod`."""
    packed: bool = False
    """levanter: segment ids are numbers of documents, as its greedy packing gives them."""

    def __post_init__(self) -> None:
        if self.kind not in _OPTIONS:
            near = nearest(self.kind, KINDS)
            message = f"row_policy: there is no {self.kind!r}" + (f"; did you mean {near!r}?" if near else "")
            raise RecipeError("RCP040", message, expected=", ".join(KINDS), found=self.kind, hint=HINT)
        mine = _OPTIONS[self.kind]
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name != "kind" and field.name not in mine and value != field.default:
                expected = ", ".join(mine)
                raise RecipeError(
                    "RCP041", f"row_policy.{field.name}: {self.kind} has none", expected=expected, hint=HINT
                )
            _check(field.name, value)
        if "reset_attention_mask" in mine and self.reset_attention_mask is None:
            object.__setattr__(self, "reset_attention_mask", self.kind == "maxtext")
        if self.eod is None and self.kind in _DEFAULT_EOD:
            object.__setattr__(self, "eod", _DEFAULT_EOD[self.kind])
        self._check_together()

    def _check_together(self) -> None:
        if (self.ends == "token") != (self.end_id is not None):
            found = f"ends = {self.ends!r}, end_id = {self.end_id}"
            raise RecipeError(
                "RCP041", "row_policy: end_id", expected='end_id where ends = "token"', found=found, hint=HINT
            )
        if self.cu_seqlens_length is not None and (self.cu_seqlens == "none" or self.cu_seqlens_length < 2):
            found = f"cu_seqlens = {self.cu_seqlens!r}, {self.cu_seqlens_length}"
            expected = "2 or more, with cu_seqlens"
            raise RecipeError("RCP041", "row_policy.cu_seqlens_length", expected=expected, found=found, hint=HINT)
        wants = [
            name for name in ("reset_position_ids", "reset_attention_mask", "eod_mask_loss") if getattr(self, name)
        ]
        if self.kind == "megatron" and wants and self.eod is None:
            raise RecipeError(
                "RCP041", f"row_policy.{wants[0]}", expected="eod, the id that ends a document", hint=HINT
            )
        if self.kind == "levanter" and self.packed and self.eod is not None:
            raise RecipeError("RCP041", "row_policy.packed", expected="no eod: documents are numbered", hint=HINT)

    def arrays(self) -> tuple[str, ...]:
        """Return the names of the arrays that a batch holds, in the order of their systems."""
        if self.kind == "plain":
            return ("input_ids", "labels", *(("loss_mask",) if self.loss_mask else ()))
        if self.kind == "documents":
            edges = ("cu_seqlens", "max_seqlen") if self.cu_seqlens != "none" else ()
            dense = {"none": (), "mask": ("attention_mask",), "bias": ("attention_bias",)}[self.attention]
            return ("input_ids", "labels", "loss_mask", "position_ids", "segment_ids", *edges, *dense)
        if self.kind == "megatron":
            if self.inter_document_masking:
                return ("tokens", "labels", "loss_mask", "position_ids", "cu_seqlens", "max_seqlen")
            mask = ("attention_mask",) if self.create_attention_mask else ()
            return ("tokens", "labels", *mask, "loss_mask", "position_ids")
        if self.kind == "maxtext":
            names = ("inputs", "targets")
            return names + tuple(f"{name}_{what}" for what in ("segmentation", "position") for name in names)
        return ("tokens", "loss_weight", *(("segment_ids",) if self.has_segments else ()))

    @property
    def ids_name(self) -> str:
        """Name of the array that holds inputs."""
        return self.arrays()[0]

    @property
    def labels_name(self) -> str | None:
        """Name of the array that holds labels; None where there is none."""
        return next((name for name in self.arrays() if name in ("labels", "targets")), None)

    @property
    def mask_name(self) -> str | None:
        """Name of the array that says which labels count; None where labels say it themselves."""
        masks = ("loss_mask", "loss_weight", "targets_segmentation")
        return next((name for name in self.arrays() if name in masks), None)

    @property
    def has_segments(self) -> bool:
        """Whether levanter's rows have segment ids."""
        return self.packed or (self.eod is not None and self.block_cross_document_attention)

    @property
    def by_document(self) -> bool:
        """Whether every extent has to lie in one document: unresolved ones are then split at document edges."""
        return self.kind == "documents" or self.packed

    @property
    def pad_in_use(self) -> int:
        """megatron: the pad id that counts: -1 where `pad` is one of the special ids and that is not allowed."""
        specials = self.specials if self.specials is not None else (self.eod,)
        return -1 if self.pad in specials and not self.allow_ambiguous_pad_tokens else self.pad

    def layout(
        self, samples: int, row_tokens: int, dtype: Any = "int32"
    ) -> dict[str, tuple[tuple[int, ...], np.dtype[Any]]]:
        """Return shape and dtype of every array of a batch: what buffers must be.

        `cu_seqlens` of a whole batch has no fixed length unless `cu_seqlens_length` says one: here it is the greatest
        that can be, and a batch holds the part it uses.
        """
        import numpy as np

        rows, square = (samples, row_tokens), (samples, 1, row_tokens, row_tokens)
        ids, i32, f32 = np.dtype(dtype), np.dtype(np.int32), np.dtype(np.float32)
        by_row = self.kind == "megatron" or self.cu_seqlens == "rows"
        edges = self.cu_seqlens_length or (row_tokens if by_row else samples * row_tokens) + 1
        special = {
            "loss_mask": (rows, f32),
            "loss_weight": (rows, f32),
            "segment_ids": (rows, i32),
            "cu_seqlens": ((samples, edges) if by_row else (edges,), i32),
            "max_seqlen": ((samples,) if by_row else (), i32),
            "attention_mask": (square, np.dtype(bool)),
            "attention_bias": (square, f32),
        }
        return {name: special.get(name, (rows, ids)) for name in self.arrays()}

    def as_dict(self) -> dict[str, object]:
        """Return kind and all options of the kind, in their declared order: JSON-able, what states and ledgers keep."""
        said: dict[str, object] = {"kind": self.kind}
        for name in _OPTIONS[self.kind]:
            value = getattr(self, name)
            said[name] = list(value) if isinstance(value, tuple) else value
        return said


def row_policy(said: str | Mapping[str, object] | RowPolicy) -> RowPolicy:
    """Return a policy from a run file's `row_policy`: a kind, or a table with `kind` and options.

    Raises `RecipeError`: RCP003 an option that no kind has, RCP004 a value of the wrong type, RCP040 an unknown kind, RCP041
    options that do not go together.

    >>> row_policy("plain").arrays()
    ('input_ids', 'labels')
    >>> row_policy({"kind": "megatron", "eod": 0, "reset_positions_ids": True})
    Traceback (most recent call last):
    tokenreel.errors.RecipeError: RCP003 unknown key row_policy.reset_positions_ids; did you mean reset_position_ids? ...
    """
    if isinstance(said, RowPolicy):
        return said
    if isinstance(said, str):
        return RowPolicy(kind=said)
    table: Any = said
    if not isinstance(table, Mapping) or not isinstance(table.get("kind"), str):
        expected = f"a kind ({', '.join(KINDS)}), or a table with one"
        raise RecipeError("RCP004", "row_policy", expected=expected, found=str(said), hint=HINT)
    known = {field.name for field in fields(RowPolicy)}
    values: dict[str, Any] = dict(said)
    for name in values:
        if name not in known:
            mine = ["kind", *_OPTIONS.get(str(said["kind"]), ())]
            near = nearest(str(name), mine)
            message = f"unknown key row_policy.{name}" + (f"; did you mean {near}?" if near else "")
            hint = f"write {near} in place of {name}" if near else HINT
            raise RecipeError("RCP003", message, expected=", ".join(mine), found=str(name), hint=hint)
    if isinstance(values.get("specials"), list):
        values["specials"] = tuple(values["specials"])
    return RowPolicy(**values)


def _check(name: str, value: object) -> None:
    """Raise `RecipeError` (RCP004) unless an option holds what it may."""
    if value is None and name in _OPTIONAL:
        return
    expected: str | None = None
    if name in _CHOICES:
        expected = None if value in _CHOICES[name] else ", ".join(_CHOICES[name])
    elif name in _INTEGERS:
        expected = None if _is_id(value) else "an integer that fits 32 bits"
        if name == "packing_max_segments_per_sample" and expected is None and int(str(value)) < 0:
            expected = "0 or more"
    elif name == "specials":
        right = isinstance(value, tuple) and all(_is_id(item) for item in value)
        expected = None if right else "a list of ids"
    elif name != "kind" and not isinstance(value, bool):
        expected = "true or false"
    if expected is not None:
        raise RecipeError("RCP004", f"row_policy.{name}", expected=expected, found=str(value), hint=HINT)


def _is_id(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and -(1 << 31) <= value < 1 << 31
