"""The settings of a MaxText job that decide what it reads, checked together, and the orders they stand for."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, cast

from tokenreel.errors import TokenError, UsageError, nearest
from tokenreel.order.maxtext_plan import EVAL, TRAIN, EvalPlan, eval_plan, split_range, train_samples
from tokenreel.order.maxtext_spec import FileSpec, FileType, parse_files

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from tokenreel.order.maxtext_blend import MaxTextBlendOrder
    from tokenreel.order.maxtext_joined import Tables
    from tokenreel.order.maxtext_mmap import MaxTextMmapOrder
    from tokenreel.order.maxtext_mmap_mix import MaxTextMmapMixOrder
    from tokenreel.order.maxtext_npy import MaxTextNpyOrder

    MaxTextOrder = MaxTextNpyOrder | MaxTextBlendOrder | MaxTextMmapOrder | MaxTextMmapMixOrder

WITHOUT_EFFECT = frozenset(
    {
        "dataset_type", "train_data_columns", "eval_data_columns", "grain_train_mixture_config_path",
        "grain_use_elastic_iterator", "grain_worker_count", "grain_worker_count_eval", "grain_per_worker_buffer_size",
        "grain_per_worker_buffer_size_eval", "grain_num_threads", "grain_num_threads_eval",
        "grain_prefetch_buffer_size", "grain_prefetch_buffer_size_eval", "grain_ram_budget_mb",
        "grain_data_source_max_workers",
    }
)  # fmt: skip
"""Settings that may be given and change nothing that is read: some are checked, workers and buffers are not needed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MaxTextInput:
    """What a MaxText job reads, under the names and with the defaults of its configuration. Make it with `read_settings`.

    The elastic iterator, workers and thread counts are not here: every order resumes on any number of hosts.
    """

    grain_file_type: FileType
    grain_train_files: str
    max_target_length: int
    global_batch_size_to_load: int
    grain_eval_files: str = ""
    global_batch_size_to_load_eval: int = 0
    """0: as in training."""
    steps: int = -1
    eval_interval: int = -1
    eval_steps: int = -1
    data_shuffle_seed: int = 0
    enable_data_shuffling: bool = True
    num_epoch: int = 1
    mmap_npy_split: str = ""
    mmap_eod_id: int = 0
    mmap_split_sentences: bool = False
    blend_cache_dir: str = ""
    blend_index_dir: str = ""
    reset_attention_mask: bool = True
    eod_mask_loss: bool = False
    packing_max_segments_per_sample: int = 25

    @property
    def train(self) -> FileSpec:
        """The datasets of training."""
        return parse_files(self.grain_train_files, self.grain_file_type)

    @property
    def evaluation(self) -> FileSpec | None:
        """The datasets of evaluation, None where there is none."""
        return parse_files(self.grain_eval_files, self.grain_file_type) if self.grain_eval_files else None

    @property
    def samples(self) -> int | None:
        """Samples that training asks for, None where it has no steps."""
        return train_samples(self.steps, self.global_batch_size_to_load)

    @property
    def eval(self) -> EvalPlan:
        """Rounds and samples of evaluation."""
        batch = self.global_batch_size_to_load_eval or self.global_batch_size_to_load
        return eval_plan(self.steps, self.eval_interval, self.eval_steps, batch)


