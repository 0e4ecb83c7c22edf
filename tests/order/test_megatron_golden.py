"""Every index, blend, sampler, split, size, hash and error that Megatron-Core produced, produced again."""

from __future__ import annotations

import json
from itertools import islice
from typing import Any

import numpy as np
import pytest

from tests.order.golden_megatron import PARTS, arguments, array, cases, functions, has, prefixes_of
from tokenreel.errors import OrderError
from tokenreel.order import megatron_samplers as samplers
from tokenreel.order.megatron import MegatronOrder
from tokenreel.order.megatron_blend import MegatronBlend, blend_list, megatron_orders, member_sizes
from tokenreel.order.megatron_cache import blend_identity, cache_names, dataset_identity, description, description_hash
from tokenreel.order.megatron_dispatch import dispatch, dispatch_all, normalised
from tokenreel.order.megatron_index import build_indices, sample_rows
from tokenreel.order.megatron_plan import kept_samples, split_bounds, split_range, split_weights

WHOLE = ("document_index", "sample_index", "shuffle_index")


def by_name(case: dict[str, Any]) -> str:
    return case["name"]


def test_there_are_as_many_cases_as_were_stored() -> None:
    assert (len(cases(failing=False)), len(cases(failing=True))) == (46, 4)


def equal(found: np.ndarray, name: str) -> None:
    wanted = array(name)
    assert found.dtype == wanted.dtype, name
    assert np.array_equal(found, wanted), name


def check_single(order: MegatronOrder, stem: str) -> None:
    indices = order.indices()
    for name in WHOLE:
        equal(getattr(indices, name), f"{stem}_{name}")
    lengths = np.asarray(order.table.lengths(order.first, order.last), dtype=np.int32)  # type: ignore[union-attr]
    again = build_indices(lengths, order.first, order.plan, order.seed, order.row_tokens, order.row_ahead)
    for name in WHOLE:
        assert np.array_equal(getattr(again, name), getattr(indices, name))
        assert getattr(again, name).dtype == getattr(indices, name).dtype


def identity_of(case: dict[str, Any], prefix: str, part: str, samples: int | None) -> dict[str, Any]:
    return dataset_identity(
        prefix, part, samples, seed=case["seed"], row_tokens=case["row"], split=case["split"], bounds=case["bounds"],
        tokenizer=case["tokenizer"],
    )  # fmt: skip


@pytest.mark.parametrize("case", cases(failing=False), ids=by_name)
def test_a_case(case: dict[str, Any]) -> None:
    """Arrays, dtypes, counts, cache hashes and file names of every part of a job."""
    names: set[str] = set()
    checked = 0
    for part in PARTS:
        given = arguments(case, part)
        if given is None:
            assert part not in case["built"]
            continue
        orders = megatron_orders(**given)
        labels = [part] if len(orders) == 1 else [f"{part}_vset{k}" for k in range(len(orders))]
        prefixes = prefixes_of(case, part)
        for number, (label, order) in enumerate(zip(labels, orders, strict=True)):
            wanted = case["built"].get(label)
            assert wanted is not None, label
            made = order.prepare()
            assert made.length == wanted["length"]
            if isinstance(made, MegatronOrder):
                plan = made.plan
                assert wanted["class"] == "GPTDataset"
                assert (made.first, made.last, plan.epochs, plan.tokens) == tuple(
                    wanted[key] for key in ("first", "last", "epochs", "tokens")
                )
                check_single(made, f"{case['name']}/{label}")
                identity = identity_of(case, prefixes[number], part, given["samples"])
            else:
                identity = check_blend(case, part, label, made, wanted, names)
            assert description_hash(description(identity)) == wanted["hash"]
            names |= set(cache_names(identity).values())
            checked += 1
    assert checked == len([label for label in case["built"] if "_mid" not in label])
    assert sorted(names) == case["cache_files"]


