"""`verify` as a whole: what others wrote is clean, what is broken has its code, what is unfinished is incomplete."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.verify.corpora import changed, files_of, write_pair
from tokenreel.errors import StorageError, UsageError, codes
from tokenreel.store import MemoryStore, dumps_canonical
from tokenreel.verify import Report, verify
from tokenreel.verify.verify import verify_store

GOLDEN = Path(__file__).resolve().parent.parent / "golden"
REFUSED = {"dtype_float32": "MEG007", "dtype_float64": "MEG007", "i32_multimodal": "MEG010"}
MALFORMED = {
    "bad_dtype_code": ("MEG006", "idx", 17),
    "bad_magic": ("MEG001", "idx", 0),
    "bad_version": ("MEG005", "idx", 9),
    "badlens": ("MEG021", "bin", 16),
    "bin_empty": ("MEG019", "bin", 0),
    "bin_trailing": ("MEG020", "bin", 26216),
    "bin_truncated": ("MEG018", "bin", 26210),
    "count_zero": ("MEG020", "bin", 0),
    "docidx_first_wrong": ("MEG012", "idx", 2566),
    "docidx_last_wrong": ("MEG013", "idx", 4254),
    "idx_short_header": ("MEG003", "idx", 20),
    "idx_trailing": ("MEG009", "idx", 4262),
    "idx_truncated": ("MEG008", "idx", 4254),
    "pointer_wrong": ("MEG016", "idx", 886),
}


def found(report: Report) -> set[str]:
    return set(report.counts)


# ---- what others wrote --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("level", ["quick", "full"])
def test_a_corpus_by_the_published_description_is_whole(level: str) -> None:
    report = verify(GOLDEN / "mahan", level=level)
    # The golden folder has two files beside the corpus: said, and no error.
    assert {(f.code, f.path) for f in report.findings} == {("MAN063", "split_vectors.json")}
    assert report.exit_status == 0
    assert report.facts["splits"]["train"] == {"shards": 3, "documents": 25, "sequences": 25, "tokens": 230}
    assert report.facts["validation_share_of_documents"] == round(3 / 28, 6)
    # It does not say that its tokenizer is lossless: the split is not checked, and that is no finding.
    assert any("split" in note.what for note in report.not_checked)


@pytest.mark.parametrize("path", sorted((GOLDEN / "megatron" / "data").glob("*.idx")), ids=lambda path: path.stem)
def test_pairs_that_megatron_wrote_are_sound_or_refused_by_name(path: Path) -> None:
    report = verify(path, level="full")
    wanted = REFUSED.get(path.stem)
    assert found(report) == ({wanted} if wanted else set())
    assert any("--boundary suffix=ID" in note.how for note in report.not_checked)


@pytest.mark.parametrize("name", sorted(MALFORMED))
@pytest.mark.parametrize("level", ["quick", "full"])
def test_malformed_pairs_have_their_code_and_byte(name: str, level: str) -> None:
    report = verify(GOLDEN / "megatron" / "malformed" / name, level=level)
    code, suffix, offset = MALFORMED[name]
    assert [(f.code, f.path, f.offset) for f in report.findings] == [(code, f"{name}.{suffix}", offset)]
    assert report.exit_status == 1


# ---- a built corpus: each thing that can be wrong ------------------------------------------------------------------


def edit(path: str, change: Callable[[Any], object]) -> Callable[[dict[str, bytes]], MemoryStore]:
    """Return a damage: change a parsed sidecar in place and write it as we write it."""

    def damage(files: dict[str, bytes]) -> MemoryStore:
        value = json.loads(files[path])
        change(value)
        return changed(files, path, dumps_canonical(value))

    return damage


def without(path: str) -> Callable[[dict[str, bytes]], MemoryStore]:
    return lambda files: changed(files, path, None)


def with_file(path: str, data: bytes) -> Callable[[dict[str, bytes]], MemoryStore]:
    return lambda files: changed(files, path, data)


RECEIPT = "receipts/part-000000.json"
DAMAGE: list[tuple[str, str, Callable[[dict[str, bytes]], MemoryStore]]] = [
    ("a count of a receipt", "MAN041", edit(RECEIPT, lambda r: r["splits"]["train"].update(documents=9))),
    ("the sum of a receipt", "MAN012", edit(RECEIPT, lambda r: r["splits"]["train"].update(text_tokens=1))),
    ("a receipt's part", "MAN003", edit(RECEIPT, lambda r: r.update(part="part-000007"))),
    ("a receipt's files", "MAN044", edit(RECEIPT, lambda r: r["splits"]["train"].update(files=[]))),
    ("a receipt's settings", "MAN049", edit(RECEIPT, lambda r: r.update(run_config_sha256="0" * 64))),
    ("a receipt's input", "MAN054", edit(RECEIPT, lambda r: r["input"].update(sha256="0" * 64))),
    ("a receipt's version", "MAN055", edit(RECEIPT, lambda r: r.update(format="tokenreel-receipt-9"))),
    ("a file that a receipt names", "MAN004", without("shards/train/part-000000.bin")),
    ("half of a pair", "MEG023", without("shards/train/part-000000.bin")),
    ("a receipt that is gone", "MAN045", without(RECEIPT)),
    ("a pair that nothing names", "MAN043", with_file("shards/train/part-000009.idx", b"")),
    ("any other file among the shards", "MAN043", with_file("shards/train/notes.txt", b"x")),
    ("a file among the receipts", "MAN043", with_file("receipts/.DS_Store", b"x")),
    ("stats.json", "MAN048", edit("stats.json", lambda s: s["by_split"]["train"].update(documents=99))),
    ("stats.json by source", "MAN048", edit("stats.json", lambda s: s["by_source"].clear())),
    ("stats.json is gone", "MAN004", without("stats.json")),
    ("run_config.json is gone", "MAN004", without("run_config.json")),
    ("COMPLETE.json: another hash", "MAN047", edit("COMPLETE.json", lambda c: c.update(stats_sha256="0" * 64))),
    ("COMPLETE.json: a field more", "MAN051", edit("COMPLETE.json", lambda c: c.update(extra=1))),
    ("COMPLETE.json: a field less", "MAN003", edit("COMPLETE.json", lambda c: c.pop("receipts_sha256"))),
    ("COMPLETE.json: parts", "MAN045", edit("COMPLETE.json", lambda c: c.update(parts=3))),
    ("the recorded dtype", "TOK025", edit("run_config.json", lambda c: c.update(dtype="int32"))),
    ("the rule for the dtype", "TOK026", edit("run_config.json", lambda c: c["tokenizer"].update(largest_id=70000))),
    ("the vocabulary", "TOK020", edit("run_config.json", lambda c: c["tokenizer"].update(largest_id=255))),
    ("the end of document", "TOK021", edit("run_config.json", lambda c: c.update(eod_id=1))),
    ("the split rule", "SPL030", edit("run_config.json", lambda c: c["split_rule"].update(modulo=7))),
    ("an unknown split rule", "SPL031", edit("run_config.json", lambda c: c.update(split_rule={"rule": "no-such"}))),
    ("a key twice", "MAN002", with_file("stats.json", b'{"a": 1, "a": 2}')),
    ("not JSON", "MAN001", with_file("stats.json", b"{")),
    ("spelling", "MAN050", lambda files: changed(files, "COMPLETE.json", files["COMPLETE.json"] + b"\n")),
]  # fmt: skip


@pytest.mark.parametrize(("code", "damage"), [row[1:] for row in DAMAGE], ids=[row[0] for row in DAMAGE])
def test_each_damage_has_its_code(mahan: Path, code: str, damage: Callable[[dict[str, bytes]], MemoryStore]) -> None:
    report = verify_store(damage(files_of(mahan)))
    assert code in found(report), report.lines()
    assert report.exit_status == (0 if code == "MAN050" else 1)


NATIVE_DAMAGE: list[tuple[str, str, Callable[[dict[str, bytes]], MemoryStore]]] = [
    ("counts", "MAN052", edit("tokenreel.json", lambda m: m["splits"]["train"]["shards"][0].update(tokens=1))),
    ("sums", "MAN012", edit("tokenreel.json", lambda m: m["splits"]["train"].update(tokens=1))),
    ("a shard not listed", "MAN043", edit("tokenreel.json", lambda m: m["splits"]["train"]["shards"].pop())),
    ("two hashes", "MAN053",
     edit("tokenreel.json", lambda m: m["splits"]["train"]["shards"][0]["files"][0].update(sha256="0" * 64))),
    ("identity", "MAN056", edit("tokenreel.json", lambda m: m["splits"]["train"].update(identity="0" * 64))),
    ("the manifest is gone", "MAN004", without("tokenreel.json")),
    ("documents.parquet is gone", "MAN004", without("documents.parquet")),
    ("documents.parquet is nothing", "DOC011", with_file("documents.parquet", b"PAR1PAR1")),
    ("the tokenizer", "MAN057", with_file("tokenizer/tokenizer.json", b"{}")),
]  # fmt: skip


@pytest.mark.parametrize(("code", "damage"), [row[1:] for row in NATIVE_DAMAGE], ids=[row[0] for row in NATIVE_DAMAGE])
def test_each_damage_of_the_native_layout_has_its_code(
    native: Path, code: str, damage: Callable[[dict[str, bytes]], MemoryStore]
) -> None:
    report = verify_store(damage(files_of(native)))
    assert code in found(report), report.lines()
    assert report.exit_status == 1


@pytest.mark.parametrize(("column", "code"), [("source", "DOC013"), ("length", "DOC011"), ("index", "DOC011")])
def test_rows_of_documents_parquet_are_checked(native: Path, tmp_path: Path, column: str, code: str) -> None:
    pa, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    folder = tmp_path / "out"
    shutil.copytree(native, folder)
    table = parquet.read_table(folder / "documents.parquet")
    values = table.column(column).to_pylist()
    values[3] = "elsewhere" if column == "source" else 77
    at = table.schema.get_field_index(column)
    parquet.write_table(
        table.set_column(at, table.schema.field(column), pa.array(values, table.schema.field(column).type)),
        folder / "documents.parquet",
    )
    report = verify(folder, level="full")
    assert {code, "MAN047"} <= found(report)
    if code == "DOC011":
        assert [f.document for f in report.findings if f.code == code] == [3]


def test_the_same_rows_in_other_bytes_are_fine(native: Path, tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    folder = tmp_path / "out"
    shutil.copytree(native, folder)
    before = (folder / "documents.parquet").read_bytes()
    parquet.write_table(
        parquet.read_table(folder / "documents.parquet"),
        folder / "documents.parquet",
        compression="gzip",
        row_group_size=3,
    )
    assert (folder / "documents.parquet").read_bytes() != before
    assert verify(folder, level="full").findings == ()


# ---- incomplete ----------------------------------------------------------------------------------------------------


def test_without_complete_json_it_is_incomplete_and_not_broken(mahan: Path) -> None:
    report = verify_store(changed(files_of(mahan), "COMPLETE.json", None))
    assert (report.status, report.exit_status, found(report)) == ("incomplete", 4, {"MAN046"})


def test_a_build_that_stopped_is_incomplete(mahan: Path) -> None:
    files = files_of(mahan)
    stopped = {
        path: data
        for path, data in files.items()
        if path not in ("COMPLETE.json", "stats.json", "receipts/part-000001.json")
    }
    report = verify_store(MemoryStore(stopped))
    assert (report.status, found(report)) == ("incomplete", {"MAN045", "MAN046"})


def test_broken_and_incomplete_is_broken(mahan: Path) -> None:
    files = {path: data for path, data in files_of(mahan).items() if path != "COMPLETE.json"}
    report = verify_store(changed(files, "shards/train/part-000000.bin", None))
    assert report.exit_status == 1


# ---- options -------------------------------------------------------------------------------------------------------


def test_one_shard_one_split_and_a_folder_of_shards(mahan: Path) -> None:
    assert verify(mahan / "shards/train/part-000000.bin").facts["shards"] == 1
    assert verify(mahan / "train", level="full").facts["shards"] == 2
    assert verify(mahan / "shards" / "train", level="full").facts["shards"] == 2


def test_a_split_is_checked_against_its_receipts(mahan: Path, tmp_path: Path) -> None:
    shutil.copytree(mahan, tmp_path / "out")
    path = tmp_path / "out/shards/train/part-000001.bin"
    path.write_bytes(bytes([path.read_bytes()[0] ^ 1]) + path.read_bytes()[1:])
    assert found(verify(tmp_path / "out" / "train", level="full")) >= {"MAN040"}
    assert found(verify(tmp_path / "out" / "validation", level="full")) == set()


def test_boundary_and_vocabulary_are_proved_when_given(tmp_path: Path) -> None:
    write_pair(tmp_path / "web", [[5, 6, 0], [0], [7, 0, 0], [8, 9]])
    report = verify(tmp_path, level="full", boundary="suffix=0", vocab=9)
    places = {(f.code, f.document, f.offset) for f in report.findings}
    assert places == {("TOK022", 2, 10), ("TOK021", 3, 16), ("TOK020", 3, 16)}
    assert verify(tmp_path, level="full").exit_status == 0


def test_a_boundary_that_contradicts_the_record_is_a_finding(mahan: Path, native: Path) -> None:
    assert "TOK004" in found(verify(mahan, boundary="suffix=3"))
    # Identity and statistics were recorded under the recorded one.
    assert found(verify(native, level="full", boundary="suffix=3")) == {"TOK004", "TOK021"}


def test_select_and_ignore(tmp_path: Path) -> None:
    write_pair(tmp_path / "web", [[5, 6], [0, 0]])
    whole = {"boundary": "suffix=0", "vocab": 6, "level": "full"}
    assert found(verify(tmp_path, **whole)) == {"TOK020", "TOK021", "TOK022"}  # type: ignore[arg-type]
    assert found(verify(tmp_path, select=["TOK02"], ignore=["tok021"], **whole)) == {"TOK020", "TOK022"}  # type: ignore[arg-type]
    report = verify(tmp_path, ignore=["TOK"], **whole)  # type: ignore[arg-type]
    assert (report.exit_status, report.ignored) == (0, {"TOK020": 1, "TOK021": 1, "TOK022": 1})


def test_findings_of_a_code_are_counted_and_the_first_are_kept(tmp_path: Path) -> None:
    write_pair(tmp_path / "web", [[1, 2]] * 5000)
    for level, sample, count in (("full", None, 5000), ("quick", 100, 100)):
        report = verify(tmp_path, level=level, sample=sample, boundary="suffix=0")
        assert report.counts == {"TOK021": count}
        assert len(report.findings) == 20
        assert report.severities == {"error": count}


def test_a_sample_is_the_same_for_the_same_seed(tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    write_pair(tmp_path / "web", [[1, int(rng.integers(0, 3))] for _ in range(3000)])
    runs = [verify(tmp_path, sample=50, seed=seed, boundary="suffix=0").findings for seed in (0, 0, 1)]
    assert runs[0] == runs[1]
    assert runs[0] != runs[2]


def test_names_that_are_not_padded_are_a_warning(tmp_path: Path) -> None:
    for number in (9, 10):
        write_pair(tmp_path / f"part-{number}", [[1]])
    report = verify(tmp_path)
    assert (found(report), report.exit_status) == ({"DOC010"}, 0)
    assert verify(tmp_path, strict=True).exit_status == 1


def test_shards_of_two_widths_are_a_finding(tmp_path: Path) -> None:
    write_pair(tmp_path / "a", [[1]])
    write_pair(tmp_path / "b", [[1]], "int32")
    assert found(verify(tmp_path)) == {"TOK002"}


def test_a_bad_shard_does_not_hide_the_others(tmp_path: Path) -> None:
    write_pair(tmp_path / "a", [[1, 0]])
    write_pair(tmp_path / "b", [[1, 2]])
    (tmp_path / "a.idx").write_bytes(b"")
    report = verify(tmp_path, level="full", boundary="suffix=0")
    assert {(f.code, f.shard) for f in report.findings} == {("MEG002", "a"), ("TOK021", "b")}


def test_an_asked_check_that_cannot_be_made_is_incomplete(tmp_path: Path, native: Path) -> None:
    write_pair(tmp_path / "web", [[1]])
    report = verify(tmp_path, tokenizer=native / "tokenizer" / "tokenizer.json")
    assert report.exit_status == 4
    assert verify(tmp_path, source=tmp_path).exit_status == 4


def test_usage() -> None:
    with pytest.raises(UsageError, match="USE003"):
        verify(".", level="deep")
    with pytest.raises(UsageError, match="USE003"):
        verify(".", sample=-1)
    with pytest.raises(StorageError, match="STO001"):
        verify("no/such/path")


def test_an_empty_folder_holds_no_shard(tmp_path: Path) -> None:
    assert found(verify(tmp_path)) == {"DOC006"}


def test_progress_ends_at_the_whole(mahan: Path) -> None:
    seen: list[tuple[int, int | None, int]] = []
    verify(mahan, level="full", progress=lambda *row: seen.append(row))
    assert seen[-1][0] == seen[-1][1]


def test_the_report_is_json_and_lines(mahan: Path) -> None:
    report = verify(mahan, level="full")
    assert json.loads(json.dumps(report.as_dict()))["status"] == "ok"
    share = report.facts["validation_share_of_documents"]
    assert any(f"validation: {share:.4%} of documents" in line for line in report.lines())
    broken = verify_store(changed(files_of(mahan), "stats.json", b"{"))
    assert any(line.startswith("error MAN001 stats.json byte 1") for line in broken.lines())


def test_every_code_that_a_damage_names_is_in_the_table() -> None:
    assert {row[1] for row in [*DAMAGE, *NATIVE_DAMAGE]} <= set(codes())


# ---- what a report says --------------------------------------------------------------------------------------------


def test_a_shard_that_cannot_be_read_is_never_ok(mahan: Path) -> None:
    store = changed(files_of(mahan), "shards/train/part-000000.bin", b"xx")
    assert verify_store(store).status == "broken"
    for select, ignore in ((["SPL"], []), (["TOK022"], []), ([], ["MEG", "MAN"])):
        report = verify_selected(store, select, ignore)
        assert (report.status, report.counts) == ("incomplete", {}), report.lines()
        assert "1 check could not be made" in report.verdict()


def verify_selected(store: MemoryStore, select: list[str], ignore: list[str]) -> Report:
    from tokenreel.verify.finding import Findings
    from tokenreel.verify.target import open_store
    from tokenreel.verify.verify import Options, _run

    findings = Findings(select, ignore)
    return _run(open_store(store, "corpus", findings), findings, Options())


def test_one_code_of_a_family_runs_its_rule(tmp_path: Path) -> None:
    write_pair(tmp_path / "web", [[1, 2]])
    (tmp_path / "web.bin").write_bytes(b"x")
    assert found(verify(tmp_path, select=["MEG018"])) == {"MEG018"}


def test_nothing_is_both_checked_and_not_checked(mahan: Path, native: Path, tmp_path: Path) -> None:
    write_pair(tmp_path / "web", [[1, 2]])
    for path in (mahan, native, tmp_path, mahan / "train"):
        for level in ("quick", "full"):
            report = verify(path, level=level)
            assert not {note.what for note in report.not_checked} & set(report.checked)
            assert len(report.checked) == len(set(report.checked))
    bare = verify(tmp_path, level="full")
    assert bare.checked == (
        "headers, sizes and tables of every shard",
        "one integer type, and the recorded one",
        "one format",
        "sets of numbered shards have all their members",
    )
    assert not verify(tmp_path, sample=0, boundary="suffix=2").checked[4:]


def test_an_option_that_cannot_be_right_is_a_usage_error(mahan: Path) -> None:
    for options in ({"select": ["MEG40"]}, {"ignore": ["NO"]}, {"accept": ["MEG"]}):
        with pytest.raises(UsageError, match="USE001"):
            verify(mahan, **options)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="cannot be overruled"):
        verify(mahan, accept=["MAN040"])


def test_counts_say_whose_number_is_whose(mahan: Path, native: Path) -> None:
    receipt = edit(RECEIPT, lambda r: r["splits"]["train"].update(documents=9))(files_of(mahan))
    texts = [f.text for f in verify_store(receipt).findings if f.code == "MAN041"]
    documents = (len(files_of(mahan)["shards/train/part-000000.idx"]) - 42) // 20
    assert texts == [f"the receipt says 9 documents in train, and the shard holds {documents}"]
    manifest = edit("tokenreel.json", lambda m: m["splits"]["train"]["shards"][0].update(tokens=1))(files_of(native))
    [text] = [f.text for f in verify_store(manifest).findings if f.code == "MAN052"]
    assert text.startswith("tokenreel.json says 1 token for this shard, and its tables hold ")


def test_a_hint_says_what_documents_end_with(mahan: Path) -> None:
    given = verify(mahan, level="full", boundary="prefix=7,suffix=3")
    assert given.hints == ("16 of 16 documents read end with 256: did you mean --boundary prefix=7,suffix=256?",)
    config = edit("run_config.json", lambda c: c.update(eod_id=1))(files_of(mahan))
    assert verify_store(config).hints == ("16 of 16 documents read end with 256, not with the recorded 1",)
    assert verify(mahan, level="full").hints == ()