def read_settings(given: Mapping[str, object]) -> MaxTextInput:
    """Return a job's settings, checked before any file is touched; values may be text, as on a command line.

    Raises `UsageError`: ORD076 for another kind of data set, ORD080 and ORD082 without files to train or evaluate on,
    ORD081 for a mixture file, ORD087 for a setting that is unknown or missing, ORD088 for several data columns, ORD089
    for a value of another type, ORD091 for a split in direct mode, ORD002 for one out of range, and all of `parse_files`.

    >>> job = read_settings(
    ...     {
    ...         "grain_file_type": "mmap",
    ...         "grain_train_files": "/d/a",
    ...         "max_target_length": "8",
    ...         "global_batch_size_to_load": 4,
    ...         "steps": 10,
    ...     }
    ... )
    >>> job.samples, job.eod_mask_loss
    (40, False)
    """
    _check_sources(given)
    known = {field.name: field for field in fields(MaxTextInput)}
    values: dict[str, object] = {}
    for name, value in given.items():
        if name in known:
            values[name] = _converted(name, value, str(known[name].type))
        elif name not in WITHOUT_EFFECT:
            near = nearest(name, [*known, *WITHOUT_EFFECT])
            hint = f"did you mean {near}?" if near else None
            raise UsageError("ORD087", name, expected="a setting of the mmap file types", found=name, hint=hint)
    for name in ("max_target_length", "global_batch_size_to_load"):
        if name not in values:
            raise UsageError("ORD087", f"{name} is missing", expected=name)
    job = MaxTextInput(**values)  # type: ignore[arg-type]
    _check_numbers(job)
    if job.eval_interval > 0 and not job.grain_eval_files:
        raise UsageError("ORD082", expected="grain_eval_files", found="nothing")
    if job.mmap_npy_split:
        if job.grain_file_type == "mmap":
            raise UsageError("ORD091", expected="no mmap_npy_split", found=repr(job.mmap_npy_split))
        split_range(job.mmap_npy_split, EVAL if job.grain_eval_files else TRAIN, 1)
    _ = job.train, job.evaluation
    return job


def _check_sources(given: Mapping[str, object]) -> None:
    kind = given.get("dataset_type", "grain")
    if kind != "grain":
        raise UsageError("ORD076", "dataset_type", expected="grain", found=kind)
    if given.get("grain_file_type") not in ("mmap", "mmap_npy"):
        raise UsageError("ORD076", "grain_file_type", expected="mmap_npy or mmap", found=given.get("grain_file_type"))
    if given.get("grain_train_mixture_config_path"):
        hint = "write the mixture inline: grain_train_files='spec,weight;spec,weight'"
        raise UsageError("ORD081", found=given["grain_train_mixture_config_path"], hint=hint)
    if not given.get("grain_train_files"):
        raise UsageError("ORD080", expected="grain_train_files", found="nothing")
    for name in ("train_data_columns", "eval_data_columns"):
        columns = given.get(name, ["text"])
        if isinstance(columns, list | tuple) and len(columns) != 1:
            raise UsageError("ORD088", name, expected="one column", found=list(columns))


def _check_numbers(job: MaxTextInput) -> None:
    """Refuse what MaxText does not check and fails on later, or reads something else by."""
    low = {"max_target_length": 1, "global_batch_size_to_load": 1, "num_epoch": 1}
    low |= {"global_batch_size_to_load_eval": 0, "packing_max_segments_per_sample": 0}
    for name, least in low.items():
        value = getattr(job, name)
        if value < least:
            raise UsageError("ORD002", name, expected=f"{least} or more", found=value)
    if not 0 <= job.data_shuffle_seed < 1 << 32:
        raise UsageError("ORD002", "data_shuffle_seed", expected="0 .. 2**32 - 1", found=job.data_shuffle_seed)
    if job.max_target_length >= (1 << 31) - 1:
        raise UsageError("ORD002", "max_target_length", expected="below 2**31 - 1", found=job.max_target_length)


def _converted(name: str, value: object, kind: str) -> object:
    if kind == "int" and not isinstance(value, bool):
        try:
            return int(cast("str", value)) if isinstance(value, int | str) else _refuse(name, value, "an integer")
        except ValueError:
            _refuse(name, value, "an integer")
    if kind == "bool":
        known = {"true": True, "false": False, "1": True, "0": False}
        found = known.get(str(value).lower())
        return _refuse(name, value, "true or false") if found is None else found
    return value if isinstance(value, str) else _refuse(name, value, "an integer" if kind == "int" else "text")


def _refuse(name: str, value: object, expected: str) -> object:
    raise UsageError("ORD089", name, expected=expected, found=repr(value))


# ---- data against settings -----------------------------------------------------------------------------------------


