"""Random configurations of Megatron jobs, and what their data sets hold, written the slow way from its description.

Run as a program where megatron-core is installed it reads jobs on stdin and writes what Megatron itself gives.
"""

from __future__ import annotations

import json
import sys
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

PARTS = ("train", "valid", "test")
EOD, PAD = 2, 3
SPLITS = ("1,0,0", "80,15,5", "70,20,10", "1,1,1", "0,1,0", "60,40", "2/1/1")
MOST = 14
"""Samples compared of each data set."""


def write_documents(folder: Path, number: int) -> list[str]:
    """Write three pairs for job `number`: lengths and ids drawn, some without EOD, some with empty documents."""
    from tokenreel.testing import write_corpus

    draw = np.random.RandomState(number)
    prefixes = []
    for k in range(3):
        ends, empties = draw.rand() < 0.75, draw.rand() < 0.3
        documents = []
        for _ in range(draw.randint(12, 60)):
            ids = draw.randint(0, 90, size=draw.randint(0 if empties else 1, 30))
            ids[ids == EOD] = 4
            documents.append(np.append(ids, EOD) if ends and len(ids) else ids)
        write_corpus(folder / f"set{k}", documents)
        prefixes.append(str(folder / f"set{k}"))
    return prefixes


def random_config(number: int, prefixes: list[str]) -> dict[str, Any]:
    """Return the attributes of a ``GPTDatasetConfig``, the tokenizer's ids and the samples of each part."""
    draw = np.random.RandomState(10_000 + number)

    def flag(p: float = 0.5) -> bool:
        return bool(draw.rand() < p)

    def blend(some: bool) -> list[Any]:
        chosen = [prefixes[k] for k in sorted(draw.choice(3, draw.randint(1, 4) if some else 1, replace=False))]
        return [chosen, [float(w) for w in draw.randint(1, 40, size=len(chosen)) / 7] if flag(0.7) else None]

    each = flag(0.3)
    config: dict[str, Any] = {
        "random_seed": int(draw.randint(0, 5000)),
        "sequence_length": int(draw.randint(3, 40)),
        "blend": None if each else blend(flag(0.6)),
        "blend_per_split": [blend(flag(0.7)) if k == 0 or flag(0.8) else None for k in range(3)] if each else None,
        "split": None if each else SPLITS[draw.randint(len(SPLITS))],
        "reset_position_ids": flag(),
        "reset_attention_mask": flag(),
        "eod_mask_loss": flag(),
        "create_attention_mask": flag(0.3),
        "drop_last_partial_validation_sequence": flag(0.6),
        "add_extra_token_to_sequence": flag(0.75),
        "mid_level_dataset_surplus": float(draw.choice([0.0, 0.005, 0.3])),
        "allow_ambiguous_pad_tokens": flag(0.3),
        "inter_document_masking": flag(0.2),
    }
    if each and flag(0.6):
        config["multiple_validation_sets"] = True
        config["full_validation"] = flag()
    sizes: list[int | None] = [int(draw.randint(1, 130)) if flag(0.8) else None for _ in range(3)]
    if config.get("full_validation"):
        sizes[1] = None
    for k in range(3):
        given = config["blend"] or (config["blend_per_split"] or [None] * 3)[k]
        if sizes[k] is None and given is not None:
            # Megatron refuses weights where it is not told how many samples.
            given[1] = None
        elif sizes[k] is None and config["blend_per_split"]:
            sizes[k] = 1
    pad = [-1, PAD, EOD, 70][draw.randint(4)]
    return {"config": config, "sizes": sizes, "tokenizer": {"eod": EOD, "eos": [EOD, 9][draw.randint(2)], "pad": pad}}


def tokenizer_of(said: dict[str, int]) -> Any:
    return SimpleNamespace(**said, unique_identifiers={"class": "x"}, special_tokens_dict={}, vocab_size=30_000)


# ---- the description -------------------------------------------------------------------------------------------------


class Refused(Exception):
    """What Megatron stops at, with an assertion or in a loop without an end."""


