"""Random configurations of MaxText jobs, and the rows that its hosts read, written the slow way from its description.

Windows of direct files go through Grain itself: its shuffle, its repeats, its mixture.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

EOD = 2
NAMES = ("inputs", "targets", "inputs_segmentation", "targets_segmentation", "inputs_position", "targets_position")

Documents = list[list[int]]


def write_datasets(folder: Path, number: int) -> dict[str, Documents]:
    """Write four data sets for job `number`, one of them a folder of shards; returns documents by path, in MaxText's order."""
    from tokenreel.testing import write_corpus

    draw = np.random.RandomState(number)
    out = {}
    for k, name in enumerate(("web", "code", "books", "shards")):
        documents: Documents = []
        for _ in range(draw.randint(8, 40)):
            ids = draw.randint(0, 90, size=draw.randint(1, 25))
            if draw.rand() < 0.9:
                ids[ids == EOD] = 4
                ids = np.append(ids, EOD)
            documents.append(ids.tolist())
        write_corpus(folder / name, documents, shards=3 if k == 3 else 1)
        out[str(folder / name)] = documents
    return out


def random_config(number: int, folder: Path, paths: list[str]) -> tuple[dict[str, Any], int]:
    """Return the configuration of a job, and its number of hosts."""
    draw = np.random.RandomState(20_000 + number)

    def flag(p: float = 0.5) -> bool:
        return bool(draw.rand() < p)

    direct, hosts = flag(0.4), int(draw.choice([1, 1, 2, 3]))
    chosen = [paths[k] for k in draw.choice(4, draw.randint(1, 4), replace=False)]
    mixture = len(chosen) > 1 and flag(0.8)

    def spec(k: int, some: list[str]) -> str:
        return some[0] if direct else f"{folder}/index-{k}|{':'.join(some)}"

    if mixture:
        weights = [0.0 if k and flag(0.2) else float(draw.randint(1, 30)) / 3 for k in range(len(chosen))]
        files = ";".join(f"{spec(k, [path])},{weights[k]}" for k, path in enumerate(chosen))
    else:
        files = spec(0, chosen)
    config: dict[str, Any] = {
        "grain_file_type": "mmap" if direct else "mmap_npy",
        "grain_train_files": files,
        "max_target_length": int(draw.randint(4, 40)),
        "global_batch_size_to_load": hosts * int(draw.randint(1, 5)),
        "steps": int(draw.randint(1, 12)) if flag(0.8) else -1,
        "data_shuffle_seed": int(draw.randint(0, 3000)),
        "enable_data_shuffling": flag(0.7),
        "num_epoch": int(draw.randint(1, 4)),
        "mmap_eod_id": EOD,
        "reset_attention_mask": flag(0.7),
        "eod_mask_loss": flag(),
        "packing_max_segments_per_sample": int(draw.choice([0, 1, 3, 8, 25])),
    }
    if not direct and flag(0.3):
        config["mmap_npy_split"] = ("8,2", "1,1", "0.9, 0.1", "5,3,2")[draw.randint(4)]
    if flag(0.3):
        config |= {
            "grain_eval_files": files,
            "eval_interval": int(draw.randint(1, 9)),
            "eval_steps": int(draw.choice([-1, 2])),
        }
    return config, hosts


def rows_of_hosts(
    config: dict[str, Any], hosts: int, data: dict[str, Documents], *, evaluation: bool
) -> list[list[Any]]:
    """Return for each host the (inputs, targets, ...) rows that it reads to the end, in order."""
    direct, row = config["grain_file_type"] == "mmap", config["max_target_length"]
    files = config["grain_eval_files" if evaluation else "grain_train_files"]
    entries = [entry.rsplit(",", 1) for entry in files.split(";")] if ";" in files else [[files, "1"]]
    read = [(spec, float(weight)) for spec, weight in entries if float(weight) > 0]
    whole = [_documents(spec, data) for spec, _ in read]
    weights = [weight / sum(one for _, one in read) for _, weight in read]
    if direct:
        rows = _direct(config, hosts, whole, weights, row, evaluation=evaluation)
    else:
        one = _npy(config, whole, weights, row, mixture=";" in files, evaluation=evaluation)
        rows = [one[host::hosts] for host in range(hosts)]
    return [[_laid_out(config, text, direct=direct) for text in mine] for mine in rows]


def _documents(spec: str, data: dict[str, Documents]) -> Documents:
    paths = spec.rpartition("|")[2].split(":")
    # Shards of a folder sort among the others by their whole names; here no name is the beginning of another.
    return [document for path in sorted(paths) for document in data[path]]


