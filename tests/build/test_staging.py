"""Staging: every document is kept or dropped for one reason, and the bytes are the same however it came about."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.build.mixes import PROSE, all_rows, files, mix, rows, stage, write_records
from tokenreel.build.dedup import scoped_key, text_key
from tokenreel.build.staging_parts import batch_ids, source_folder, staged_parts
from tokenreel.build.staging_receipt import parse_stage_receipt
from tokenreel.errors import IncompleteError, ManifestError, RecipeError, SourceError, StorageError
from tokenreel.text import load_tokenizer
from tokenreel.text.normalise import text_id

FILLER = [f"{PROSE} Number {k}." for k in range(12)]

PLANTED = {
    "blank": ({"text": " \n\t "}, "normalise/marin: blank"),
    "empty": ({"text": ""}, "normalise/marin: blank"),
    "short": ({"text": "too short"}, "gate/characters < 40"),
    "poor": ({"text": PROSE + " Poor.", "score": 0.1}, "gate/quality < 0.5"),
    "unscored": ({"text": PROSE + " Unscored.", "score": None}, "gate/quality is no number"),
    "forum": ({"text": PROSE + " Forum.", "kind": "forum"}, "gate/allow not allowed"),
    "repeats": ({"text": "the same line again and again\n" * 40}, "gate/repetition: lines_repeated > 0.3"),
    "symbols": ({"text": " ".join(f"#{w}" for w in PROSE.split())}, "gate/symbols: symbols > 0.1"),
    "generated": (
        {"text": "".join(f"case {k}:\nx = {k};\nbreak {k};\n" for k in range(40))},
        "gate/generated > 0.5",
    ),
    "few-tokens": ({"text": "that the with have and been then for " * 7}, "min_tokens/tokens < 200"),
    "many-tokens": ({"text": " ".join(f"{PROSE} {k}" for k in range(40))}, "gate/tokens > 2000"),
}
GATES = [
    {"kind": "characters", "min": 40},
    {"kind": "quality", "column": "score", "min": 0.5},
    {"kind": "allow", "column": "kind", "values": ["prose"]},
    {"kind": "repetition", "limits": {"lines_repeated": 0.3, **dict.fromkeys(("top_2_gram", "top_3_gram"), 1.0)}},
    {"kind": "shingles", "max": 0.5, "name": "generated"},
    {"kind": "symbols", "limits": {"stop_words_min": 1}},
    {"kind": "tokens", "max": 2000},
]


def planted(name: str) -> dict[str, Any]:
    return {"id": name, "score": 0.9, "kind": "prose", **PLANTED[name][0]}


def filler() -> list[dict[str, Any]]:
    return [{"id": f"f{k}", "score": 0.9, "kind": "prose", "text": text} for k, text in enumerate(FILLER)]


def strict(folder: Path, **tables: Any) -> Any:
    loose = [*GATES]
    # Repetition of words would otherwise come before what the others are there for.
    loose[3] = {"kind": "repetition", "limits": {"lines_repeated": 0.3, **_loose()}}
    return mix(
        folder,
        normalise={"kind": "marin"},
        gate=loose,
        source=[{"name": "web", "paths": ["in/*"], "id": "id", "min_tokens": 200}],
        **tables,
    )


def _loose() -> dict[str, float]:
    from tokenreel.build.gate_limits import GOPHER

    return {name: 1.0 for name in GOPHER["repetition"] if name != "lines_repeated_max"}


@pytest.mark.parametrize("name", sorted(PLANTED))
def test_a_planted_document_is_dropped_by_exactly_one_stage(tmp_path: Path, name: str) -> None:
    write_records(tmp_path / "in/a.jsonl", [*filler()[:6], planted(name), *filler()[6:]])
    (source,) = stage(tmp_path, strict(tmp_path))
    assert source.totals.dropped == {PLANTED[name][1]: 1}
    assert (source.totals.docs_seen, source.totals.kept) == (13, 12)
    receipt = source.parts[0].receipt
    assert [one.upstream_id for one in receipt.dropped[0].examples] == [name]
    assert [one.record for one in receipt.dropped[0].examples] == [6]


def test_seen_is_kept_and_dropped_and_lists_name_every_document(tmp_path: Path) -> None:
    write_records(tmp_path / "in/a.jsonl", [*filler(), *map(planted, PLANTED)])
    write_records(tmp_path / "in/b.jsonl", [*map(planted, PLANTED), *map(planted, PLANTED)])
    (source,) = stage(tmp_path, strict(tmp_path))
    totals = source.totals
    assert totals.docs_seen == 12 + 3 * len(PLANTED)
    assert totals.docs_seen == totals.kept + sum(totals.dropped.values())
    for part in source.parts:
        with pa.memory_map(str(part.file.with_suffix(".dropped.arrow"))) as mapped:
            gone = pa.ipc.open_file(mapped).read_all().to_pylist()
        assert sorted([row["record"] for row in gone] + [row["record"] for row in rows(part)]) == list(
            range(part.receipt.docs_seen)
        )
        for row in gone:
            assert f"{row['stage']}/{row['rule']}" == PLANTED[row["upstream_id"]][1]
            if row["stage"] != "normalise":
                assert row["id"] == text_id(PLANTED[row["upstream_id"]][0]["text"])


def test_rows_hold_keys_names_and_ids(tmp_path: Path) -> None:
    records = [
        {"id": 7, "text": "Ｆｕｌｌ e\u0301", "url": "http://a/1", "lang": "fr", "extra": {"n": [1, 2]}},
        {"id": 8, "text": "second"},
    ]
    write_records(tmp_path / "in/a.jsonl", records)
    tables = [
        {"name": "web", "paths": ["in/*"], "id": "id", "url": "url", "metadata": ["lang", "extra"], "family": "f"}
    ]
    recipe = mix(
        tmp_path,
        normalise={"kind": "nfc"},
        dedup={"by": ["url", "id"], "url_scope": "family", "id_scope": "source"},
        source=tables,
    )
    (source,) = stage(tmp_path, recipe)
    one, two = rows(source.parts[0])
    final = "Ｆｕｌｌ \u00e9"
    tok = load_tokenizer(str(tmp_path / "tokenizer.json"))
    assert one["id"] == text_key(final)
    assert one["doc"] == text_id(final)
    assert one["ids"] == tok.encode_batch([final])[0].tolist()
    assert (one["upstream_id"], one["url"], one["record"], one["full_tokens"]) == (
        "7",
        "http://a/1",
        0,
        len(one["ids"]),
    )
    assert one["metadata"] == '{"extra":{"n":[1,2]},"lang":"fr"}'
    assert one["url_key"] == scoped_key("family:f", "http://a/1")
    assert one["id_key"] == scoped_key("source:web", "7")
    assert (two["url"], two["url_key"], two["metadata"]) == (None, None, '{"extra":null,"lang":null}')
    keys, known = source.parts[0].keys("url_key")
    assert known.tolist() == [True, False]
    assert keys[0].astype(">u8").tobytes() == one["url_key"]
    assert source.parts[0].receipt.with_url == 1


def test_parquet_gives_the_same_documents_as_json_lines(tmp_path: Path) -> None:
    records = [*filler(), *map(planted, PLANTED)]
    write_records(tmp_path / "in/a.jsonl", records)
    (tmp_path / "p").mkdir()
    columns = {name: [one[name] for one in records] for name in ("id", "text", "score", "kind")}
    pyarrow.parquet.write_table(pa.table(columns), tmp_path / "p/a.parquet", row_group_size=5)
    stage(tmp_path, strict(tmp_path))
    recipe = strict(tmp_path)
    import msgspec

    moved = msgspec.structs.replace(recipe, source=[msgspec.structs.replace(recipe.source[0], paths=["p/*"])])
    stage(tmp_path, moved, "other")
    assert all_rows(tmp_path / "stage", "web") == all_rows(tmp_path / "other", "web")


def test_cap_and_budget_count_the_boundary(tmp_path: Path) -> None:
    tok_lengths = []
    write_records(tmp_path / "in/a.jsonl", filler())
    (source,) = stage(tmp_path, mix(tmp_path), "whole")
    tok_lengths = source.parts[0].lengths().tolist()
    table = {"name": "web", "paths": ["in/*"], "id": "id", "max_doc_tokens": 50, "budget": 120}
    (source,) = stage(tmp_path, mix(tmp_path, source=[table]))
    part = source.parts[0]
    assert part.lengths().tolist() == [49, 49, 49]
    assert [row["full_tokens"] for row in rows(part)] == tok_lengths[:3]
    receipt = part.receipt
    assert (receipt.tokens_staged, receipt.reached, receipt.docs_seen) == (150, True, 3)
    assert (receipt.capped, receipt.capped_tokens) == (3, sum(tok_lengths[:3]) - 147)
    assert source.totals.complete
    assert not receipt.input.whole
    assert receipt.input.sha256 is not None


def test_documents_behind_the_budget_were_not_seen(tmp_path: Path) -> None:
    records = [{"id": f"{k}", "text": "x" if k % 3 == 1 else FILLER[k % 12]} for k in range(60)]
    for name, part in (("a", records[:30]), ("b", records[30:])):
        write_records(tmp_path / f"in/{name}.jsonl", part)
    write_records(tmp_path / "in/c.jsonl", filler())
    gates = [{"kind": "characters", "min": 5}]
    (source,) = stage(tmp_path, mix(tmp_path, gate=gates), "whole")
    lengths = np.concatenate([part.lengths() for part in source.parts]) + 1
    for taken in (1, 20, 21, 40):
        budget = int(lengths[:taken].sum())
        table = {"name": "web", "paths": ["in/*"], "id": "id", "budget": budget}
        recipe = mix(tmp_path, gate=gates, source=[table], output={"chunk_bytes": 1000})
        (source,) = stage(tmp_path, recipe, f"stage{taken}")
        assert source.totals.tokens_staged == budget
        assert source.totals.kept == taken
        last = int(all_rows(tmp_path / f"stage{taken}", "web")[-1]["upstream_id"])
        assert source.totals.docs_seen == last + 1
        assert source.totals.dropped.get("gate/characters < 5", 0) == (last + 2) // 3
        assert source.totals.complete
        assert len(source.inputs) == 3
        assert [one.path for one in source.parts] == ["in/a.jsonl", "in/b.jsonl"][: 1 if taken <= 20 else 2]


def test_a_budget_that_is_not_reached_is_not_complete(tmp_path: Path) -> None:
    write_records(tmp_path / "in/a.jsonl", filler())
    (source,) = stage(tmp_path, mix(tmp_path, source=[{"name": "web", "paths": ["in/*"], "budget": 10**6}]))
    assert not source.totals.complete
    assert source.totals.kept == 12


@pytest.mark.parametrize("budget", [None, 1500])
def test_the_same_bytes_for_any_workers_and_chunks(tmp_path: Path, budget: int | None) -> None:
    for k in range(4):
        write_records(tmp_path / f"in/{k}.jsonl", [*map(planted, sorted(PLANTED)[k:]), *filler()[k:]])
    found = []
    for number, (workers, chunk) in enumerate([(0, 8 << 20), (0, 300), (1, 2000), (3, 5000)]):
        recipe = strict(tmp_path, output={"chunk_bytes": chunk})
        import msgspec

        table = msgspec.structs.replace(recipe.source[0], budget=budget)
        stage(tmp_path, msgspec.structs.replace(recipe, source=[table]), f"stage{number}", workers)
        found.append(files(tmp_path / f"stage{number}"))
    assert found[0] == found[1] == found[2] == found[3]
    assert any(name.endswith(".dropped.arrow") for name in found[0])


@given(
    lengths=st.lists(st.integers(0, 9), min_size=1, max_size=30),
    chunk=st.integers(1, 60),
    limits=st.tuples(st.integers(1, 12), st.integers(1, 7)),
)
@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=30)
def test_batches_of_a_file_are_cut_by_its_rows_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lengths: list[int], chunk: int, limits: tuple[int, int]
) -> None:
    import contextlib

    from tokenreel.build import staging_write
    from tokenreel.build.staging_parts import schema
    from tokenreel.build.staging_write import ArrowWriter

    monkeypatch.setattr(staging_write, "BATCH_TOKENS", limits[0])
    monkeypatch.setattr(staging_write, "BATCH_DOCUMENTS", limits[1])
    kind = schema()

    def batch(part: list[tuple[int, int]]) -> Any:
        made = [
            {
                **{name: bytes([k]) * 16 for name in ("id", "doc")},
                "url_key": bytes(16) if k % 2 else None,
                "metadata": "{}" if k % 3 else None,
                "record": k,
                "full_tokens": size,
                "ids": list(range(size)),
            }
            for k, size in part
        ]
        return pa.RecordBatch.from_pylist(made, schema=kind)

    numbered = list(enumerate(lengths))
    hashes = set()
    for number, step in enumerate((len(numbered), chunk, 1)):
        with contextlib.ExitStack() as stack:
            writer = ArrowWriter(stack, tmp_path / f"{number}.arrow", kind)
            for low in range(0, len(numbered), step):
                writer.add(batch(numbered[low : low + step]))
            hashes.add(writer.finish("a").sha256)
        with pa.memory_map(str(tmp_path / f"{number}.arrow")) as mapped:
            reader = pa.ipc.open_file(mapped)
            assert reader.read_all().column("record").to_pylist() == list(range(len(lengths)))
            for k in range(reader.num_record_batches):
                ids, sizes = batch_ids(reader.get_batch(k))
                assert len(sizes) <= limits[1]
                assert int(sizes[:-1].sum()) < limits[0]
                assert len(ids) == int(sizes.sum())
    assert len(hashes) == 1


KILLER = """
import os, signal
def gate(texts, columns):
    if not os.path.exists(os.environ["FLAG"]) and any("Number 7." in text for text in texts):
        os.kill(os.getpid() if os.environ["WHO"] == "worker" else os.getppid(), signal.SIGKILL)
        if os.environ["WHO"] != "worker":
            signal.pause()
    return [None] * len(texts)
