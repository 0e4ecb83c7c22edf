"""Orders as run files name them: one table a kind, with the parameters that kind has and no others.

`corpus` names a [[corpus]] of the run file and may be left out where there is only one. A seed that is left out is the
run's, or else the one that the system whose order it is would use.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec

Positive = Annotated[int, msgspec.Meta(ge=1)]
NotNegative = Annotated[int, msgspec.Meta(ge=0)]
Name = Annotated[str, msgspec.Meta(min_length=1)]
Weight = Annotated[float, msgspec.Meta(ge=0)]
RowTokens = Annotated[int, msgspec.Meta(ge=1, description="Input tokens of a sample.")]
RowAhead = Annotated[
    int, msgspec.Meta(ge=0, le=1, description="1: a sample has the token after its last input, for its last label.")
]
CorpusName = Annotated[Name, msgspec.Meta(description="A [[corpus]] of this file; left out, the only one.")]
Seed = Annotated[int, msgspec.Meta(ge=0, description="Left out: the run's, else the system's own.")]


class OrderTable(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, omit_defaults=True, tag_field="kind"
):
    """An order: frozen, no unknown keys, told by its `kind`."""


class Stream(OrderTable, frozen=True, kw_only=True, tag="stream"):
    """`stream@1`: the corpus end to end in rows, in stored order."""

    corpus: CorpusName | None = None
    row_tokens: RowTokens
    row_ahead: RowAhead = 1


class BlockIO(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A shuffle that lets storage read ranges: whole blocks of neighbouring windows, several together."""

    block: Annotated[int, msgspec.Meta(ge=1, description="Neighbouring windows of a block: one read.")]
    together: Annotated[int, msgspec.Meta(ge=1, description="Blocks shuffled together.")] = 16


class Windows(OrderTable, frozen=True, kw_only=True, tag="windows"):
    """`windows@1`: rows under a keyed permutation, once an epoch."""

    corpus: CorpusName | None = None
    row_tokens: RowTokens
    row_ahead: RowAhead = 1
    seed: Seed | None = None
    epochs: Annotated[int, msgspec.Meta(ge=0, description="0 is endless.")] = 1
    io: BlockIO | None = None


class Packed(OrderTable, frozen=True, kw_only=True, tag="packed"):
    """`packed@1`: documents in rows by a policy; docs/packing.md says what each does and costs."""

    corpus: CorpusName | None = None
    row_tokens: RowTokens
    policy: Annotated[
        str,
        msgspec.Meta(
            min_length=1,
            description="concat, bestfit, firstfit, one-per-row, truncate, crop, bos-aligned, levanter-greedy, decompose; or flat.",
        ),
    ]
    oversize: (
        Annotated[
            Literal["split", "truncate", "drop", "error", "wait"],
            msgspec.Meta(
                description="What becomes of a document longer than a row; said wherever it can happen. wait: crop's alone."
            ),
        ]
        | None
    ) = None
    open_rows: Annotated[int, msgspec.Meta(ge=1, description="firstfit: rows filled at a time.")] | None = None
    buffer: Annotated[int, msgspec.Meta(ge=1, description="crop: documents to choose from.")] | None = None
    refill: Annotated[int, msgspec.Meta(ge=1, description="crop: documents read at a time.")] | None = None
    segments: (
        Annotated[int, msgspec.Meta(ge=0, description="levanter-greedy: most documents of a row; 0 is any number.")]
        | None
    ) = None
    keep: (
        Annotated[
            Literal["first", "last"], msgspec.Meta(description="levanter-greedy: what stays of a truncated document.")
        ]
        | None
    ) = None
    longest: Annotated[int, msgspec.Meta(ge=1, description="bos-aligned: most tokens of a document.")] | None = None
    shortest: Annotated[int, msgspec.Meta(ge=1, description="decompose: the least power of two.")] | None = None
    tail: (
        Annotated[
            Literal["pad", "drop"],
            msgspec.Meta(description="concat (pad), crop and bos-aligned (drop): a last row that is not full."),
        ]
        | None
    ) = None
    seed: Seed | None = None
    shuffle: (
        Annotated[bool, msgspec.Meta(description="Rows under a keyed permutation; left out, unless compat.")] | None
    ) = None
    epochs: Annotated[int, msgspec.Meta(ge=0, description="0 is endless.")] = 1
    io: BlockIO | None = None
    cut: (
        Annotated[Name, msgspec.Meta(description="A key of metadata: true where a document's end is not its real one.")]
        | None
    ) = None
    compat: (
        Annotated[
            Literal["hobbylm", "nanochat", "modded-nanogpt"],
            msgspec.Meta(description="Rows shared among ranks as there: with concat, crop, bos-aligned."),
        ]
        | None
    ) = None
    ranks: Annotated[int, msgspec.Meta(ge=1, description="With compat: sample k * ranks + r is row k of r.")] | None = (
        None
    )
    group: Annotated[int, msgspec.Meta(ge=1, description="nanochat: documents that a rank takes at a time.")] | None = (
        None
    )


