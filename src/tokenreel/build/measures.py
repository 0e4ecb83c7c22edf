"""What can be measured of a text's bytes: words, symbols, repeated lines and n-grams; one compiled pass a document.

Words are runs of bytes between ASCII whitespace, lines end at a line feed, paragraphs at two or more. Lengths are in code
points. An n-gram counts as repeated from its second occurrence on, and the search goes on behind it, so that no character
counts twice. Hashes have 64 bits; two different things of one document that share one are not to be expected.
Source of the measures: Gopher (Rae et al. 2021, appendix A.1.1); shingles of lines are ours, for generated code.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tokenreel.order.kernels import inlined, kernel

if TYPE_CHECKING:
    import numpy.typing as npt

MEASURES = (
    "characters",
    "words",
    "word_length",
    "symbols",
    "bullets",
    "ellipses",
    "alphabetic",
    "stop_words",
    "lines_repeated",
    "line_characters_repeated",
    "paragraphs_repeated",
    "paragraph_characters_repeated",
    "top_2_gram",
    "top_3_gram",
    "top_4_gram",
    "repeated_5_grams",
    "repeated_6_grams",
    "repeated_7_grams",
    "repeated_8_grams",
    "repeated_9_grams",
    "repeated_10_grams",
    "shingles_repeated",
)
"""Columns of `measure`: characters, words, mean word length; `#` and ellipses for each word; shares of lines that begin with a
bullet, or end with an ellipsis; share of words with a letter; how many of Gopher's stop words occur; shares of repeated lines
and paragraphs, and of characters in them, in the most frequent n-gram, in repeated n-grams; share of repeated shingles."""

STOP_WORDS = ("the", "be", "to", "of", "and", "that", "have", "with")
SHINGLE = 3
"""Lines of a shingle; digits in them count as 0, space around them not at all."""

_SPACE = np.zeros(256, dtype=np.bool_)
_SPACE[[9, 10, 11, 12, 13, 32]] = True
_MIX = 0x9E3779B97F4A7C15
_SEED = 0xCBF29CE484222325


def stop_hashes() -> npt.NDArray[np.uint64]:
    """Return the hashes of the stop words, as the kernel makes them."""
    out = []
    for word in STOP_WORDS:
        value = _SEED
        for byte in word.encode():
            value = ((value ^ byte) * _MIX) & 0xFFFFFFFFFFFFFFFF
            value ^= value >> 29
        out.append(value)
    return np.array(out, dtype=np.uint64)


def measure(texts: Any) -> npt.NDArray[np.float64]:
    """Return the measures of an Arrow array of large strings, (texts, len(MEASURES)). Cost: about 10 ns a byte.

    >>> import pyarrow as pa
    >>> found = measure(pa.array(["to be or not", "- a\\n- a\\n"], pa.large_string()))
    >>> found[:, MEASURES.index("stop_words")].tolist(), found[1, MEASURES.index("lines_repeated")].tolist()
    ([2.0, 0.0], 0.5)
    """
    count = len(texts)
    out = np.zeros((count, len(MEASURES)), dtype=np.float64)
    if not count:
        return out
    offsets = np.frombuffer(texts.buffers()[1], "<i8")[texts.offset : texts.offset + count + 1]
    held = texts.buffers()[2]
    data = np.frombuffer(held, np.uint8) if held is not None and held.size else np.zeros(1, np.uint8)
    longest = int(np.diff(offsets).max())
    words = np.empty(longest // 2 + 2, dtype=np.uint64)
    begins, sizes = np.empty(len(words), dtype=np.int32), np.empty(len(words), dtype=np.int32)
    table = np.empty(1 << max(6, (2 * len(words)).bit_length()), dtype=np.uint64)
    counts = np.empty(len(table), dtype=np.int32)
    slots, again = np.empty(len(words), dtype=np.int32), np.empty(len(words) + 1, dtype=np.bool_)
    _measure(data, offsets, _SPACE, stop_hashes(), words, begins, sizes, table, counts, slots, again, out)
    return out


@inlined
def _put(table: Any, counts: Any, mask: Any, key: Any) -> Any:
    """Count a key; returns how often it stood before. A key of 0 is taken for 1: empty slots are 0."""
    if key == np.uint64(0):
        key = np.uint64(1)
    slot = np.int64((key ^ (key >> np.uint64(32))) & mask)
    while table[slot] != np.uint64(0) and table[slot] != key:
        slot = (slot + 1) & np.int64(mask)
    if table[slot] == np.uint64(0):
        table[slot] = key
        counts[slot] = 0
    counts[slot] += 1
    return counts[slot] - 1


@inlined
def _slot_of(table: Any, counts: Any, mask: Any, key: Any) -> Any:
    """Count a key as `_put` does; returns its slot."""
    if key == np.uint64(0):
        key = np.uint64(1)
    slot = np.int64((key ^ (key >> np.uint64(32))) & mask)
    while table[slot] != np.uint64(0) and table[slot] != key:
        slot = (slot + 1) & np.int64(mask)
    if table[slot] == np.uint64(0):
        table[slot] = key
        counts[slot] = 0
    counts[slot] += 1
    return slot


@inlined
def _clear(table: Any, need: Any) -> Any:
    size = 16
    while size < 2 * need:
        size *= 2
    for k in range(size):
        table[k] = 0
    return np.uint64(size - 1)


@inlined
def _step(value: Any, byte: Any) -> Any:
    value = (value ^ np.uint64(byte)) * np.uint64(0x9E3779B97F4A7C15)
    return value ^ (value >> np.uint64(29))


_R8, _R64 = "Array(uint8, 1, 'C', True)", "Array(int64, 1, 'C', True)"


@kernel(
    f"void({_R8}, {_R64}, boolean[::1], uint64[::1], uint64[::1], int32[::1], int32[::1], uint64[::1], int32[::1], "
    "int32[::1], boolean[::1], float64[:, ::1])"
)
def _measure(
    data: Any,
    offsets: Any,
    space: Any,
    stops: Any,
    words: Any,
    begins: Any,
    sizes: Any,
    table: Any,
    counts: Any,
    slots: Any,
    again: Any,
    out: Any,
) -> None:
    for d in range(len(offsets) - 1):
        low, high = offsets[d], offsets[d + 1]
        row = out[d]
        _word_measures(data, low, high, space, stops, words, begins, sizes, row)
        lines = np.int64(1)
        for at in range(low, high):
            lines += data[at] == 10
        _line_measures(data, low, high, lines, table, counts, row)
        _paragraph_measures(data, low, high, lines, table, counts, row)
        _shingle_measures(data, low, high, lines, table, counts, row)
        _gram_measures(words, begins, sizes, table, counts, slots, again, row)


@inlined
def _word_measures(
    data: Any, low: int, high: int, space: Any, stops: Any, words: Any, begins: Any, sizes: Any, row: Any
) -> None:
    characters, count, symbols, letters, inside = 0, 0, 0, 0, 0
    seen = np.int64(0)
    at = low
    while at < high:
        byte = data[at]
        if space[byte]:
            characters += 1
            at += 1
            continue
        begin, value, size, letter = characters, np.uint64(0xCBF29CE484222325), 0, False
        dots = 0
        while at < high and not space[data[at]]:
            byte = data[at]
            value = _step(value, byte)
            if byte & 0xC0 != 0x80:
                size += 1
            if byte >= 0x80 or 65 <= byte <= 90 or 97 <= byte <= 122:
                letter = True
            if byte == 35:
                symbols += 1
            dots = dots + 1 if byte == 46 else 0
            if dots == 3:
                symbols += 1
                dots = 0
            if byte == 0xA6 and at - low >= 2 and data[at - 1] == 0x80 and data[at - 2] == 0xE2:
                symbols += 1
            at += 1
        characters += size
        inside += size
        letters += letter
        for k in range(len(stops)):
            if stops[k] == value:
                seen |= np.int64(1) << k
        words[count] = value
        begins[count] = begin
        sizes[count] = size
        count += 1
    row[0] = characters
    row[1] = count
    if count:
        row[2] = inside / count
        row[3] = symbols / count
        row[6] = letters / count
    for k in range(len(stops)):
        row[7] += (seen >> k) & 1


@inlined
def _line_measures(data: Any, low: int, high: int, most: Any, table: Any, counts: Any, row: Any) -> None:
    lines, bullets, ellipses = 0, 0, 0
    again, again_size, all_size = 0, 0, 0
    mask = _clear(table, most)
    at = low
    while at < high:
        end = at
        value, size = np.uint64(0xCBF29CE484222325), 0
        while end < high and data[end] != 10:
            value = _step(value, data[end])
            size += data[end] & 0xC0 != 0x80
            end += 1
        first, last = at, end
        while first < end and (data[first] == 32 or data[first] == 9 or data[first] == 13):
            first += 1
        while last > first and (data[last - 1] == 32 or data[last - 1] == 9 or data[last - 1] == 13):
            last -= 1
        if last > first:
            lines += 1
            all_size += size
            bullet = data[first] == 45 or data[first] == 42
            if last - first >= 3 and data[first] == 0xE2 and data[first + 1] == 0x80 and data[first + 2] == 0xA2:
                bullet = True
            bullets += bullet
            if last - first >= 3:
                a, b, c = data[last - 3], data[last - 2], data[last - 1]
                ellipses += (a == 46 and b == 46 and c == 46) or (a == 0xE2 and b == 0x80 and c == 0xA6)
            if _put(table, counts, mask, value):
                again += 1
                again_size += size
        at = end + 1
    if lines:
        row[4] = bullets / lines
        row[5] = ellipses / lines
        row[8] = again / lines
        row[9] = again_size / all_size


@inlined
def _paragraph_measures(data: Any, low: int, high: int, most: Any, table: Any, counts: Any, row: Any) -> None:
    mask = _clear(table, most)
    paragraphs, again, again_size, all_size = 0, 0, 0, 0
    at = low
    while at < high:
        while at < high and data[at] == 10:
            at += 1
        if at == high:
            break
        value, size = np.uint64(0xCBF29CE484222325), 0
        while at < high and not (data[at] == 10 and (at + 1 == high or data[at + 1] == 10)):
            value = _step(value, data[at])
            size += data[at] & 0xC0 != 0x80
            at += 1
        paragraphs += 1
        all_size += size
        if _put(table, counts, mask, value):
            again += 1
            again_size += size
    if paragraphs:
        row[10] = again / paragraphs
        row[11] = again_size / all_size


@inlined
def _shingle_measures(data: Any, low: int, high: int, most: Any, table: Any, counts: Any, row: Any) -> None:
    mask = _clear(table, most)
    one, two, shingles, again = np.uint64(0), np.uint64(0), 0, 0
    at, lines = low, 0
    while at < high:
        value, first, blank = np.uint64(0xCBF29CE484222325), True, np.int64(0)
        while at < high and data[at] != 10:
            byte = data[at]
            if byte == 32 or byte == 9 or byte == 13:  # noqa: PLR1714 (compiled)
                blank += 1
            else:
                if not first:
                    for _ in range(blank):
                        value = _step(value, np.uint8(32))
                blank, first = np.int64(0), False
                value = _step(value, np.uint8(48) if 48 <= byte <= 57 else byte)
            at += 1
        at += 1
        if first:
            continue
        lines += 1
        if lines >= 3:
            key = _step(_step(value, np.uint8(1)) ^ (two * np.uint64(3)), np.uint8(2)) ^ (one * np.uint64(5))
            shingles += 1
            again += _put(table, counts, mask, key) > 0
        one, two = two, value
    if shingles:
        row[21] = again / shingles


@inlined
def _gram_measures(
    words: Any, begins: Any, sizes: Any, table: Any, counts: Any, slots: Any, again: Any, row: Any
) -> None:
    """Measure the n-grams of words. Only where both shorter ones in it stand elsewhere too can an n-gram be repeated."""
    count, characters = np.int64(row[1]), row[0]
    if not characters:
        return
    for k in range(count):
        again[k] = True
    for n in range(1, 11):
        last = count - n
        candidates = _both(again, last, n)
        if not candidates:
            return
        mask = _clear(table, candidates)
        most, most_size = 0, 0
        for k in range(last + 1):
            slots[k] = -1
            if not again[k]:
                continue
            slot = _slot_of(table, counts, mask, _gram_key(words, k, n))
            slots[k] = slot
            times = counts[slot]
            size = begins[k + n - 1] + sizes[k + n - 1] - begins[k]
            if times > most or (times == most and size > most_size):
                most, most_size = times, size
        for k in range(last + 1):
            again[k] = slots[k] >= 0 and counts[slots[k]] > 1
        again[last + 1] = False
        if 2 <= n <= 4:
            row[12 + n - 2] = most * most_size / characters if most > 1 else 0.0
        elif n >= 5:
            row[15 + n - 5] = _found_again(begins, sizes, counts, slots, again, last, n) / characters


@inlined
def _both(again: Any, last: Any, n: Any) -> Any:
    """Keep the places of which the next one stands elsewhere too; returns how many are left."""
    left = np.int64(0)
    for k in range(last + 1):
        again[k] = again[k] and (n == 1 or again[k + 1])
        left += again[k]
    return left


@inlined
def _found_again(begins: Any, sizes: Any, counts: Any, slots: Any, again: Any, last: Any, n: Any) -> Any:
    """Return the characters of n-grams that the search meets again. `counts` becomes whether it met them."""
    for k in range(last + 1):
        if again[k]:
            counts[slots[k]] = 0
    repeated = 0
    at: Any = np.int64(0)
    while at <= last:
        if not again[at]:
            at += 1
        elif counts[slots[at]]:
            repeated += begins[at + n - 1] + sizes[at + n - 1] - begins[at]
            at += n
        else:
            counts[slots[at]] = 1
            at += 1
    return repeated


@inlined
def _gram_key(words: Any, first: Any, n: Any) -> Any:
    key = np.uint64(n)
    for j in range(n):
        key = (key ^ words[first + j]) * np.uint64(0x9E3779B97F4A7C15)
        key ^= key >> np.uint64(31)
    return key