def check_blend(
    case: dict[str, Any], part: str, label: str, blend: MegatronBlend, wanted: dict[str, Any], names: set[str]
) -> dict[str, Any]:
    assert wanted["class"] == "BlendedDataset"
    assert wanted["size"] == blend.samples
    weights = list(blend.weights) if blend.samples is not None else [int(weight) for weight in blend.weights]
    assert [float(weight).hex() for weight in weights] == wanted["weights"]
    member, number = blend.dispatched()
    equal(member, f"{case['name']}/{label}_dataset_index")
    equal(number, f"{case['name']}/{label}_dataset_sample_index")
    asked = [None] * len(blend.members)
    if (given := arguments(case, part)) is not None and given["weights"] is not None:
        asked = [size.build for size in member_sizes(given["weights"], given["samples"], given["surplus"])]
    identities = []
    for k, (order, (samples, length, digest)) in enumerate(zip(blend.members, wanted["members"], strict=True)):
        identity = identity_of(case, prefixes_of(case, part)[k], part, asked[k])
        assert (asked[k], order.length, description_hash(description(identity))) == (samples, length, digest)
        if has(f"{case['name']}/{label}_mid{k}_document_index"):
            check_single(order, f"{case['name']}/{label}_mid{k}")
        names |= set(cache_names(identity).values())
        identities.append(identity)
    return blend_identity(identities, part, weights, blend.samples)


CODES = {
    "err_blend_zero_weight": "ORD015",
    "err_last_doc_empty_partial": "ORD013",
    "err_oversample": "ORD016",
    "err_empty_mid": "ORD015",
}


@pytest.mark.parametrize("case", cases(failing=True), ids=by_name)
def test_what_megatron_refuses_is_refused(case: dict[str, Any]) -> None:
    given = [given for part in PARTS if (given := arguments(case, part)) and given["samples"] != 0]
    with pytest.raises(OrderError, match=CODES[case["name"]]):
        [order.prepare() for arguments_ in given for order in megatron_orders(**arguments_)]


def test_an_overdrawn_member_is_named() -> None:
    (case,) = [case for case in cases(failing=True) if case["name"] == "err_oversample"]
    (order,) = megatron_orders(**(arguments(case, "train") or {}))
    with pytest.raises(OrderError, match="member 0") as caught:
        order.prepare()
    assert (caught.value.expected, caught.value.found) == ("at most 6 samples", 7)
    assert order.length == 15, "ten samples were asked for"


# ---- functions ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", functions("split"), ids=lambda case: case["string"])
def test_split_strings(case: dict[str, Any]) -> None:
    weights = split_weights(case["string"])
    assert [weight.hex() for weight in weights] == case["vector_hex"]
    bounds = split_bounds(weights)
    assert json.dumps(bounds) == json.dumps(case["matrix"])
    for n, ranges in case["ranges"].items():
        assert [None if b is None else list(split_range(b, int(n))) for b in bounds] == ranges


def test_splits_of_two_vectors() -> None:
    for case in functions("split_two_vectors"):
        found = split_bounds(tuple(case["a"]), tuple(case["b"]))
        assert [None if b is None else list(b) for b in found] == case["matrix"]


def test_split_text_that_megatron_misreads() -> None:
    with pytest.raises(OrderError, match="ORD010"):
        split_weights("1e-3")
    assert split_weights("1e-3", compat=["split-text"]) == (0.25, 0.75, 0.0)


def test_sizes_and_weights() -> None:
    for case in functions("sizes"):
        once = normalised(case["weights"])
        assert [weight.hex() for weight in once] == case["normalized_hex"]
        assert [weight.hex() for weight in normalised(once)] == case["renormalized_hex"]
        for column, target in enumerate(case["targets"]):
            found = [size.build for size in member_sizes(case["weights"], target, case["surplus"])]
            assert found == [row[column] for row in case["sizes"]]


def test_blend_lists() -> None:
    for case in functions("get_blend_from_list"):
        if case["arg"] is not None:
            prefixes, weights = blend_list(case["arg"], compat=["blend-list"])
            assert [prefixes, weights] == case["result"]
    with pytest.raises(OrderError, match="ORD015"):
        blend_list(["1", "a", "2"])
    with pytest.raises(OrderError, match="ORD015"):
        blend_list(["1", "a", "b", "c"])
    assert blend_list(["1", "a", "b", "c"], compat=["blend-list"]) == (["1", "a", "b", "c"], None)
    for compat in ([], ["blend-list"]):
        with pytest.raises(OrderError, match="ORD015"):
            blend_list(["a", "b", "1", "c"], compat=compat)
    for bad in (["nan", "a"], ["inf", "a"], ["0", "a"], ["-1", "a"]):
        with pytest.raises(OrderError, match="ORD015"):
            blend_list(bad)