class LlmcStreamTable(OrderTable, frozen=True, kw_only=True, tag="llmc-stream"):
    """`llmc-stream@1`: llm.c's loader."""

    corpus: CorpusName | None = None
    row_tokens: RowTokens
    batch: Annotated[int, msgspec.Meta(ge=1, description="Rows of one process.")]
    world: Positive = 1
    shuffle: bool = False
    seed: Seed | None = None
    steps: Positive | None = None


class HobbyStreamTable(OrderTable, frozen=True, kw_only=True, tag="hobbylm-stream"):
    """`hobbylm-stream@1`: HobbyLM's loader."""

    corpus: CorpusName | None = None
    row_tokens: RowTokens
    batch: Annotated[int, msgspec.Meta(ge=1, description="Rows of one rank.")]
    world: Positive = 1
    walk: Literal["sorted", "shuffled", "stratified"] = "sorted"
    seed: Seed | None = None
    steps: Positive | None = None


class Nanogpt(OrderTable, frozen=True, kw_only=True, tag="nanogpt"):
    """`nanogpt@1`: the windows that nanoGPT draws."""

    corpus: CorpusName | None = None
    row_tokens: RowTokens
    batch: Annotated[int, msgspec.Meta(ge=1, description="Rows of one rank.")]
    world: Positive = 1
    seed: Seed | None = None
    skip: Annotated[int, msgspec.Meta(ge=0, description="Words drawn before the first batch.")] = 0
    accumulate: Positive = 1
    eval_interval: NotNegative = 0
    eval_iters: NotNegative = 0
    eval_tokens: NotNegative = 0
    first_iteration: NotNegative = 0
    wide: Literal[268435456, 4294967296] = 268435456
    steps: Positive | None = None


class Megatron(OrderTable, frozen=True, kw_only=True, tag="megatron"):
    """`megatron@1`: one split of one corpus as Megatron-Core's GPTDataset reads it."""

    corpus: CorpusName | None = None
    row_tokens: RowTokens
    samples: Annotated[int, msgspec.Meta(ge=0, description="Samples asked for; left out, one epoch.")] | None = None
    seed: Seed | None = None
    split: Annotated[str, msgspec.Meta(description="Megatron's --split, such as 99,1,0.")] = "1"
    part: Literal["train", "valid", "test"] = "train"
    row_ahead: RowAhead = 1
    keep_partial: bool = False
    compat: list[str] = []


class MegatronFiles(OrderTable, frozen=True, kw_only=True, tag="megatron-files"):
    """`megatron-files@1`: the order that index files give, whoever made them."""

    corpus: CorpusName | None = None
    folder: Annotated[Name, msgspec.Meta(description="Where the files are.")]
    name: (
        Annotated[
            Name,
            msgspec.Meta(description="What their names begin with, the hash; needed where the folder has several."),
        ]
        | None
    ) = None
    row_tokens: RowTokens
    row_ahead: RowAhead = 1
    unit: Annotated[
        Literal["sequence", "document"],
        msgspec.Meta(description="What the document index counts: Megatron's sequences, or MaxText's documents."),
    ] = "sequence"


class MaxTextNpy(OrderTable, frozen=True, kw_only=True, tag="maxtext-npy"):
    """`maxtext-npy@1`: one dataset as MaxText's mmap_npy reads it."""

    corpus: (
        Annotated[CorpusName | list[Name], msgspec.Meta(description="One, or several in MaxText's order.")] | None
    ) = None
    row_tokens: RowTokens
    samples: Annotated[int, msgspec.Meta(ge=1, description="Steps times batch.")] | None = None
    epochs: Annotated[int, msgspec.Meta(ge=1, description="The builder's --num-epochs.")] | None = None
    num_epoch: Positive = 1
    seed: Seed | None = None
    split: Annotated[str, msgspec.Meta(description="mmap_npy_split, such as 99,1.")] = ""
    split_index: NotNegative = 0


class MaxTextMmap(OrderTable, frozen=True, kw_only=True, tag="maxtext-mmap"):
    """`maxtext-mmap@1`: one dataset as MaxText's direct mmap mode reads it."""

    corpus: (
        Annotated[CorpusName | list[Name], msgspec.Meta(description="One, or several in MaxText's order.")] | None
    ) = None
    row_tokens: RowTokens
    seed: Seed | None = None
    shuffled: Annotated[bool, msgspec.Meta(description="enable_data_shuffling; evaluation never shuffles.")] = True
    epochs: Annotated[int, msgspec.Meta(ge=1, description="num_epoch.")] = 1
    compat: list[str] = []


