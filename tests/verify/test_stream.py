"""Reading ids: blocks of any size give the same hashes, findings and identity; samples are what they say."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tokenreel
from tests.verify.corpora import write_pair
from tokenreel.verify import sampled, stream, verify
from tokenreel.verify.finding import Findings
from tokenreel.verify.target import open_target


@pytest.mark.parametrize("block", [1, 7, 1 << 20])
@pytest.mark.parametrize("small", [0, 1 << 30], ids=["threads", "one thread"])
def test_any_block_size_gives_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block: int, small: int) -> None:
    rng = np.random.default_rng(3)
    for split in ("train", "validation"):
        for part in range(3):
            documents = [[*rng.integers(1, 9, rng.integers(0, 12)).tolist(), 0] for _ in range(20)]
            documents[4] = [1, 0, 2]  # the suffix inside, and none at the end
            write_pair(tmp_path / "shards" / split / f"part-{part}", documents)
    monkeypatch.setattr(stream, "BLOCK_TOKENS", block)
    monkeypatch.setattr(stream.batches, "__defaults__", (block,))
    monkeypatch.setattr(stream, "BLOCK_DOCUMENTS", 3)
    monkeypatch.setattr(stream, "PIECE", 2)
    monkeypatch.setattr(stream, "SMALL", small)
    findings = Findings()
    target = open_target(tmp_path, findings, boundary="suffix=0", vocab=8)
    read = stream.read_full(target, findings, ["train"])
    assert findings.counts["TOK021"] == findings.counts["TOK022"] == 6
    assert {f.document for f in findings.kept if f.code == "TOK022"} == {4}
    assert read.sha256 == {path: hashlib.sha256((tmp_path / path).read_bytes()).hexdigest() for path in target.sizes}
    corpus = tokenreel.open(tmp_path, boundary="suffix=0").split("train")
    assert read.identities == {"train": corpus.identity()}
    assert (read.documents, read.bytes) == (120, sum(target.sizes.values()))


def test_a_shard_that_cannot_be_read_is_hashed_as_bytes(tmp_path: Path) -> None:
    write_pair(tmp_path / "a", [[1, 0]])
    (tmp_path / "a.idx").write_bytes(b"nothing")
    findings = Findings()
    read = stream.read_full(open_target(tmp_path, findings), findings, [""])
    assert set(read.sha256) == {"a.bin", "a.idx"}
    assert read.identities == {}


@given(st.integers(0, 10**15), st.integers(0, 40), st.integers(0, 9))
def test_a_sample_is_sorted_distinct_and_as_large_as_asked(total: int, sample: int, seed: int) -> None:
    chosen = sampled.choose_documents(total, sample, seed)
    assert chosen == sorted(set(chosen))
    assert len(chosen) == min(total, sample)
    assert all(0 <= document < total for document in chosen)
    if 2 <= sample <= total:
        assert {0, total - 1} <= set(chosen)


def test_the_first_and_the_last_document_are_in_every_sample(tmp_path: Path) -> None:
    write_pair(tmp_path / "web", [[9], *([[1, 0]] * 500), [9]])
    report = verify(tmp_path, sample=2, boundary="suffix=0")
    assert [f.document for f in report.findings] == [0, 501]


def test_an_empty_corpus_is_fine(tmp_path: Path) -> None:
    write_pair(tmp_path / "web", [])
    for level in ("quick", "full"):
        assert verify(tmp_path, level=level, boundary="suffix=0", vocab=3).findings == ()


def test_empty_documents_lack_their_suffix(tmp_path: Path) -> None:
    write_pair(tmp_path / "web", [[], [1, 0], []])
    report = verify(tmp_path, level="full", boundary="suffix=0")
    assert [(f.document, f.found) for f in report.findings] == [(0, "an empty document"), (2, "an empty document")]