@pytest.mark.parametrize("case", functions("blending"), ids=by_name)
def test_dispatch(case: dict[str, Any]) -> None:
    name = case["name"]
    weights = array(f"blending/{name}_weights").tolist()
    both = [dispatch(weights, case["size"]), dispatch(weights, case["size"], arithmetic="fused")]
    for (member, number), folder in zip(both, ("blending", "fused"), strict=True):
        equal(member, f"{folder}/{name}_dataset_index")
        equal(number, f"{folder}/{name}_dataset_sample_index")
    assert int((both[0][0] != both[1][0]).sum()) == case["positions_differing_with_fma"]


def test_dispatch_where_the_two_arithmetics_part() -> None:
    for name, weights in (("f_532", [0.5, 0.3, 0.2]), ("f_721", [0.7, 0.2, 0.1])):
        plain, contracted = dispatch(weights, 2000), dispatch(weights, 2000, arithmetic="fused")
        equal(plain[0], f"fused/{name}_dataset_index")
        equal(contracted[0], f"fused/{name}_fma_dataset_index")
        equal(contracted[1], f"fused/{name}_fma_dataset_sample_index")
        assert not np.array_equal(plain[0], contracted[0])


@pytest.mark.parametrize("case", functions("exhaustive"), ids=by_name)
def test_dispatch_of_everything(case: dict[str, Any]) -> None:
    member, number = dispatch_all(case["sizes"])
    equal(member, f"blending/{case['name']}_dataset_index")
    equal(number, f"blending/{case['name']}_dataset_sample_index")


@pytest.mark.parametrize("case", functions("sample_index"), ids=by_name)
def test_sample_index(case: dict[str, Any]) -> None:
    stem = f"sample_index/{case['name']}"
    sizes, documents = array(f"{stem}_sizes"), array(f"{stem}_document_index")
    ahead = int(case["extra"])
    usable = case["num_epochs"] * case["tokens_per_epoch"] - ahead
    row = case["sequence_length"]
    rows = usable // row if case["drop_last"] else kept_samples(usable, row, ["float32-tail"])
    if "exception" in case:
        with pytest.raises(OrderError, match="ORD013"):
            sample_rows(documents, sizes, row, ahead, rows)
    else:
        found = sample_rows(documents, sizes, row, ahead, rows)
        equal(found, f"{stem}_sample_index")
        assert list(found.shape) == case["shape"]


def test_samples_counted_in_single_precision() -> None:
    for case in functions("num_samples_float32_ceil"):
        usable = case["total_tokens"] - 1
        assert kept_samples(usable, case["S"], ["float32-tail"]) == case["cpp"]
        if case["cpp"] == case["exact"]:
            assert kept_samples(usable, case["S"]) == case["exact"]
        else:
            with pytest.raises(OrderError, match="ORD012"):
                kept_samples(usable, case["S"])


@pytest.mark.parametrize("case", functions("samplers"), ids=lambda c: f"{c['kind']}-{c['total']}-{c['rank']}")
def test_samplers(case: dict[str, Any]) -> None:
    kind, total, ranks, rank = (case[key] for key in ("kind", "total", "dp", "rank"))

    def batches() -> list[list[int]]:
        if kind == "full_validation":
            return list(samplers.full_validation(total, ranks, rank))
        consumed, micro = case["consumed"], case["mbs"]
        if kind == "single":
            return list(samplers.single(total, consumed, micro, ranks, rank, drop_last=case["drop_last"]))
        if kind == "hybrid_cp":
            return list(samplers.hybrid_context_parallel(total, consumed, micro, case["gbs"], ranks, rank))
        endless = samplers.cyclic(total, consumed, micro, ranks, rank, data_sharding=case["data_sharding"])
        found = list(islice(endless, len(case.get("batches", []))))
        left = samplers.cyclic_epoch(total, consumed, micro, ranks, rank, data_sharding=case["data_sharding"])
        assert found == list(left)
        return found

    if "exception" in case:
        with pytest.raises(OrderError, match="ORD017"):
            batches()
    else:
        assert batches() == case["batches"]
        if kind == "full_validation":
            assert samplers.full_validation_steps(total, ranks) == max(
                other["len"] for other in functions("samplers") if other["kind"] == kind and other["total"] == total
            )