class Member(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One member of a blend."""

    corpus: Name
    weight: Weight


class MaxTextBlend(OrderTable, frozen=True, kw_only=True, tag="maxtext-npy-blend"):
    """`maxtext-npy-blend@1`: MaxText's blend of mmap_npy datasets."""

    member: Annotated[list[Member], msgspec.Meta(min_length=1)]
    row_tokens: RowTokens
    samples: Annotated[int, msgspec.Meta(ge=1, description="Steps times batch.")] | None = None
    num_epoch: Positive = 1
    seed: Seed | None = None
    split: str = ""
    split_index: NotNegative = 0
    margin: Annotated[float, msgspec.Meta(ge=0, description="Percent.")] = 0.5
    blend_index_dir: (
        Annotated[Name, msgspec.Meta(description="Where a dispatch made elsewhere is; it decides the order.")] | None
    ) = None
    blend_cache_dir: Annotated[Name, msgspec.Meta(description="Where the dispatch is kept.")] | None = None
    evaluation: Annotated[bool, msgspec.Meta(description="Files of the dispatch are named eval, not train.")] = False
    compat: list[str] = []


class MaxTextMmapMix(OrderTable, frozen=True, kw_only=True, tag="maxtext-mmap-mix"):
    """`maxtext-mmap-mix@1`: MaxText's mixture of direct datasets; it depends on the number of hosts."""

    member: Annotated[list[Member], msgspec.Meta(min_length=1)]
    row_tokens: RowTokens
    hosts: Positive = 1
    seed: Seed | None = None
    shuffled: bool = True
    epochs: Positive = 1
    compat: list[str] = []


class MegatronMember(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One member of Megatron's blend."""

    corpus: Name
    weight: Annotated[float, msgspec.Meta(ge=0, description="In all members or in none.")] | None = None


class MegatronBlendTable(OrderTable, frozen=True, kw_only=True, tag="megatron-blend"):
    """`megatron-blend@1`: Megatron-Core's blend. Without weights every member counts by its length."""

    member: Annotated[list[MegatronMember], msgspec.Meta(min_length=1)]
    row_tokens: RowTokens
    samples: Annotated[int, msgspec.Meta(ge=0, description="Left out, without weights: everything.")] | None = None
    seed: Seed | None = None
    split: Annotated[str, msgspec.Meta(description="Megatron's --split.")] = "1"
    part: Literal["train", "valid", "test"] = "train"
    per_split: Annotated[bool, msgspec.Meta(description="The prefixes are this part's alone; no split.")] = False
    surplus: Annotated[float, msgspec.Meta(ge=0, description="mid_level_dataset_surplus.")] = 0.005
    arithmetic: Annotated[
        Literal["x86", "fused"], msgspec.Meta(description="fused: as built by compilers for ARM.")
    ] = "x86"
    row_ahead: RowAhead = 1
    keep_partial: bool = False
    compat: list[str] = []


class MixComponent(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One component of a mixture: an order, and what happens at its end."""

    name: Name
    order: Annotated[dict[str, Any], msgspec.Meta(description="Any order of this file, with its kind.")]
    weight: Annotated[float, msgspec.Meta(ge=0, description="Where the mixture has no [[order.phase]].")] | None = None
    at_end: Literal["error", "stop", "repeat"] = "error"
    cap: Annotated[float, msgspec.Meta(gt=0, description="Passes over it in all.")] | None = None


class MixPhase(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The weights of a mixture from a sample, or a step, on."""

    sample: NotNegative | None = None
    step: Annotated[int, msgspec.Meta(ge=0, description="Converted with the schedule.")] | None = None
    weights: Annotated[dict[str, Weight], msgspec.Meta(description="By component; one that is not named rests.")]


class Mix(OrderTable, frozen=True, kw_only=True, tag="mix"):
    """`mix@1`: components by weight, exact in every block."""

    component: Annotated[list[MixComponent], msgspec.Meta(min_length=1)]
    phase: list[MixPhase] = []
    seed: Seed | None = None
    block: Annotated[int, msgspec.Meta(ge=1, le=1 << 20, description="Samples in which shares are exact.")] = 1024
    samples: NotNegative | None = None


class LevanterShuffleTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How Levanter shuffles every component."""

    kind: Annotated[
        Literal["none", "full", "era", "block"], msgspec.Meta(description="Levanter's false, true, number, config.")
    ] = "block"
    permutation: Annotated[
        Literal["feistel", "linear"], msgspec.Meta(description="linear: the default of older versions.")
    ] = "feistel"
    era_length: NotNegative = 0
    io_block: Positive = 256
    window_blocks: Positive = 512


class LevanterReplayTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What a Levanter run took from its environment."""

    threefry_partitionable: bool = True
    enable_x64: bool = False
    prng: str = "threefry2x32"
    python_sum: (
        Annotated[
            Literal["plain", "compensated"],
            msgspec.Meta(description="plain: Python 3.11 and older. Needed where it matters."),
        ]
        | None
    ) = None
    numpy_major: (
        Annotated[Literal[1, 2], msgspec.Meta(description="Of the linear permutation. Needed where it matters.")] | None
    ) = None


class LevanterComponentTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One component: a corpus, several one behind the other, or packed documents."""

    name: Name
    corpus: Annotated[CorpusName | list[Name], msgspec.Meta(description="One, or several, concatenated.")] | None = None
    order: (
        Annotated[dict[str, Any], msgspec.Meta(description="In place of streams: an order, such as packed.")] | None
    ) = None
    weight: Annotated[float, msgspec.Meta(ge=0, description="Where the mixture has no [[order.stage]].")] | None = None
    max_train_batches: (
        Annotated[int, msgspec.Meta(ge=1, description="Kept: so many batches of the schedule's first size.")] | None
    ) = None


class LevanterStage(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The weights from a sample, or a step, on."""

    sample: NotNegative | None = None
    step: Annotated[int, msgspec.Meta(ge=0, description="Converted with the schedule.")] | None = None
    weights: Annotated[
        Name | dict[str, Weight], msgspec.Meta(description="By component, or the name of weights under order.weights.")
    ]


class Levanter(OrderTable, frozen=True, kw_only=True, tag="levanter"):
    """`levanter@1`: Levanter's mixture of shuffled token sequences."""

    component: Annotated[list[LevanterComponentTable], msgspec.Meta(min_length=1)]
    stage: list[LevanterStage] = []
    weights: Annotated[dict[str, dict[str, Weight]], msgspec.Meta(description="Weights that stages name.")] = {}
    row_tokens: RowTokens
    block: Annotated[int, msgspec.Meta(ge=1, le=65535, description="mixture_block_size.")] = 2048
    seed: Annotated[int, msgspec.Meta(ge=0, description="The trainer's; left out: the run's, else 0.")] | None = None
    data_seed: Annotated[int, msgspec.Meta(ge=0, description="Left out is not 0.")] | None = None
    trainer: Literal["train_lm", "grug"] = "train_lm"
    shuffle: LevanterShuffleTable = msgspec.field(default_factory=LevanterShuffleTable)
    stop: Literal["restart", "first_exhausted", "all_exhausted"] = "restart"
    past_end: Annotated[
        Literal["error", "clamp"], msgspec.Meta(description="Where first_exhausted asks past a component's end.")
    ] = "error"
    randomized: bool = True
    launcher_normalises: Annotated[
        bool, msgspec.Meta(description="The launcher divided weights by their sum before Levanter did.")
    ] = False
    experiment_budget: Annotated[int, msgspec.Meta(ge=1, description="Simulated epoching, in tokens.")] | None = None
    target_budget: Positive | None = None
    replay: LevanterReplayTable = msgspec.field(default_factory=LevanterReplayTable)


AnyOrder = (
    Stream
    | Windows
    | Packed
    | LlmcStreamTable
    | HobbyStreamTable
    | Nanogpt
    | Megatron
    | MegatronFiles
    | MaxTextNpy
    | MaxTextBlend
    | MaxTextMmap
    | MaxTextMmapMix
    | MegatronBlendTable
    | Mix
    | Levanter
)


def component_order(component: MixComponent | LevanterComponentTable) -> AnyOrder:
    """Return a component's order as its type; `parse_run` has checked it."""
    order: AnyOrder = msgspec.convert(component.order, AnyOrder, strict=True)
    return order


def corpora_named(order: AnyOrder) -> list[str | None]:
    """Return the corpora an order names, in its order; None stands for the only one.

    >>> corpora_named(Stream(row_tokens=8))
    [None]
    """
    if isinstance(order, Mix):
        return [name for component in order.component for name in corpora_named(component_order(component))]
    if isinstance(order, Levanter):
        return [name for component in order.component for name in component_corpora(component)]
    if isinstance(order, MaxTextBlend | MaxTextMmapMix | MegatronBlendTable):
        return [member.corpus for member in order.member]
    if isinstance(order.corpus, list):
        return list(order.corpus)
    return [order.corpus]


def component_corpora(component: LevanterComponentTable) -> list[str | None]:
    """Return the corpora of a component of Levanter's mixture, in its order."""
    if component.order is not None:
        return corpora_named(component_order(component))
    return list(component.corpus) if isinstance(component.corpus, list) else [component.corpus]