def _direct(
    config: dict[str, Any], hosts: int, whole: list[Documents], weights: list[float], row: int, *, evaluation: bool
) -> list[list[list[int]]]:
    import grain

    streams = [[token for document in documents for token in document] for documents in whole]
    windows = [[stream[k * row : k * row + row] for k in range(len(stream) // row)] for stream in streams]
    if not all(windows):
        raise ValueError(windows)
    rows = []
    for host in range(hosts):
        parts = []
        for k, mine in enumerate(windows):
            # Numbers in place of windows: Grain mixes those alike.
            part = grain.MapDataset.range(len(mine)).map(lambda n, k=k: (k, int(n)))
            if config["enable_data_shuffling"] and not evaluation:
                part = part.shuffle(config["data_shuffle_seed"])
            part = part.repeat(1 if evaluation else config["num_epoch"])[host::hosts]
            parts.append(part.to_iter_dataset(grain.ReadOptions(num_threads=0)))
        mixed = parts[0] if len(parts) == 1 else grain.IterDataset.mix(parts, weights)
        rows.append([windows[k][n] for k, n in mixed])
    # Hosts of a mixture may end apart; a job ends for all where the first of them does.
    end = min(len(mine) * hosts + host for host, mine in enumerate(rows))
    return [mine[: -(-(end - host) // hosts)] for host, mine in enumerate(rows)]


def _npy(
    config: dict[str, Any], whole: list[Documents], weights: list[float], row: int, *, mixture: bool, evaluation: bool
) -> list[list[int]]:
    steps, batch = config["steps"], config["global_batch_size_to_load"]
    asked: int | None = steps * batch if steps > 0 else None
    repeats = config["num_epoch"]
    if evaluation:
        rounds = -(-steps // config["eval_interval"]) if config["eval_interval"] > 0 and steps > 0 else 1
        asked = rounds * config["eval_steps"] * batch if config["eval_steps"] > 0 else None
        repeats = 1
    share = np.array(weights)
    need = [asked] * len(whole)
    if mixture and asked is not None:
        need = [int(np.ceil(np.ceil(asked * w) * (1 + 0.5 / 100))) for w in share]
    made = [_one(config, documents, row, n, repeats, int(evaluation)) for documents, n in zip(whole, need, strict=True)]
    if len(made) == 1:
        return made[0]
    size = asked if asked is not None else int(min(len(one) / w for one, w in zip(made, share, strict=True)))
    second = share / np.sum(share)
    used, out = [0] * len(made), []
    for s in range(size):
        lags = [float(w) * max(float(s), 1.0) - float(u) for w, u in zip(second, used, strict=True)]
        best = lags.index(max(lags))
        out.append(made[best][used[best]])
        used[best] += 1
    return out


def _one(
    config: dict[str, Any], documents: Documents, row: int, asked: int | None, repeats: int, part: int
) -> list[list[int]]:
    split = config.get("mmap_npy_split", "")
    if split:
        shares = [float(one) for one in split.split(",")]
        edges = [0.0]
        for one in shares:
            edges.append(edges[-1] + one / sum(shares))
        documents = documents[round(edges[part] * len(documents)) : round(edges[part + 1] * len(documents))]
    tokens = sum(map(len, documents))
    need = asked if asked is not None else (tokens - 1) // row * max(1, repeats)
    epochs = max(1, -(-(need * row + 1) // tokens))
    before = ((epochs - 1) * tokens - 1) // row
    separate = epochs > 1 and need - before < int(0.80 * ((tokens - 1) // row))
    random = np.random.RandomState(config["data_shuffle_seed"])

    def shuffled(numbers: list[int]) -> list[int]:
        array = np.array(numbers, dtype=np.int64)
        random.shuffle(array)
        found: list[int] = array.tolist()
        return found

    every = list(range(len(documents)))
    order = shuffled(every * (epochs - 1)) + shuffled(every) if separate else shuffled(every * epochs)
    stream = [token for d in order for token in documents[d]]
    count = (len(stream) - 1) // row
    if count < 1:
        raise ValueError(count)
    numbers = (
        shuffled(list(range(before))) + shuffled(list(range(before, count)))
        if separate
        else shuffled(list(range(count)))
    )
    return [stream[k * row : k * row + row + 1] for k in numbers]


def _laid_out(config: dict[str, Any], text: list[int], *, direct: bool) -> dict[str, list[int]]:
    """Return the six arrays of one sample."""
    row, reset, masked = config["max_target_length"], config["reset_attention_mask"], config["eod_mask_loss"]
    inputs = text if direct else text[:-1]
    starts = [0] + [k + 1 for k in range(row - 1) if inputs[k] == EOD] if reset else [0]
    most = config["packing_max_segments_per_sample"]
    apart = row // most if reset and most > 0 else 0
    if apart > 1:
        kept = [0]
        for start in starts[1:]:
            if start - kept[-1] > apart:
                kept.append(start)
        starts = kept
    segments = [sum(start <= k for start in starts) for k in range(row)]
    positions = [k - max(start for start in starts if start <= k) for k in range(row)]
    if direct:
        if not reset and masked:
            segments = [0 if token == EOD else 1 for token in inputs]
        targets = [*inputs[1:], EOD]
        counted = [0 if target == EOD else one for target, one in zip(targets, [*segments[1:], 0], strict=True)]
    else:
        targets = text[1:]
        counted = [0 if masked and token == EOD else 1 for token in inputs]
    return dict(zip(NAMES, (inputs, targets, segments, counted, positions, positions), strict=True))