def check_sentences(documents: int, sequences: int, split_sentences: bool, path: object = None) -> None:
    """Raise `UsageError` (ORD090) for data of several sequences a document where `mmap_split_sentences` is not set.

    Only ``mmap_npy`` asks: the windows of direct mode are the same either way.
    """
    if not split_sentences and documents != sequences:
        hint = "set mmap_split_sentences=true"
        found = f"{documents} documents of {sequences} sequences"
        raise UsageError("ORD090", path=path, expected="one sequence a document", found=found, hint=hint)


def check_eod(eod: int, largest: int, *, path: object = None) -> None:
    """Raise `TokenError` (ORD092) for an EOD id that cannot occur: `largest` is the dtype's or vocabulary's last id."""
    if not 0 <= eod <= largest:
        raise TokenError("ORD092", "mmap_eod_id", path=path, expected=f"0 .. {largest}", found=eod)


# ---- orders --------------------------------------------------------------------------------------------------------


def train_order(
    job: MaxTextInput, tables: Sequence[Tables | None], *, hosts: int = 1, compat: Collection[str] = ()
) -> MaxTextOrder:
    """Return the order training reads; one entry of `tables` for each of ``job.train.components``, None for weight 0.

    An entry is a table of documents, or a list of them in `sorted_prefixes` order. `hosts` matters to direct mixtures
    only. Prepare what is returned. Raises as the orders' own `over`.
    """
    return _order(job, job.train, tables, TRAIN, hosts, compat)


def eval_order(
    job: MaxTextInput, tables: Sequence[Tables | None], *, hosts: int = 1, compat: Collection[str] = ()
) -> MaxTextOrder:
    """Return the order evaluation reads, each round from its start; raises `UsageError` (ORD082) where there is none."""
    spec = job.evaluation
    if spec is None:
        raise UsageError("ORD082", expected="grain_eval_files", found="nothing")
    return _order(job, spec, tables, EVAL, hosts, compat)


def _order(
    job: MaxTextInput, spec: FileSpec, tables: Sequence[Tables | None], part: int, hosts: int, compat: Collection[str]
) -> MaxTextOrder:
    from tokenreel.order.maxtext_blend import MaxTextBlendOrder, weighted
    from tokenreel.order.maxtext_mmap import MaxTextMmapOrder
    from tokenreel.order.maxtext_mmap_mix import MaxTextMmapMixOrder
    from tokenreel.order.maxtext_npy import MaxTextNpyOrder

    weights = [component.weight for component in spec.components]
    own = {"runtime-weights"} & set(compat)
    _, read = weighted(tables, weights, compat=own)
    length, seed = job.max_target_length, job.data_shuffle_seed
    if job.grain_file_type == "mmap":
        shuffled = job.enable_data_shuffling and part == TRAIN
        epochs = job.num_epoch if part == TRAIN else 1
        if len(read) == 1:
            return MaxTextMmapOrder.over(
                read[0], length, seed=seed, shuffled=shuffled, epochs=epochs, compat=set(compat) - own
            )
        return MaxTextMmapMixOrder.over(
            tables, weights, length, hosts=hosts, seed=seed, shuffled=shuffled, epochs=epochs, compat=compat
        )
    samples = job.samples if part == TRAIN else job.eval.samples
    num_epoch = job.num_epoch if part == TRAIN else 1
    split, index = job.mmap_npy_split, part if job.mmap_npy_split else 0
    if not spec.mixture:
        return MaxTextNpyOrder.over(
            read[0], length, seed=seed, samples=samples, num_epoch=num_epoch, split=split, split_index=index
        )
    blend = MaxTextBlendOrder.over(
        tables,
        weights,
        length,
        seed=seed,
        samples=samples,
        num_epoch=num_epoch,
        split=split,
        split_index=index,
        compat=own,
    )
    # One dataset that is left is read as it is, MaxText dispatches nothing; it was built for a blend's buffer.
    return blend.children[0] if len(blend.children) == 1 else blend