def datasets(job: dict[str, Any], documents: dict[str, list[list[int]]]) -> list[Any]:
    """Return the data set of each part: a list of samples, a list of such lists, or None."""
    config = job["config"]
    return [_part(job, config, k, documents) for k in range(3)]


def _part(job: dict[str, Any], config: dict[str, Any], k: int, documents: dict[str, list[list[int]]]) -> Any:
    size, each = job["sizes"][k], config["blend_per_split"]
    bounds: Any = (0, 1.0)
    blend = each[k] if each else config["blend"]
    if blend is None:
        return None
    if not each:
        bounds = _bounds(config["split"])[k]
        if bounds is None:
            return None
    prefixes, weights = blend

    def one(prefix: str, samples: int | None) -> list[dict[str, Any]]:
        return _gpt(job, config, k, documents[prefix], bounds, samples)

    if each and k == 1 and config.get("multiple_validation_sets") and len(prefixes) > 1:
        return [one(prefix, size) for prefix in prefixes]
    if len(prefixes) == 1 and (each or weights is None):
        return one(prefixes[0], size)
    if weights is None:
        made = [one(prefix, None) for prefix in prefixes]
        lengths = [len(rows) for rows in made]
        if min(lengths) == 0:
            raise Refused("a member without samples")
        if size is None:
            return _exhaust(made)
        return _greedy(made, _normal([float(n) for n in lengths]), min(size, sum(lengths)))
    if size is None:
        raise Refused("weights without a size")
    shares = _normal(weights)
    use = [int(np.ceil(size * w)) for w in shares]
    build = [int(np.ceil(np.ceil(size * w) * (1 + config["mid_level_dataset_surplus"]))) for w in shares]
    made = [one(prefix, n) for prefix, n in zip(prefixes, build, strict=True)]
    return _greedy(made, _normal(shares), sum(use))


def _normal(weights: list[float]) -> list[float]:
    array = np.array(weights, dtype=np.float64)
    return list((array / np.sum(array)).tolist())


def _bounds(split: str) -> list[tuple[float, float] | None]:
    import re

    shares = [float(one) for one in re.findall(r"[.0-9]+", split)]
    shares += [0.0] * (3 - len(shares))
    edges: list[float] = [0]
    for share in _normal(shares):
        edges.append(edges[-1] + share)
    return [(a, b) if b > a else None for a, b in pairwise(edges)]


def _greedy(made: list[list[Any]], weights: list[float], size: int) -> list[Any]:
    used, out = [0] * len(made), []
    for s in range(size):
        errors = [w * max(float(s), 1.0) - float(u) for w, u in zip(weights, used, strict=True)]
        i = errors.index(max(errors))
        if used[i] >= len(made[i]):
            raise Refused("oversampled")
        out.append({"dataset_id": i, **made[i][used[i]]})
        used[i] += 1
    return out


def _exhaust(made: list[list[Any]]) -> list[Any]:
    sizes = [len(rows) for rows in made]
    weights = [n / float(sum(sizes)) for n in sizes]
    used, out = [0] * len(made), []
    for s in range(sum(sizes)):
        left = [i for i in range(len(made)) if used[i] < sizes[i]]
        errors = [weights[i] * max(float(s), 1.0) - float(used[i]) for i in left]
        i = left[errors.index(max(errors))]
        out.append({"dataset_id": i, **made[i][used[i]]})
        used[i] += 1
    return out


def _gpt(
    job: dict[str, Any], config: dict[str, Any], k: int, documents: list[list[int]], bounds: Any, samples: int | None
) -> list[dict[str, Any]]:
    from tests.order.megatron_reference import build

    n = len(documents)
    first, last = round(bounds[0] * float(n)), round(bounds[1] * float(n))
    sizes = [len(one) for one in documents]
    row, ahead = config["sequence_length"], int(config["add_extra_token_to_sequence"])
    keep = k == 1 and not config["drop_last_partial_validation_sequence"]
    tokens = sum(sizes[first:last])
    if tokens <= 1:
        raise Refused("no tokens")
    order = build(sizes, first, last, row, ahead, samples, config["random_seed"], keep)
    if any(offset < 0 for _, offset in order.sample_index):
        raise Refused("a negative offset")
    out = []
    for number in order.shuffle_index:
        (b, o), (e, p) = order.sample_index[number], order.sample_index[number + 1]
        entries = [documents[d] for d in order.document_index[b : e + 1]]
        if b == e:
            parts = [entries[0][o : p + ahead]]
        else:
            parts = [entries[0][o:], *entries[1:-1], entries[-1][: p + ahead]]
        out.append(_row(config, job["tokenizer"], parts, row, ahead))
    return out


