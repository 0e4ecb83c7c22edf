"""MaxText's spec strings, settings and file names: every way to be right and every way to be wrong."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.order.maxtext_reference import Lengths
from tokenreel.errors import OrderError, TokenError, TokenreelError, UsageError
from tokenreel.order.maxtext_blend import MaxTextBlendOrder
from tokenreel.order.maxtext_files import (
    BLEND_PAIR,
    check_dispatch,
    check_index,
    find_blend,
    find_index,
    index_hash,
    index_names,
)
from tokenreel.order.maxtext_mmap import MaxTextMmapOrder
from tokenreel.order.maxtext_mmap_mix import MaxTextMmapMixOrder
from tokenreel.order.maxtext_npy import MaxTextNpyOrder
from tokenreel.order.maxtext_plan import check_counts, split_range, split_shares
from tokenreel.order.maxtext_settings import (
    check_eod,
    check_sentences,
    eval_order,
    read_settings,
    train_order,
)
from tokenreel.order.maxtext_spec import (
    LARGEST_BLEND,
    DataSpec,
    check_weights,
    parse_datasets,
    parse_files,
    sorted_prefixes,
)

# ---- spec strings --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "mode", "code"),
    [
        ("/c", "mmap_npy", "ORD060"),
        ("/c|/d|/e", "mmap_npy", "ORD060"),
        ("", "mmap_npy", "ORD060"),
        ("/c|/a", "mmap", "ORD060"),
        ("/a:/b", "mmap", "ORD060"),
        ("a;b,1", "mmap", "ORD061"),
        ("a,1;", "mmap", "ORD061"),
        ("a,1;;b,1", "mmap", "ORD061"),
        (",1;b,1", "mmap", "ORD062"),
        (" ,1;b,1", "mmap", "ORD062"),
        ("a,x;b,1", "mmap", "ORD063"),
        ("a,;b,1", "mmap", "ORD063"),
        ("a,-1;b,2", "mmap", "ORD064"),
        ("a,0;b,0", "mmap", "ORD065"),
        ("a,1e308;b,1e308", "mmap", "ORD065"),
        ("a,nan;b,1", "mmap", "ORD066"),
        ("a,inf;b,1", "mmap", "ORD066"),
        ("", "mmap", "ORD067"),
        ("|/d", "mmap_npy", "ORD067"),
        ("/c|", "mmap_npy", "ORD067"),
        ("/c|/d:", "mmap_npy", "ORD067"),
        ("/c|/d::/e", "mmap_npy", "ORD067"),
        ("/c|,1;/c|/b,1", "mmap_npy", "ORD067"),
        ("gs://bucket/x", "mmap", "ORD069"),
        ("gs://bucket/x,1;/b,1", "mmap", "ORD069"),
        ("/c|/a:gs://bucket/x", "mmap_npy", "ORD069"),
        ("gs://bucket/c|/a", "mmap_npy", "ORD069"),
        ("/c|s3://bucket/x:/a", "mmap_npy", "ORD069"),
        ("/a", "arrayrecord", "ORD076"),
    ],
)
def test_spec_strings_that_cannot_be_read(text: str, mode: Any, code: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_files(text, mode)
    assert caught.value.code == code
    assert caught.value.exit_status == 2
    assert caught.value.found is not None


def test_a_url_is_refused_with_what_to_do() -> None:
    with pytest.raises(UsageError, match="mount the bucket"):
        parse_files("gs://bucket/data", "mmap")


def test_spec_strings() -> None:
    spec = parse_files(" /c | /d/a : /d/b ", "mmap_npy")
    assert not spec.mixture
    assert spec.components[0].spec == DataSpec(("/d/a", "/d/b"), "/c")
    assert parse_files("/c|/d,0.7", "mmap_npy").components[0].spec.paths == ("/d,0.7",)  # no ';', no weight
    mixture = parse_files("/c/a|/d/a,b, 0.7 ;/c/b|/d/b,0; /c/c|/d/c:/d/d,3e-1", "mmap_npy")
    assert mixture.mixture
    assert [c.weight for c in mixture.components] == [0.7, 0, 0.3]
    assert [c.position for c in mixture.positive] == [0, 2]
    assert mixture.components[0].spec.paths == ("/d/a,b",)
    assert mixture.components[2].spec == DataSpec(("/d/c", "/d/d"), "/c/c")


def test_builder_datasets() -> None:
    found = parse_datasets("/data/a,0.7; ;/data/b,0;/data/c,1;")
    assert [(c.spec.paths, c.weight, c.position) for c in found.components] == [
        (("/data/a",), 0.7, 0),
        (("/data/b",), 0.0, 1),
        (("/data/c",), 1.0, 2),
    ]
    for text, code in [
        ("", "ORD062"),
        (";;", "ORD062"),
        ("/a", "ORD061"),
        ("/a,1;/b,-1", "ORD064"),
        ("/a,0", "ORD065"),
    ]:
        with pytest.raises(UsageError) as caught:
            parse_datasets(text)
        assert caught.value.code == code


def test_a_blend_has_a_largest_number_of_datasets() -> None:
    check_weights([1.0] * LARGEST_BLEND + [0.0] * 10)
    with pytest.raises(UsageError) as caught:
        check_weights([1.0] * (LARGEST_BLEND + 1))
    assert caught.value.code == "ORD068"


# Parts are joined with ":": one that begins with "//" would make a URL of its neighbour.
PATHS = st.text("abc/_-.", min_size=1, max_size=8).filter(lambda path: not path.startswith("//"))


@given(st.lists(st.tuples(PATHS, st.lists(PATHS, min_size=1, max_size=3), st.floats(0.001, 9)), min_size=2, max_size=4))
def test_what_is_written_is_read(parts: list[tuple[str, list[str], float]]) -> None:
    text = ";".join(f"{folder}|{':'.join(paths)},{weight!r}" for folder, paths, weight in parts)
    found = parse_files(text, "mmap_npy").components
    assert [(c.spec.index_dir, list(c.spec.paths), c.weight) for c in found] == parts


# ---- prefixes ------------------------------------------------------------------------------------------------------

FILES = {"a.idx", "d/shard_2.idx", "d/shard_10.idx", "d/.part.idx", "d/x.bin", "e/readme"}


def names_in(path: str) -> list[str] | None:
    folder = path.rstrip("/") + "/"
    inside = [name.removeprefix(folder) for name in FILES if name.startswith(folder)]
    return inside or None


def prefixes(*paths: str) -> list[str]:
    return list(sorted_prefixes(paths, FILES.__contains__, names_in))


def test_prefixes_are_sorted_as_strings() -> None:
    assert prefixes("d", "a") == prefixes("a", "d/") == ["a", "d/shard_10", "d/shard_2"]


@pytest.mark.parametrize(
    ("paths", "code"), [(["b"], "ORD070"), (["e"], "ORD070"), (["a", "a"], "ORD071"), (["d", "d/shard_2"], "ORD071")]
)
def test_prefixes_that_are_not_there(paths: list[str], code: str) -> None:
    with pytest.raises(UsageError) as caught:
        prefixes(*paths)
    assert caught.value.code == code
    assert caught.value.where["path"] in {*paths, "d/shard_2"}


# ---- splits --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["a", "99/1", "99;1", "99,", "0,0", "-1,2", "nan,1", "inf,1", "1e308,1e308", ","])
def test_split_strings_that_cannot_be_read(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        split_shares(text)
    assert caught.value.code == "ORD072"


@given(st.lists(st.integers(0, 99), min_size=1, max_size=6).filter(any), st.integers(0, 10**6))
def test_splits_are_next_to_each_other(shares: list[int], documents: int) -> None:
    text = ",".join(map(str, shares))
    ranges = [split_range(text, k, documents) for k in range(len(shares))]
    assert ranges[0][0] == 0
    assert ranges[-1][1] == documents
    assert all(ranges[k][1] == ranges[k + 1][0] for k in range(len(shares) - 1))
    for index in (-1, len(shares)):
        with pytest.raises(UsageError) as caught:
            split_range(text, index, documents)
        assert caught.value.code == "ORD073"


def test_the_builder_takes_one_count() -> None:
    check_counts(5, None)
    check_counts(None, 5)
    for samples, epochs in [(None, None), (1, 1)]:
        with pytest.raises(UsageError) as caught:
            check_counts(samples, epochs)
        assert caught.value.code == "ORD078"


# ---- index files ---------------------------------------------------------------------------------------------------


def test_find_index() -> None:
    digest = index_hash(["/d/b", "/d/a"], 2, True, 0, 8, split="99,1", split_index=1)
    names = index_names(digest)
    assert len(digest) == 32
    assert len({names.metadata, *names.arrays}) == 4
    assert find_index(names.arrays, digest) == names
    assert find_index(names.arrays) == names
    assert find_index([*names.arrays, "ff-document_index.npy"]) == names  # the other set is not complete
    assert find_index(names.arrays[:2], digest) is None
    for held in ([], names.arrays[1:], [*names.arrays, *index_names("ff").arrays]):
        with pytest.raises(OrderError) as caught:
            find_index(held)
        assert caught.value.code == "ORD084"


def test_split_string_and_prefixes_enter_the_hash_as_spelled() -> None:
    base = {"epochs": 1, "separate": False, "seed": 0, "row_tokens": 8}
    hashes = [index_hash(["/d/a"], split=split, **base) for split in ("", "99,1", "0.99,0.01", " 99,1")]  # type: ignore[arg-type]
    hashes.append(index_hash(["/d//a"], **base))  # type: ignore[arg-type]
    assert len(set(hashes)) == 5


def pair(stem: str) -> list[str]:
    return [f"{stem}{name}" for name in BLEND_PAIR]


def test_find_blend() -> None:
    assert find_blend([*BLEND_PAIR, *pair("x-")]) == BLEND_PAIR
    assert find_blend(pair("x-")) == tuple(pair("x-"))
    train, valid = pair("h-BlendedDataset-train-"), pair("h-BlendedDataset-valid-")
    assert find_blend([*train, *valid]) == tuple(train)
    assert find_blend([*train, *valid], "eval") == tuple(valid)
    for held in ([], pair("x-")[:1], [*pair("x-"), *pair("y-")]):
        with pytest.raises(OrderError) as caught:
            find_blend(held)
        assert caught.value.code == "ORD084"


def index() -> dict[str, Any]:
    order = MaxTextNpyOrder.over(Lengths([5, 7, 3, 9, 4] * 4), 4, seed=1, samples=30, split="1,1").prepare()
    made = order.indices()
    return {
        "document_index": made.document_index.copy(),
        "sample_index": made.sample_index.copy(),
        "shuffle_index": made.shuffle_index.copy(),
    }


def spoil(name: str, place: Any, value: int) -> Any:
    def change(arrays: dict[str, Any]) -> None:
        arrays[name][place] = value

    return change


def swap(arrays: dict[str, Any]) -> None:
    arrays["document_index"], arrays["shuffle_index"] = arrays["shuffle_index"], arrays["document_index"]


ENDS = {
    "document": spoil("document_index", 0, 10),
    "negative document": spoil("document_index", -1, -1),
    "entry": spoil("sample_index", (-1, 0), 999),
    "sample": spoil("shuffle_index", 0, 999),
    "swapped": swap,
    "floats": lambda a: a.update(shuffle_index=a["shuffle_index"].astype(np.float64)),
    "one row": lambda a: a.update(sample_index=a["sample_index"][:1]),
    "three columns": lambda a: a.update(sample_index=np.zeros((9, 3), np.int32)),
    "flat": lambda a: a.update(sample_index=a["sample_index"].reshape(-1)),
    "no samples": lambda a: a.update(shuffle_index=a["shuffle_index"][:0]),
    "too many samples": lambda a: a.update(shuffle_index=np.zeros(99, np.uint32)),
}
INSIDE = {
    "document": spoil("document_index", 3, 10),
    "entry": spoil("sample_index", (3, 0), 999),
    "sample": spoil("shuffle_index", 3, 999),
    "backwards": spoil("sample_index", (-3, 0), 0),
}


def test_an_index_that_is_one() -> None:
    for full in (False, True):
        check_index(**index(), documents=(0, 10), full=full)


@pytest.mark.parametrize("defect", ENDS)
def test_index_arrays_that_are_none(defect: str) -> None:
    arrays = index()
    ENDS[defect](arrays)
    for full in (False, True):
        with pytest.raises(OrderError) as caught:
            check_index(**arrays, documents=(0, 10), full=full)
        assert caught.value.code == "ORD083"


@pytest.mark.parametrize("defect", INSIDE)
def test_index_arrays_that_are_none_inside(defect: str) -> None:
    arrays = index()
    INSIDE[defect](arrays)
    check_index(**arrays, documents=(0, 10))
    with pytest.raises(OrderError) as caught:
        check_index(**arrays, documents=(0, 10), full=True)
    assert caught.value.code == "ORD083"


def test_dispatch_arrays() -> None:
    datasets, numbers = np.array([0, 1, 0], np.int16), np.array([0, 0, 1], np.int64)
    check_dispatch(datasets, numbers, [2, 1], 3)
    for given_datasets, given_numbers, lengths, code in [
        (datasets[:2], numbers, [2, 1], "ORD083"),
        (datasets, numbers[:2], [2, 1], "ORD083"),
        (datasets, numbers, [2], "ORD083"),
        (datasets - 1, numbers, [2, 1], "ORD083"),
        (datasets, numbers[::-1], [2, 1], "ORD083"),
        (datasets, numbers + 1, [9, 9], "ORD083"),
        (datasets, numbers.astype(float), [2, 1], "ORD083"),
        (datasets, numbers, [1, 1], "ORD079"),
    ]:
        with pytest.raises(OrderError) as caught:
            check_dispatch(given_datasets, given_numbers, lengths, 3)
        assert caught.value.code == code


# ---- settings ------------------------------------------------------------------------------------------------------

GOOD: dict[str, object] = {
    "dataset_type": "grain",
    "grain_file_type": "mmap_npy",
    "grain_train_files": "/c|/d/a",
    "max_target_length": 8,
    "global_batch_size_to_load": 4,
    "steps": 10,
}


@pytest.mark.parametrize(
    ("more", "code"),
    [
        ({"dataset_type": "hf"}, "ORD076"),
        ({"grain_file_type": "parquet"}, "ORD076"),
        ({"grain_file_type": None}, "ORD076"),
        ({"grain_train_files": ""}, "ORD080"),
        ({"grain_train_mixture_config_path": "/mix.json"}, "ORD081"),
        ({"eval_interval": 5}, "ORD082"),
        ({"max_target_lenght": 8}, "ORD087"),
        ({"train_data_columns": ["inputs", "targets"]}, "ORD088"),
        ({"eval_data_columns": []}, "ORD088"),
        ({"steps": "many"}, "ORD089"),
        ({"steps": 1.5}, "ORD089"),
        ({"steps": True}, "ORD089"),
        ({"eod_mask_loss": "maybe"}, "ORD089"),
        ({"mmap_npy_split": 99}, "ORD089"),
        ({"mmap_npy_split": "99/1"}, "ORD072"),
        ({"mmap_npy_split": "99", "grain_eval_files": "/c|/d/a"}, "ORD073"),
        ({"grain_file_type": "mmap", "grain_train_files": "/d", "mmap_npy_split": "99,1"}, "ORD091"),
        ({"max_target_length": 0}, "ORD002"),
        ({"max_target_length": 2**31 - 1}, "ORD002"),
        ({"global_batch_size_to_load": 0}, "ORD002"),
        ({"num_epoch": 0}, "ORD002"),
        ({"data_shuffle_seed": -1}, "ORD002"),
        ({"data_shuffle_seed": 2**32}, "ORD002"),
        ({"packing_max_segments_per_sample": -1}, "ORD002"),
        ({"grain_train_files": "gs://b/c|/d"}, "ORD069"),
        ({"grain_eval_files": "/d"}, "ORD060"),
    ],
)
def test_settings_that_cannot_be(more: dict[str, object], code: str) -> None:
    read_settings(GOOD)
    with pytest.raises(UsageError) as caught:
        read_settings({**GOOD, **more})
    assert caught.value.code == code


def test_settings_name_what_is_missing_or_misspelt() -> None:
    with pytest.raises(UsageError, match="did you mean max_target_length"):
        read_settings({**GOOD, "max_target_lenght": 8})
    for name in ("max_target_length", "global_batch_size_to_load"):
        with pytest.raises(UsageError, match=name):
            read_settings({key: value for key, value in GOOD.items() if key != name})


def test_settings_have_maxtexts_defaults() -> None:
    job = read_settings(GOOD)
    assert (job.data_shuffle_seed, job.packing_max_segments_per_sample, job.mmap_eod_id) == (0, 25, 0)
    assert job.reset_attention_mask
    assert not job.eod_mask_loss
    assert job.samples == 40
    assert job.evaluation is None
    # Limitations of MaxText that are none here: the elastic iterator, any name for the data column.
    read_settings(
        {**GOOD, "grain_use_elastic_iterator": True, "train_data_columns": ["tokens"], "grain_worker_count": 8}
    )


def test_settings_may_be_text() -> None:
    text = {"steps": "10", "eod_mask_loss": "True", "reset_attention_mask": "0", "enable_data_shuffling": "false"}
    job = read_settings({**GOOD, **text})
    assert (job.steps, job.eod_mask_loss, job.reset_attention_mask, job.enable_data_shuffling) == (
        10,
        True,
        False,
        False,
    )


def test_evaluation_batches_are_evaluations_own() -> None:
    more: dict[str, object] = {"grain_eval_files": "/c|/d/b", "eval_interval": 4, "eval_steps": 2}
    assert read_settings({**GOOD, **more}).eval.samples == 3 * 2 * 4
    assert read_settings({**GOOD, **more, "global_batch_size_to_load_eval": 6}).eval.samples == 3 * 2 * 6


def test_sentences_and_eod() -> None:
    check_sentences(5, 5, split_sentences=False)
    check_sentences(5, 9, split_sentences=True)
    with pytest.raises(UsageError, match="mmap_split_sentences=true") as caught:
        check_sentences(12, 22, split_sentences=False, path="data/s")
    assert caught.value.code == "ORD090"
    check_eod(0, 65535)
    for eod in (-1, 65536):
        with pytest.raises(TokenError) as refused:
            check_eod(eod, 65535)
        assert refused.value.code == "ORD092"


# ---- orders of settings --------------------------------------------------------------------------------------------

ONE, OTHER = Lengths([9] * 60, "one"), Lengths([7] * 60, "other")


def test_orders_are_of_the_kind_the_strings_say() -> None:
    both: dict[str, object] = {"grain_train_files": "/c|/a,1;/e|/b,2", "grain_eval_files": "/c|/a,1;/e|/b,0"}
    job = read_settings({**GOOD, **both, "mmap_npy_split": "9,1", "steps": 3})
    train = train_order(job, [ONE, OTHER])
    assert isinstance(train, MaxTextBlendOrder)
    assert train.length == 12
    assert [child.split_index for child in train.children] == [0, 0]
    evaluation = eval_order(job, [ONE, None])
    assert isinstance(evaluation, MaxTextNpyOrder)
    assert (evaluation.split_index, evaluation.inner.first) == (1, 54)
    with pytest.raises(TokenreelError):
        train_order(job, [ONE, None])
    with pytest.raises(UsageError) as caught:
        eval_order(read_settings(GOOD), [ONE])
    assert caught.value.code == "ORD082"


def test_one_dataset_that_is_left_has_a_blends_buffer() -> None:
    job = read_settings({**GOOD, "grain_train_files": "/c|/a,1;/e|/b,0", "steps": 16})  # 64 samples, 65 with the margin
    order = train_order(job, [ONE, None])
    assert isinstance(order, MaxTextNpyOrder)
    assert order.plan == MaxTextNpyOrder.over(ONE, 8, samples=math.ceil(64 * 1.005)).plan
    assert order.length == 67


def test_direct_orders() -> None:
    more: dict[str, object] = {"grain_file_type": "mmap", "grain_train_files": "/a", "grain_eval_files": "/a,1;/b,1"}
    job = read_settings({**GOOD, **more, "num_epoch": 3, "data_shuffle_seed": 5})
    train = train_order(job, [ONE])
    assert isinstance(train, MaxTextMmapOrder)
    assert (train.shuffled, train.seed, train.epochs) == (True, 5, 3)
    evaluation = eval_order(job, [ONE, OTHER], hosts=2)
    assert isinstance(evaluation, MaxTextMmapMixOrder)
    assert [(child.shuffled, child.epochs) for child in evaluation.children] == [(False, 1)] * 2
    assert evaluation.hosts == 2
    assert train.row_ahead == evaluation.row_ahead == 0
    still = read_settings(
        {**GOOD, "grain_file_type": "mmap", "grain_train_files": "/a", "enable_data_shuffling": False}
    )
    order = train_order(still, [ONE])
    assert isinstance(order, MaxTextMmapOrder)
    assert order.window_at(range(5)).tolist() == [0, 1, 2, 3, 4]
