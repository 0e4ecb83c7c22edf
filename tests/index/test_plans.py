"""Plan files: mapped and shared, never stale, never damaged, the same whoever makes them; run files of packed orders."""

from __future__ import annotations

import json
import tomllib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.index.data import lengths_of, write
from tests.order.tables import Lengths
from tokenreel.config.run import parse_run
from tokenreel.errors import OrderError, RecipeError, UsageError
from tokenreel.feed.opening import open_feed
from tokenreel.index.assemble import assemble
from tokenreel.index.cache import prepared
from tokenreel.index.plans import planned
from tokenreel.index.ready import make_ready
from tokenreel.index.showing import order_facts
from tokenreel.order.mix import Component, MixOrder
from tokenreel.order.mix_phases import Phase
from tokenreel.order.protocol import Order
from tokenreel.pack.packed import PackedOrder, packed

SIZES = Lengths(lengths_of(4, 300))


def order(**options: Any) -> PackedOrder:
    return packed(SIZES, 16, **{"policy": "bestfit", "oversize": "split", "window": 64, "seed": 3, **options})


def spans(one: Order) -> list[list[int]]:
    return [column.tolist() for column in one.spans(0, one.length or 0).columns()]


@pytest.mark.parametrize("policy", ["bestfit", "crop", "concat", "one-per-row"])
def test_the_second_time_is_mapped_and_is_the_same(
    policy: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: dict[str, Any] = {"policy": policy}
    said |= {"oversize": None, "window": None} if policy == "concat" else {}
    plain = spans(order(**said).prepare())
    made, warnings = planned(order(**said), tmp_path)
    assert warnings == ()
    held = sorted(tmp_path.iterdir())
    assert len(held) == (8 if policy in ("bestfit", "crop") else 3)

    def never(*_: object, **__: object) -> None:
        raise RuntimeError("planned again")

    monkeypatch.setattr("tokenreel.index.plans.Sizes.of", never)
    if policy in ("bestfit", "crop"):
        monkeypatch.setattr("tokenreel.index.plans.make_plan", never)
    again, _ = planned(order(**said), tmp_path, threads=2)
    assert sorted(tmp_path.iterdir()) == held
    assert spans(again) == spans(made) == plain
    laid: Any = again.laid
    assert not laid.sizes.lengths.flags.owndata
    documents = range(0, 300, 13)
    assert again.locate(0, documents, 0, 40).sample.tolist() == made.locate(0, documents, 0, 40).sample.tolist()


def test_many_at_once_make_one_plan(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(lambda threads: planned(order(), tmp_path, threads=threads)[0], [1, 2, 3, 4] * 4))
    assert len({str(spans(one)) for one in made}) == 1
    assert len(list(tmp_path.iterdir())) == 8


@pytest.mark.parametrize("ending", ["-lengths.npy", "-begins.npy", "-entries.npy", "-firsts.npy", "-plan.json"])
@pytest.mark.parametrize("how", ["flip", "cut", "gone"])
def test_a_damaged_entry_is_made_again(ending: str, how: str, tmp_path: Path) -> None:
    planned(order(), tmp_path)
    (path,) = (one for one in tmp_path.iterdir() if one.name.endswith(ending))
    whole = path.read_bytes()
    damaged = bytearray(whole)
    damaged[-3] ^= 4
    path.write_bytes(whole[: len(whole) // 2] if how == "cut" else bytes(damaged))
    if how == "gone":
        path.unlink()
    made, warnings = planned(order(), tmp_path)
    assert warnings == ()
    assert spans(made) == spans(order().prepare())
    assert path.read_bytes() == whole


def test_another_corpus_under_the_same_key_is_noticed(tmp_path: Path) -> None:
    """A manifest that lies about its identity: lengths from the file are not those of the corpus."""
    planned(order(), tmp_path)

    class Lying(Lengths):
        @property
        def key(self) -> Any:
            return SIZES.key

    swapped = list(SIZES.sizes)
    swapped[0], swapped[1] = swapped[1] + 1, swapped[0] - 1
    other = packed(Lying(swapped), 16, "bestfit", oversize="split", window=64, seed=3)
    made, _ = planned(other, tmp_path)
    assert spans(made) == spans(other.prepare())


def test_what_changes_the_plan_has_another_name(tmp_path: Path) -> None:
    for options in ({}, {"seed": 4}, {"oversize": "drop"}, {"policy": "firstfit"}, {"window": 128}):
        made, _ = planned(order(**options), tmp_path)
        assert spans(made) == spans(order(**options).prepare())
    assert len(list(tmp_path.glob("*-plan.json"))) == 5
    assert len(list(tmp_path.glob("*-sizes.json"))) == 1
    # What permutes rows alone shares the plan.
    planned(order(shuffle=False), tmp_path)
    planned(order(epochs=7), tmp_path)
    assert len(list(tmp_path.glob("*-plan.json"))) == 5


def test_a_folder_that_cannot_be_written_costs_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file")
    made, warnings = planned(order(), tmp_path / "cache")
    assert [warning.code for warning in warnings] == ["IDX005", "IDX005"]
    assert spans(made) == spans(order().prepare())


def test_packed_orders_inside_others_are_kept_too(tmp_path: Path) -> None:
    mixed = MixOrder((Component("a", order().prepare(), "repeat"),), (Phase(0, (1,)),), 0, samples=50)
    made, _ = prepared(mixed, tmp_path)
    assert spans(made) == spans(mixed.prepare())
    alone, _ = prepared(order(), tmp_path)
    assert spans(alone) == spans(order().prepare())
    assert len(list(tmp_path.iterdir())) == 8


# ---- run files --------------------------------------------------------------------------------------------------------


def run(said: dict[str, Any], corpora: int = 1) -> Any:
    named = [{"name": name, "path": f"{name}.idx"} for name in ("web", "code")[:corpora]]
    return parse_run({"corpus": named, "order": said, "seed": 9})[0]


def test_a_run_file_says_a_packed_order(tmp_path: Path) -> None:
    write(tmp_path / "web", lengths_of(1))
    segment = run({"kind": "packed", "row_tokens": 16, "policy": "firstfit(3)", "oversize": "split", "epochs": 2})
    made = assemble(segment.run, tmp_path)
    facts = order_facts(0, segment, made)
    assert (facts["order"], facts["samples"]) == ("packed@1", None)
    ready, warnings = make_ready(segment.run, made, tmp_path, tmp_path / "cache")
    assert warnings == ()
    expected = packed(made.corpora[0].table(), 16, "firstfit(3)", oversize="split", epochs=2, seed=9).prepare()
    assert spans(ready.order) == spans(expected)
    assert ready.order.fingerprint == expected.fingerprint
    assert order_facts(0, segment, ready)["samples"] == expected.length


def test_packed_components_of_a_mixture_are_planned_when_it_is_made(tmp_path: Path) -> None:
    for number, name in enumerate(("web", "code")):
        write(tmp_path / name, lengths_of(number))
    parts = [
        {"name": name, "weight": 0.5, "at_end": "repeat",
         "order": {"kind": "packed", "corpus": name, "row_tokens": 16, "policy": "bestfit", "oversize": "split"}}
        for name in ("web", "code")
    ]  # fmt: skip
    segment = run({"kind": "mix", "component": parts, "samples": 40, "block": 8}, 2)
    made = assemble(segment.run, tmp_path, cache=tmp_path / "cache")
    assert len(list((tmp_path / "cache").glob("*-plan.json"))) == 2
    ready, _ = make_ready(segment.run, made, tmp_path, tmp_path / "cache")
    table = ready.order.spans(0, 40)
    table.check([corpus.tokens for corpus in ready.corpora])
    assert (table.sample_tokens() == 16).all()


def test_unknown_boundaries_are_refused_unless_flat_is_asked_for(tmp_path: Path) -> None:
    np.arange(90, dtype="<u2").tofile(tmp_path / "web.bin")
    said = {"corpus": [{"name": "web", "path": "web.bin", "dtype": "uint16"}]}
    for policy in ("concat", "truncate"):
        segment = parse_run({**said, "order": {"kind": "packed", "row_tokens": 16, "policy": policy}})[0]
        with pytest.raises(OrderError, match="PCK023"):
            assemble(segment.run, tmp_path)
    segment = parse_run({**said, "order": {"kind": "packed", "row_tokens": 16, "policy": "flat"}})[0]
    ready, warnings = make_ready(segment.run, assemble(segment.run, tmp_path), tmp_path)
    assert warnings == ()
    assert ready.order.length == 6


def test_flat_rows_over_known_documents_are_warned_of(tmp_path: Path) -> None:
    write(tmp_path / "web", lengths_of(1))
    segment = run({"kind": "packed", "row_tokens": 16, "policy": "flat"})
    _, warnings = make_ready(segment.run, assemble(segment.run, tmp_path), tmp_path)
    assert [warning.code for warning in warnings] == ["PCK024"]


def test_keys_of_a_packed_order_are_checked(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="RCP003"):
        run({"kind": "packed", "row_tokens": 16, "policy": "concat", "oversise": "split"})
    with pytest.raises(RecipeError, match="RCP004"):
        run({"kind": "packed", "row_tokens": 16, "policy": "bestfit", "oversize": "cut"})
    write(tmp_path / "web", lengths_of(1))
    with pytest.raises(OrderError, match="PCK021"):
        assemble(run({"kind": "packed", "row_tokens": 16, "policy": "bestfit"}).run, tmp_path)


def test_documents_that_were_cut_are_named_by_their_metadata(tmp_path: Path) -> None:
    """A capped document: its last token is no end, whatever the row policy says of ends."""
    ids = np.array([1, 5, 6, 1, 7, 8, 1, 9], "<u2")
    head = np.zeros(256, "<i4")
    head[:3] = 20240520, 1, len(ids)
    (tmp_path / "code_000000.bin").write_bytes(head.tobytes() + ids.tobytes())
    lines = [
        {"shard": "code_000000.bin", "offset": at, "length": n, "meta": {"truncated": cut}}
        for at, n, cut in ((0, 3, False), (3, 3, True), (6, 2, False))
    ]
    (tmp_path / "code_index.json").write_text(
        json.dumps([{k: v for k, v in line.items() if k != "meta"} for line in lines])
    )
    (tmp_path / "code_docs.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    said = {
        "corpus": [{"name": "code", "path": ".", "boundary": "prefix=1"}],
        "order": {"kind": "packed", "row_tokens": 4, "policy": "concat", "shuffle": False, "cut": "truncated"},
        "row_policy": {"kind": "documents", "ends": "token", "end_id": 1},
    }
    with open_feed(parse_run(said)[0], batch=2, folder=tmp_path) as feed:
        batch = next(feed)
    assert batch["labels"].tolist() == [[5, 6, 1, 7], [8, -100, 9, 1]]
    said["order"] |= {"cut": "cut_off"}  # type: ignore[operator]
    with pytest.raises(UsageError, match="USE003"):
        assemble(parse_run(said)[0].run, tmp_path)


def test_a_run_file_says_hobbylm_s_ranks(tmp_path: Path) -> None:
    write(tmp_path / "web", lengths_of(1))
    segment = run({"kind": "packed", "row_tokens": 16, "policy": "concat", "compat": "hobbylm", "ranks": 3})
    ready, _ = make_ready(segment.run, assemble(segment.run, tmp_path), tmp_path, tmp_path / "cache")
    expected = packed(ready.corpora[0].table(), 16, "concat", compat="hobbylm", ranks=3, seed=9).prepare()
    assert spans(ready.order) == spans(expected)
    assert ready.order.fingerprint == expected.fingerprint
    with pytest.raises(OrderError, match="PCK020"):
        assemble(run({"kind": "packed", "row_tokens": 16, "policy": "concat", "compat": "hobbylm"}).run, tmp_path)


@pytest.mark.parametrize(
    ("said", "files"),
    [
        (
            {
                "policy": "crop",
                "oversize": "wait",
                "buffer": 7,
                "refill": 2,
                "compat": "nanochat",
                "ranks": 2,
                "group": 3,
            },
            (),
        ),
        ({"policy": "crop", "oversize": "wait", "tail": "pad"}, ()),
        ({"policy": "bos-aligned", "longest": 12, "compat": "modded-nanogpt", "ranks": 2}, (500, 777)),
    ],
)
def test_a_run_file_says_other_programs_rows(said: dict[str, Any], files: tuple[int, ...], tmp_path: Path) -> None:
    for number, tokens in enumerate(files or (900,)):
        ids = np.arange(1, tokens + 1, dtype="<u2")
        ids[::17] = 50256
        head = np.zeros(256, "<i4")
        head[:3] = 20240520, 1, tokens
        (tmp_path / f"web_{number:06d}.bin").write_bytes(head.tobytes() + ids.tobytes())
    order = {"kind": "packed", "row_tokens": 16, "shuffle": False, **said}
    corpus = {"name": "web", "path": ".", "boundary": "prefix=50256"}
    segment = parse_run({"corpus": [corpus], "order": order})[0]
    ready, warnings = make_ready(segment.run, assemble(segment.run, tmp_path), tmp_path, tmp_path / "cache")
    assert warnings == ()
    options = {k: v for k, v in said.items() if k != "policy"}
    expected = packed(ready.corpora[0].table(), 16, said["policy"], shuffle=False, files=files, **options).prepare()
    assert ready.order.fingerprint == expected.fingerprint
    assert spans(ready.order) == spans(expected)
    # Rows of single ranks and files are in no plan that others could share.
    assert len(list((tmp_path / "cache").glob("*-plan.json"))) == ("compat" not in said)


def test_the_run_of_the_page_is_one(tmp_path: Path) -> None:
    text = (Path(__file__).resolve().parents[2] / "docs" / "packing.md").read_text("utf-8")
    said = tomllib.loads(text.split("```toml\n")[1].split("```")[0])
    write(tmp_path / "web", lengths_of(1))
    segment = parse_run({"corpus": [{"name": "web", "path": "web.idx"}], **said})[0]
    with open_feed(segment, batch=1, folder=tmp_path) as feed:
        batch = next(feed)
    assert batch["cu_seqlens"].shape == (1, 8193)
    assert feed.order.describe().text.startswith("packed@1 bestfit, split")
