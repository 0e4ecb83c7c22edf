"""Levanter's order written down from its definition: plain Python integers, one element at a time, sorting with `sorted`."""

from __future__ import annotations

import json
import math
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

GOLDEN = Path(__file__).parents[1] / "golden" / "levanter"
M = 0xFFFFFFFF
Key = tuple[int, int]


@cache
def manifest() -> Any:
    return json.loads((GOLDEN / "manifest.json").read_text())


def arrays(name: str) -> Any:
    return np.load(GOLDEN / name)


def threefry(key: Key, x0: int, x1: int) -> Key:
    ks = (*key, key[0] ^ key[1] ^ 0x1BD11BDA)
    x0, x1 = (x0 + ks[0]) & M, (x1 + ks[1]) & M
    for group in range(1, 6):
        for r in (13, 15, 26, 6) if group % 2 else (17, 29, 16, 24):
            x0 = (x0 + x1) & M
            x1 = ((x1 << r | x1 >> (32 - r)) & M) ^ x0
        x0, x1 = (x0 + ks[group % 3]) & M, (x1 + ks[(group + 1) % 3] + group) & M
    return x0, x1


def split(key: Key, n: int, partitionable: bool) -> list[Key]:
    if partitionable:
        return [threefry(key, i >> 32, i & M) for i in range(n)]
    pairs = [threefry(key, i, n + i) for i in range(n)]
    words = [a for a, _ in pairs] + [b for _, b in pairs]
    return [(words[2 * i], words[2 * i + 1]) for i in range(n)]


def fold_in(key: Key, data: int) -> Key:
    return threefry(key, 0, data & M)


def bits(key: Key, n: int, partitionable: bool) -> list[int]:
    if partitionable:
        return [a ^ b for a, b in (threefry(key, i >> 32, i & M) for i in range(n))]
    counters = [*range(n), 0] if n % 2 else list(range(n))
    half = len(counters) // 2
    pairs = [threefry(key, counters[i], counters[half + i]) for i in range(half)]
    return ([a for a, _ in pairs] + [b for _, b in pairs])[:n]


def randint(key: Key, high: int, partitionable: bool) -> int:
    first, second = split(key, 2, partitionable)
    a, b = bits(first, 1, partitionable)[0], bits(second, 1, partitionable)[0]
    m = ((1 << 16) % high) ** 2 & M
    return ((a % high * (m % high) & M) + b % high & M) % high


def permuted(key: Key, items: list[Any], partitionable: bool) -> list[Any]:
    n = len(items)
    for _ in range(math.ceil(3 * math.log(max(1, n)) / math.log(2**32 - 1))):
        key, sub = split(key, 2, partitionable)
        words = bits(sub, n, partitionable)
        items = [items[i] for i in sorted(range(n), key=words.__getitem__)]
    return items


def feistel(n: int, key: Key, x: int, partitionable: bool) -> int:
    size = (n - 1).bit_length()
    right = size - size // 2
    mask = (1 << right) - 1
    drawn = np.random.Generator(np.random.PCG64(randint(key, 1 << 30, partitionable)))
    keys = drawn.integers(0, 1 << right, size=5, dtype=np.uint64).tolist()
    if n == 1:
        return 0
    while True:
        low, high = x & mask, x >> right
        for k in keys:
            high, low = low, high ^ ((low * 2654435761 + k) & mask)
        x = high << right | low
        if x < n:
            return x


def linear(n: int, key: Key, x: int, partitionable: bool) -> int:
    if n == 1:
        return 0
    drawn = np.random.Generator(np.random.PCG64(randint(key, 1 << 30, partitionable)))
    a = int(drawn.integers(1, n))
    while math.gcd(a, n) != 1:
        a = int(drawn.integers(1, n))
    return (a * x + int(drawn.integers(0, n))) % n


def block_shuffled(n: int, io: int, window: int, key: Key, i: int, perm: Any, partitionable: bool) -> int:
    kb, kf, kt = split(key, 3, partitionable)
    full, tail = divmod(n, io)
    total = full + (tail > 0)
    last = -(-total // window) - 1
    k = min(i // (io * window), last)
    items = sum(1 for slot in range(k * window, min((k + 1) * window, total)) if slot < full) * io
    q = i - k * io * window
    if q < items:
        q = perm(items, fold_in(kf, k), q, partitionable) if items > 1 else q
        slot = k * window + q // io
        return (perm(full, kb, slot, partitionable) if full > 1 else slot) * io + q % io
    q -= items
    return full * io + (perm(tail, fold_in(kt, k), q, partitionable) if tail > 1 else q)


def era_shuffled(n: int, length: int, key: Key, i: int, perm: Any, partitionable: bool) -> int:
    era = i // length
    size = min(length, n - era * length)
    return era * length + int(perm(size, fold_in(key, era), i - era * length, partitionable))


def mixed(counts: list[list[int]], starts: list[int], block: int, key: Key, g: int, partitionable: bool) -> Any:
    """Component and number of place g of a mixture, by counts of its stages."""
    b = g // block
    stage = max(s for s, start in enumerate(starts) if start <= b * block)
    plain = [(c, r) for c, n in enumerate(counts[stage]) for r in range(n)]
    c, r = permuted(fold_in(key, b), plain, partitionable)[g % block]
    before = sum(counts[s][c] * (starts[s + 1] - starts[s]) // block for s in range(stage))
    return c, before + (b - starts[stage] // block) * counts[stage][c] + r
