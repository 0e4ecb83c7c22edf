from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.formats.megatron_cases import GOLDEN, MANIFEST, corpora, golden
from tests.formats.megatron_reference import CODES, Documents, build, parse
from tokenreel.errors import FormatError, StorageError, TokenError, UsageError
from tokenreel.formats import megatron_merge
from tokenreel.formats.megatron_merge import merge


def put(folder: Path, name: str, documents: Documents, dtype: str = "uint16") -> Path:
    idx, payload = build(documents, dtype)
    (folder / f"{name}.idx").write_bytes(idx)
    (folder / f"{name}.bin").write_bytes(payload)
    return folder / name


def bytes_of(prefix: Path) -> tuple[bytes, bytes]:
    return prefix.with_name(f"{prefix.name}.idx").read_bytes(), prefix.with_name(f"{prefix.name}.bin").read_bytes()


@pytest.mark.parametrize(
    ("name", "sources"),
    [("merged_u16", ["u16_short", "u16_b", "u16_long"]), ("merged_sent", ["i32_sentences", "i32_empties"])],
)
def test_megatron_merges_the_same_bytes(tmp_path: Path, name: str, sources: list[str]) -> None:
    files = merge([GOLDEN / "data" / source for source in sources], tmp_path / "p")
    facts = MANIFEST["datasets"][name]
    assert [file.sha256 for file in files] == [facts["sha256_bin"], facts["sha256_idx"]]
    assert bytes_of(tmp_path / "p") == golden(f"data/{name}")


@given(st.lists(corpora(), min_size=1, max_size=4), st.sampled_from([1, 3, 1 << 16]))
def test_any_pairs_are_appended(tmp_path_factory: Any, parts: list[tuple[str, Documents]], step: int) -> None:
    folder = tmp_path_factory.mktemp("m")
    sources = [put(folder, f"s{k}", documents, dtype) for k, (dtype, documents) in enumerate(parts)]
    want = [document for _, documents in parts for document in documents]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(megatron_merge, "_DOCUMENTS", step)
        merge(sources, folder / "p", dtype="int64")
    assert bytes_of(folder / "p") == build(want, "int64")


def test_types_are_kept_or_must_be_given(tmp_path: Path) -> None:
    a, b = put(tmp_path, "a", [[[1, 2]]], "uint16"), put(tmp_path, "b", [[[3]]], "int32")
    with pytest.raises(FormatError) as caught:
        merge([a, b], tmp_path / "p")
    assert (caught.value.code, caught.value.expected, caught.value.found) == ("MEG027", "uint16", "int32")
    assert "--dtype" in str(caught.value)
    merge([a, b], tmp_path / "p", dtype="int32")
    assert bytes_of(tmp_path / "p") == build([[[1, 2]], [[3]]], "int32")
    merge([a, a], tmp_path / "q")
    assert bytes_of(tmp_path / "q") == build([[[1, 2]], [[1, 2]]], "uint16")


def test_narrowing_checks_every_id(tmp_path: Path) -> None:
    a = put(tmp_path, "a", [[[1]], [[2, 70000]]], "int32")
    with pytest.raises(TokenError, match="TOK010") as caught:
        merge([a], tmp_path / "p", dtype="uint16")
    assert (caught.value.where["document"], caught.value.found) == (1, 70000)
    assert not list(tmp_path.glob("*p.*"))


def test_damaged_or_missing_sources_are_refused_and_leave_nothing(tmp_path: Path) -> None:
    sound = put(tmp_path, "a", [[[1]]], "int32")
    for name, code in (("pointer_wrong", "MEG016"), ("bin_truncated", "MEG018"), ("idx_trailing", "MEG009")):
        with pytest.raises(FormatError, match=code):
            merge([sound, GOLDEN / "malformed" / name], tmp_path / "p")
    with pytest.raises(StorageError, match="STO001"):
        merge([sound, tmp_path / "absent"], tmp_path / "p")
    with pytest.raises(UsageError, match="MEG032"):
        merge([], tmp_path / "p")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.bin", "a.idx"]
    merge([sound, GOLDEN / "malformed" / "idx_trailing"], tmp_path / "p", accept=["MEG009"])
    assert len(parse(*bytes_of(tmp_path / "p"))) == 212


@pytest.mark.parametrize("damage", ["payload", "lengths", "documents"])
def test_a_result_that_reads_back_differently_gets_no_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: str
) -> None:
    a = put(tmp_path, "a", [[[1, 2], [3]], [[4, 5, 6]]], "uint16")
    real = megatron_merge.MegatronWriter.finish

    def finish(self: Any, check: Any) -> Any:
        def damaged(payload: Path, index: Path) -> None:
            with (payload if damage == "payload" else index).open("r+b") as file:
                if damage == "payload":
                    file.seek(3)
                    file.write(b"\x01")
                else:  # tables that are sound in themselves, and not the sources'
                    other: Documents = (
                        [[[1], [2, 3]], [[4, 5, 6]]] if damage == "lengths" else [[[1, 2]], [[3], [4, 5, 6]]]
                    )
                    file.write(build(other, "uint16")[0])
            check(payload, index)

        return real(self, damaged)

    monkeypatch.setattr(megatron_merge.MegatronWriter, "finish", finish)
    with pytest.raises(FormatError, match="MEG028"):
        merge([a], tmp_path / "p")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.bin", "a.idx"]


def test_the_result_may_replace_one_of_its_sources(tmp_path: Path) -> None:
    a, b = put(tmp_path, "a", [[[1]]]), put(tmp_path, "b", [[[2]]])
    merge([a, b], a)
    assert bytes_of(a) == build([[[1]], [[2]]], "uint16")


def test_all_integer_types_can_be_merged(tmp_path: Path) -> None:
    for dtype in CODES:
        source = put(tmp_path, dtype, [[[1, 2]], [[int(np.iinfo(dtype).max)]]], dtype)
        merge([source, source], tmp_path / "p")
        assert len(parse(*bytes_of(tmp_path / "p"))) == 4