"""
RUN = """
import sys
from pathlib import Path
sys.path.insert(0, {root!r})
from tests.build.test_staging import killed_mix
from tests.build.mixes import stage
print([one.built for one in stage(Path({folder!r}), killed_mix(Path({folder!r})), workers=2)])
"""


def killed_mix(folder: Path) -> Any:
    table = {"name": "web", "paths": ["in/*"], "id": "id"}
    other = {"name": "other", "paths": ["more/*"], "id": "id", "budget": 1000}
    return mix(folder, gate=[{"kind": "python", "entry": "killer:gate"}], source=[table, other])


@pytest.mark.parametrize("who", ["worker", "parent"])
def test_killed_and_run_again_it_ends_with_the_same_bytes(tmp_path: Path, who: str) -> None:
    for k in range(4):
        write_records(tmp_path / f"in/{k}.jsonl", filler()[3 * k : 3 * k + 3])
        write_records(tmp_path / f"more/{k}.jsonl", filler()[k : k + 2])
    (tmp_path / "killer.py").write_text(KILLER)
    root = str(Path(__file__).parents[2])
    env = {**os.environ, "FLAG": str(tmp_path / "flag"), "WHO": who, "PYTHONPATH": str(tmp_path)}
    script = RUN.format(root=root, folder=str(tmp_path))
    first = subprocess.run([sys.executable, "-c", script], env=env, capture_output=True, text=True, timeout=120)
    assert first.returncode == (-signal.SIGKILL if who == "parent" else 1), first.stderr
    assert "SRC020" in first.stderr or who == "parent"
    stage_folder = tmp_path / "stage"
    receipts = {path.name for path in (stage_folder / "web").glob("*.json")}
    assert "part-000002.json" not in receipts  # its third document is Number 7
    (tmp_path / "flag").touch()
    again = subprocess.run([sys.executable, "-c", script], env=env, capture_output=True, text=True, timeout=120)
    assert again.returncode == 0, again.stderr
    built = eval(again.stdout)
    assert built[0] == 4 - len(receipts)
    found = files(stage_folder)
    assert not [name for name in found if name.endswith(".tokenreel-tmp")]
    for path in sorted(stage_folder.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    whole = subprocess.run([sys.executable, "-c", script], env=env, capture_output=True, text=True, timeout=120)
    assert eval(whole.stdout)[0] == 4
    assert files(stage_folder) == found


def test_what_stands_is_staged_again_only_where_it_is_not_as_its_receipt_says(tmp_path: Path) -> None:
    for k in range(3):
        write_records(tmp_path / f"in/{k}.jsonl", filler()[k : k + 4])
    recipe = mix(tmp_path, gate=[{"kind": "characters", "max": len(FILLER[0])}])
    stage(tmp_path, recipe)
    folder = tmp_path / "stage"
    before = files(folder)

    def built() -> int:
        return stage(tmp_path, recipe)[0].built

    assert built() == 0
    for name, harm in {
        "part-000000.arrow": lambda data: data[:-1],
        "part-000001.arrow": lambda data: data.replace(b"f1", b"f9", 1),
        "part-000002.json": lambda data: data.replace(b'"kept": ', b'"kept": 1', 1),
    }.items():
        path = folder / "web" / name
        changed = harm(path.read_bytes())
        assert changed != path.read_bytes()
        path.write_bytes(changed)
        assert built() == 1
        assert files(folder) == before
    (folder / "web/part-000000.json").unlink()
    (folder / "web/part-000009.json").write_text("{}")
    (folder / "gone").mkdir()
    (folder / "gone/part-000000.arrow").write_bytes(b"")
    assert built() == 1
    assert files(folder) == before
    write_records(tmp_path / "in/1.jsonl", filler()[:2])
    assert built() == 1
    assert len(staged_parts(folder, "web")[1]) == 2


def test_another_plan_is_another_stage_and_words_about_a_source_are_not(tmp_path: Path) -> None:
    write_records(tmp_path / "in/a.jsonl", filler())
    table = {"name": "web", "paths": ["in/*"], "id": "id"}
    stage(tmp_path, mix(tmp_path, source=[table]))
    (same,) = stage(tmp_path, mix(tmp_path, source=[{**table, "licence": "CC0", "reason": "because"}]))
    assert same.built == 0
    (other,) = stage(tmp_path, mix(tmp_path, source=[{**table, "min_tokens": 3}]))
    assert other.built == 1


def test_empty_documents_are_kept_dropped_or_an_error(tmp_path: Path) -> None:
    write_records(tmp_path / "in/a.jsonl", [{"id": "a", "text": "x"}, {"id": "b", "text": ""}])
    (source,) = stage(tmp_path, mix(tmp_path), "keep")
    assert source.parts[0].lengths().tolist() == [1, 0]
    (source,) = stage(tmp_path, mix(tmp_path, documents={"empty": "drop"}), "drop")
    assert source.totals.dropped == {"documents/empty": 1}
    with pytest.raises(SourceError, match="SRC016") as caught:
        stage(tmp_path, mix(tmp_path, documents={"empty": "error"}), "error")
    assert caught.value.where["document"] == 1


def test_special_tokens_in_text(tmp_path: Path) -> None:
    write_records(tmp_path / "in/a.jsonl", [{"id": "a", "text": "one<eod>two"}, {"id": "b", "text": "<eod>"}])
    found = {}
    for how in ("text", "drop", "special"):
        tokenizer = {"path": "tokenizer.json", "eod": "<eod>", "special_in_text": how}
        (source,) = stage(tmp_path, mix(tmp_path, tokenizer=tokenizer, documents={"empty": "drop"}), how)
        found[how] = source
        assert source.parts[0].receipt.special_in_text >= 1
    assert found["drop"].totals.dropped == {"documents/empty": 1}
    assert rows(found["drop"].parts[0])[0]["id"] == text_key("onetwo")
    assert found["special"].parts[0].receipt.eod_inside == 2
    assert found["text"].parts[0].receipt.eod_inside == 0


def test_text_and_signatures_are_there_where_a_later_stage_needs_them(tmp_path: Path) -> None:
    write_records(tmp_path / "in/a.jsonl", filler())
    evals = [{"name": "e", "path": "e.jsonl", "split": "dev"}]
    recipe = mix(
        tmp_path, decontaminate={"eval": evals, "by": "words"}, dedup={"near": {"permutations": 16, "threshold": 0.5}}
    )
    (source,) = stage(tmp_path, recipe)
    row = rows(source.parts[0])[3]
    assert row["text"] == FILLER[3]
    assert len(row["near"]) == 16
    (source,) = stage(tmp_path, mix(tmp_path, decontaminate={"eval": evals, "by": "ids"}), "ids")
    assert set(rows(source.parts[0])[0]) & {"text", "near"} == set()


def test_plain_text_has_no_fields_for_gates(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in/a.txt").write_text("a text")
    gate = {"kind": "quality", "column": "score", "min": 1}
    table = {"name": "web", "paths": ["in/*"]}
    with pytest.raises(RecipeError, match="RCP006"):
        stage(tmp_path, mix(tmp_path, gate=[gate], source=[table]))


def test_an_input_without_documents(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in/a.jsonl").write_text("\n")
    with pytest.raises(SourceError, match="SRC009"):
        stage(tmp_path, mix(tmp_path))
    (source,) = stage(tmp_path, mix(tmp_path, documents={"empty_inputs": "allow"}), "allowed")
    assert len(source.parts[0]) == 0
    assert source.parts[0].keys()[0].shape == (0, 2)
    assert source.parts[0].receipt.blank_lines == 1


def test_receipts_that_do_not_add_up_are_refused(tmp_path: Path) -> None:
    write_records(tmp_path / "in/a.jsonl", filler())
    (source,) = stage(tmp_path, mix(tmp_path))
    path = tmp_path / "stage/web/part-000000.json"
    import msgspec

    from tokenreel.build.staging_receipt import sealed
    from tokenreel.corpus.receipts import dump

    for change in ({"docs_seen": 13}, {"tokens_staged": 1}):
        lying = sealed(msgspec.structs.replace(source.parts[0].receipt, **change))
        with pytest.raises(ManifestError, match="MAN012"):
            parse_stage_receipt(dump(lying), path)


def test_names_of_sources_are_names_of_folders(tmp_path: Path) -> None:
    write_records(tmp_path / "in/a.jsonl", filler())
    names = ["../up", "a b/ä", "."]
    stage(tmp_path, mix(tmp_path, source=[{"name": name, "paths": ["in/*"]} for name in names]))
    assert sorted(path.name for path in (tmp_path / "stage").iterdir()) == sorted(map(source_folder, names))
    assert [len(staged_parts(tmp_path / "stage", name)) for name in names] == [1, 1, 1]


def test_an_error_in_a_worker_names_the_document(tmp_path: Path) -> None:
    write_records(tmp_path / "in/a.jsonl", [{"id": "a", "text": "x"}, {"id": "b", "text": "y<eod>"}])
    tokenizer = {"path": "tokenizer.json", "eod": "<eod>", "special_in_text": "error"}
    with pytest.raises(Exception, match="TKZ006") as caught:
        stage(tmp_path, mix(tmp_path, tokenizer=tokenizer), workers=1)
    assert caught.value.where["document"] == 1  # type: ignore[attr-defined]
    assert not isinstance(caught.value, IncompleteError)
    assert not list((tmp_path / "stage").rglob("part-*"))


def test_a_source_that_disappears_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "vanishing.py").write_text(
        "import pathlib\n"
        f"FILE = pathlib.Path({str(tmp_path / 'in/b.jsonl')!r})\n"
        "def gate(texts, columns):\n    FILE.unlink(missing_ok=True)\n    return [None] * len(texts)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("a", "b"):
        write_records(tmp_path / f"in/{name}.jsonl", filler())
    with pytest.raises(StorageError, match="STO001") as caught:
        stage(tmp_path, mix(tmp_path, gate=[{"kind": "python", "entry": "vanishing:gate"}]))
    assert caught.value.where["shard"] == "web/part-000001"
    assert caught.value.where["path"] == str(tmp_path / "in/b.jsonl")
    assert [part.number for part in staged_parts(tmp_path / "stage", "web")] == [0]