def _row(config: dict[str, Any], ids: dict[str, int], parts: list[list[int]], width: int, ahead: int) -> dict[str, Any]:
    eod, pad = ids["eod"], ids["pad"]
    if pad in (ids["eos"], eod) and not config["allow_ambiguous_pad_tokens"]:
        pad = -1
    text = [token for part in parts for token in part]
    text += [pad] * (width + ahead - len(text))
    tokens, labels = (text[:-1], text[1:]) if ahead else (text, [*text[1:], pad])
    mask = [0.0 if config["eod_mask_loss"] and token == eod else 1.0 for token in tokens]
    mask = [0.0 if label == pad else weight for label, weight in zip(labels, mask, strict=True)]
    positions, begins, start = [], [], 0
    for at, token in enumerate(tokens):
        begins.append(start)
        positions.append(at - start if config["reset_position_ids"] else at)
        start = at + 1 if token == eod else start
    out: dict[str, Any] = {
        "tokens": [0 if t == pad else t for t in tokens],
        "labels": [0 if t == pad else t for t in labels],
    }
    if config.get("inter_document_masking"):
        lengths = [len(part) for part in parts]
        if ahead:
            lengths[-1] -= 1
            if lengths[-1] == 0:
                lengths.pop()
        short = width - sum(lengths)
        if short and lengths:
            lengths[-1] += short
        elif short:
            lengths = [short]
        edges = np.cumsum([0, *lengths]).tolist()
        out["loss_mask"], out["position_ids"] = mask, [k for length in lengths for k in range(length)]
        out["cu_seqlens"], out["max_seqlen"] = edges + [width] * (width + 1 - len(edges)), max(lengths)
        return out
    if config["create_attention_mask"]:
        reset = config["reset_attention_mask"]
        out["attention_mask"] = [
            [[not ((begins[i] if reset else 0) <= j <= i) for j in range(width)] for i in range(width)]
        ]
    return {**out, "loss_mask": mask, "position_ids": positions}


# ---- Megatron itself -------------------------------------------------------------------------------------------------


def _peer() -> None:
    """Answer on the last line of stdout: for each job its parts, each a list of samples, or the error's name."""
    import warnings

    import torch
    from megatron.core.datasets.blended_megatron_dataset_builder import BlendedMegatronDatasetBuilder
    from megatron.core.datasets.gpt_dataset import GPTDataset, GPTDatasetConfig

    warnings.filterwarnings("ignore")
    torch.distributed.init_process_group("gloo", rank=0, world_size=1, store=torch.distributed.HashStore())

    def rows(dataset: Any) -> list[Any]:
        out = []
        for number in range(min(MOST, len(dataset))):
            for one in getattr(dataset, "datasets", [dataset]):
                # What the first sample masks would stay masked in the others.
                one.masks_and_position_ids_are_cached = False
            sample = dataset[number]
            out.append({name: np.asarray(value).tolist() for name, value in sample.items()})
        return [len(dataset), out]

    answers: list[Any] = []
    for job in json.load(sys.stdin):
        if job["config"].pop("inter_document_masking"):
            # Newer than this release.
            answers.append(None)
            continue
        try:
            config = GPTDatasetConfig(tokenizer=tokenizer_of(job["tokenizer"]), **job["config"])
            parts = BlendedMegatronDatasetBuilder(GPTDataset, job["sizes"], lambda: True, config).build()
            answers.append([[rows(x) for x in p] if isinstance(p, list) else p and rows(p) for p in parts])
        except Exception as error:  # noqa: BLE001 (what Megatron refuses)
            answers.append(f"{type(error).__name__}: {error}")
    sys.stdout.write("\n" + json.dumps(answers) + "\n")


if __name__ == "__main__":
    _peer()
