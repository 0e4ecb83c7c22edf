"""The probe finds leaks of attention, of positions and of labels, and says where it cannot see."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tokenreel.errors import UsageError
from tokenreel.spans import Flag, SpanTable
from tokenreel.testing import document_map, mask_probe

VOCAB = 11
random = np.random.default_rng(0)
TABLE, POSITIONS, OUT = (random.normal(size=shape) for shape in ((VOCAB, 6), (32, 6), (6, VOCAB)))
SEGMENTS = np.array([[1, 1, 1, 2, 2, 2, 3, 0], [1, 1, 2, 2, 2, 2, 2, 2]])


def rows(**more: Any) -> dict[str, Any]:
    ids = np.random.default_rng(1).integers(0, VOCAB, size=(2, 9))
    # The last label of a document is the first id of the next: masked.
    ends = np.concatenate((SEGMENTS[:, 1:] != SEGMENTS[:, :-1], np.zeros((2, 1), bool)), axis=1)
    return {
        "input_ids": ids[:, :-1],
        "labels": ids[:, 1:].copy(),
        "loss_mask": ((SEGMENTS != 0) & ~ends).astype(np.float32),
        "segment_ids": SEGMENTS,
        "position_ids": np.tile(np.arange(8), (2, 1)),
        **more,
    }


def model(segments: bool = True, across_rows: bool = False) -> Any:
    def run(arrays: dict[str, Any]) -> Any:
        x = TABLE[arrays["input_ids"]] + POSITIONS[arrays["position_ids"]]
        scores = x @ x.transpose(0, 2, 1)
        may = np.tril(np.ones((8, 8), dtype=bool))[None]
        if segments:
            may = may & (arrays["segment_ids"][:, :, None] == arrays["segment_ids"][:, None, :])
        scores = np.where(may, scores, -np.inf)
        weights = np.exp(scores - scores.max(axis=2, keepdims=True))
        y = (weights / weights.sum(axis=2, keepdims=True)) @ x
        if across_rows:
            y = y - y.mean(axis=0)
        logits = y @ OUT
        shifted = logits - logits.max(axis=2, keepdims=True)
        log = shifted - np.log(np.exp(shifted).sum(axis=2, keepdims=True))
        return logits, -np.take_along_axis(log, np.maximum(arrays["labels"], 0)[:, :, None], axis=2)[:, :, 0]

    return run


def test_a_model_that_keeps_documents_apart_holds() -> None:
    report = mask_probe(model(), rows(), vocab=VOCAB)
    assert report.lines() == ["5 documents changed, none moved another"]
    assert report.holds
    assert report.noise == 0


def test_a_mask_that_is_ignored_is_found() -> None:
    report = mask_probe(model(segments=False), rows(), vocab=VOCAB)
    pairs = {(leak.row, leak.changed, leak.document) for leak in report.leaks if leak.what == "output"}
    # Causal: only later documents move.
    assert pairs == {(0, 1, 2), (0, 1, 3), (0, 2, 3), (1, 1, 2)}
    assert "output at row" in report.lines()[0]


def test_rows_that_see_each_other_are_found() -> None:
    report = mask_probe(model(across_rows=True), rows(), vocab=VOCAB)
    assert {leak.row for leak in report.leaks} == {0, 1}


def test_a_label_from_the_next_document_is_found_unless_it_is_masked() -> None:
    everywhere = rows(loss_mask=np.ones((2, 8), dtype=np.float32))
    report = mask_probe(model(), everywhere, vocab=VOCAB)
    assert {leak.what for leak in report.leaks} == {"loss"}
    first = next(leak for leak in report.leaks if (leak.row, leak.changed) == (1, 2))
    assert (first.document, first.column) == (1, 1)


def test_segments_of_the_row_say_nothing_about_masks_that_were_never_made() -> None:
    one = np.ones((2, 8), dtype=np.int64)
    told_one_document = rows(segment_ids=one)
    assert mask_probe(model(), told_one_document, vocab=VOCAB).holds
    assert not mask_probe(model(), told_one_document, vocab=VOCAB, documents=SEGMENTS).holds


def test_a_model_that_does_not_look_is_no_proof() -> None:
    report = mask_probe(lambda arrays: np.zeros((2, 8, 3)), rows(), vocab=VOCAB)
    assert not report.holds
    assert len(report.blind) == 5


def test_noise_is_measured_and_more_than_it_is_a_leak() -> None:
    noisy = np.random.default_rng(5)

    def run(arrays: dict[str, Any]) -> Any:
        return model()(arrays)[0] * (1 + noisy.uniform(0, 1e-9))

    report = mask_probe(run, rows(), vocab=VOCAB, tolerance=1e-6)
    assert report.holds
    assert 0 < report.noise < 1e-6
    assert not mask_probe(lambda arrays: model(segments=False)(arrays)[0], rows(), vocab=VOCAB, tolerance=1e-6).holds


def test_a_nan_that_appears_is_a_leak() -> None:
    def run(arrays: dict[str, Any]) -> Any:
        out = model()(arrays)[0]
        out[0, 6] = np.nan if arrays["input_ids"][0, 0] != rows()["input_ids"][0, 0] else out[0, 6]
        return out

    leaks = mask_probe(run, rows(), vocab=VOCAB).leaks
    assert [(leak.document, leak.changed, leak.by) for leak in leaks] == [(3, 1, np.inf)]


def test_what_cannot_be_probed_is_refused() -> None:
    with pytest.raises(UsageError, match="USE003"):
        mask_probe(model(), {"x": SEGMENTS}, vocab=VOCAB)
    with pytest.raises(UsageError, match="USE003"):
        mask_probe(model(), {"input_ids": SEGMENTS}, vocab=VOCAB)
    with pytest.raises(UsageError, match="USE003"):
        mask_probe(model(), rows(), vocab=VOCAB, documents=SEGMENTS[:1])
    with pytest.raises(UsageError, match="USE003"):
        mask_probe(lambda arrays: np.zeros(3), rows(), vocab=VOCAB)


def test_the_map_of_documents() -> None:
    table = SpanTable.of(
        [0, 3, 5], [0, 7, 20, 0, 0], [2, 1, 2, 2, 3], document=[4, 9, -1, 4, 4], start=[0, 0, -1, 0, 0],
        flags=[Flag.TAIL, Flag.HEAD, Flag.PAD, Flag.HEAD | Flag.TAIL, Flag.HEAD],
    )  # fmt: skip
    assert document_map(table, 6).tolist() == [[1, 1, 2, 0, 0, 0], [1, 1, 2, 2, 2, 0]]
    with pytest.raises(UsageError, match="USE003"):
        document_map(SpanTable.of([0, 1], [0], [4]), 4)
