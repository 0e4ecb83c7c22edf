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
    from collections.abc import Iterable

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

LINES, GRAMS, SHINGLES = 1, 2, 4
ALL = LINES | GRAMS | SHINGLES
_GROUPS = {GRAMS: ("top_", "repeated_"), SHINGLES: ("shingles_",), LINES: ("bullets", "ellipses", "line", "paragraph")}

_KINDS = np.zeros(256, dtype=np.uint8)
"""Of a byte: 1 a space, 2 of a letter, 4 begins a code point, 8 may belong to a symbol."""
_KINDS[[9, 10, 11, 12, 13, 32]] |= 1
_KINDS[[*range(65, 91), *range(97, 123), *range(128, 256)]] |= 2
_KINDS[[*range(128), *range(192, 256)]] |= 4
_KINDS[[35, 46, 0xA6]] |= 8
_MIX = 0x9E3779B97F4A7C15
_SEED = 0xCBF29CE484222325


def groups_of(names: Iterable[str]) -> int:
    """Return the groups that measures of these names belong to, for `measure`.

    >>> groups_of(["top_2_gram", "words"]) == GRAMS, groups_of(["words"])
    (True, 0)
    """
    listed = list(names)
    return sum(group for group, begins in _GROUPS.items() if any(name.startswith(begins) for name in listed))


def stop_hashes() -> npt.NDArray[np.uint64]:
    """Return the hashes of the stop words, as the kernel makes them."""

    def mixed(value: int, more: int) -> int:
        value = ((value ^ more) * _MIX) & 0xFFFFFFFFFFFFFFFF
        return value ^ (value >> 29)

    words = [word.encode() for word in STOP_WORDS]
    return np.array([mixed(mixed(_SEED, int.from_bytes(word)), len(word)) for word in words], dtype=np.uint64)


def measure(texts: Any, which: int = ALL) -> npt.NDArray[np.float64]:
    """Return the measures of an Arrow array of large strings, (texts, len(MEASURES)). Cost: about 8 ns a byte.

    `which` says the groups that are wanted: `LINES`, `GRAMS`, `SHINGLES`, or several; words are always measured, and
    measures of other groups are 0.

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
    # What a text does not need of these is never touched.
    words, keys = np.empty(longest // 2 + 2, dtype=np.uint64), np.empty(longest + 2, dtype=np.uint64)
    begins, sizes, first, counts, places = (np.empty(len(words), dtype=np.int32) for _ in range(5))
    ends, points = np.empty(longest + 2, dtype=np.int32), np.empty(longest + 2, dtype=np.int32)
    # Of a text of line feeds every byte ends a line: words are fewer.
    table = np.empty(1 << max(6, (2 * (longest + 2)).bit_length()), dtype=np.int32)
    _measure(
        data, offsets, which, _KINDS, stop_hashes(), words, begins, sizes, ends, points, keys, table, first, counts, places, out
    )  # fmt: skip
    return out


@inlined
def _first_of(table: Any, mask: Any, keys: Any, k: Any) -> Any:
    """Return the first place whose key is that of place `k`, which is put into the table where there is none."""
    key = keys[k] * np.uint64(0x9E3779B97F4A7C15)
    slot = np.int64((key ^ (key >> np.uint64(32))) & mask)
    while table[slot] >= 0:
        if keys[table[slot]] == keys[k]:
            return np.int64(table[slot])
        slot = (slot + 1) & np.int64(mask)
    table[slot] = k
    return np.int64(k)


@inlined
def _clear(table: Any, need: Any) -> Any:
    size = 16
    while size < 2 * need:
        size *= 2
    for k in range(size):
        table[k] = -1
    return np.uint64(size - 1)


@inlined
def _mixed(value: Any, more: Any) -> Any:
    value = (value ^ more) * np.uint64(0x9E3779B97F4A7C15)
    return value ^ (value >> np.uint64(29))


_R8, _R64 = "Array(uint8, 1, 'C', True)", "Array(int64, 1, 'C', True)"


@kernel(
    f"void({_R8}, {_R64}, int64, uint8[::1], uint64[::1], uint64[::1], int32[::1], int32[::1], int32[::1], int32[::1], "
    "uint64[::1], int32[::1], int32[::1], int32[::1], int32[::1], float64[:, ::1])"
)
def _measure(  # noqa: PLR0913, PLR0917 (what it writes to is made once a batch)
    data: Any,
    offsets: Any,
    which: Any,
    kinds: Any,
    stops: Any,
    words: Any,
    begins: Any,
    sizes: Any,
    ends: Any,
    points: Any,
    keys: Any,
    table: Any,
    first: Any,
    counts: Any,
    places: Any,
    out: Any,
) -> None:
    for d in range(len(offsets) - 1):
        low, high = offsets[d], offsets[d + 1]
        row = out[d]
        lines = _word_measures(data, low, high, kinds, stops, words, begins, sizes, ends, points, row)
        if which & 1:
            _line_measures(data, low, lines, ends, points, keys, table, row)
        if which & 2:
            _gram_measures(words, begins, sizes, table, first, counts, places, row)
        if which & 4:
            _shingle_measures(data, low, lines, ends, keys, table, row)


@inlined
def _word_measures(
    data: Any, low: Any, high: Any, kinds: Any, stops: Any, words: Any, begins: Any, sizes: Any, ends: Any, points: Any, row: Any
) -> Any:  # fmt: skip
    """Measure words; returns the number of lines, of which `ends` and `points` are the ends in bytes and code points."""
    characters, count, symbols, letters, inside, lines = 0, 0, 0, 0, 0, 0
    seen = np.int64(0)
    at = np.uint64(low)
    end = np.uint64(high)
    while at < end:
        kind = kinds[data[at]]
        if kind & np.uint8(1):
            if data[at] == 10:
                ends[lines] = np.int64(at) - low
                points[lines] = characters
                lines += 1
            characters += 1
            at += np.uint64(1)
            continue
        begin, value, chunk, size, had = at, np.uint64(0xCBF29CE484222325), np.uint64(0), 0, np.uint8(0)
        while True:
            chunk = (chunk << np.uint64(8)) | np.uint64(data[at])
            size += (kind >> np.uint8(2)) & np.uint8(1)
            had |= kind
            at += np.uint64(1)
            if (at - begin) & np.uint64(7) == np.uint64(0):
                value, chunk = _mixed(value, chunk), np.uint64(0)
            if at == end:
                break
            kind = kinds[data[at]]
            if kind & np.uint8(1):
                break
        value = _mixed(_mixed(value, chunk), np.uint64(at - begin))
        if had & np.uint8(8):
            symbols += _symbols(data, begin, at)
        if had & np.uint8(2):
            letters += 1
        if at - begin <= np.uint64(4):
            for k in range(len(stops)):
                if stops[k] == value:
                    seen |= np.int64(1) << k
        words[count] = value
        begins[count] = characters
        sizes[count] = size
        characters += size
        inside += size
        count += 1
    ends[lines] = high - low
    points[lines] = characters
    row[0] = characters
    row[1] = count
    if count:
        row[2] = inside / count
        row[3] = symbols / count
        row[6] = letters / count
    for k in range(len(stops)):
        row[7] += (seen >> k) & 1
    return np.int64(lines + 1)


@inlined
def _symbols(data: Any, begin: Any, end: Any) -> Any:
    """Return how many hash signs and ellipses a word has."""
    found, dots = 0, 0
    for at in range(begin, end):
        byte = data[at]
        found += byte == 35
        dots = dots + 1 if byte == 46 else 0
        if dots == 3:
            found += 1
            dots = 0
        if byte == 0xA6 and at >= begin + np.uint64(2):
            found += data[at - np.uint64(1)] == 0x80 and data[at - np.uint64(2)] == 0xE2
    return found


@inlined
def _hashed(data: Any, begin: Any, end: Any) -> Any:
    """Return the hash of some bytes, eight at a time."""
    value = np.uint64(0xCBF29CE484222325)
    at, stop = np.uint64(begin), np.uint64(end)
    while at + np.uint64(8) <= stop:
        chunk = np.uint64(0)
        for k in range(8):
            chunk |= np.uint64(data[at + np.uint64(k)]) << np.uint64(8 * k)
        value = _mixed(value, chunk)
        at += np.uint64(8)
    chunk = np.uint64(0)
    while at < stop:
        chunk = (chunk << np.uint64(8)) | np.uint64(data[at])
        at += np.uint64(1)
    return _mixed(_mixed(value, chunk), np.uint64(end - begin))


@inlined
def _line_measures(
    data: Any, low: Any, all_lines: Any, ends: Any, points: Any, keys: Any, table: Any, row: Any
) -> None:
    lines, bullets, ellipses = 0, 0, 0
    again, again_size, all_size = 0, 0, 0
    mask = _clear(table, all_lines)
    begin, point = low, np.int64(0)
    for k in range(all_lines):
        end = low + ends[k]
        first, last = begin, end
        while first < end and (data[first] == 32 or data[first] == 9 or data[first] == 13):
            first += 1
        while last > first and (data[last - 1] == 32 or data[last - 1] == 9 or data[last - 1] == 13):
            last -= 1
        keys[k] = _hashed(data, begin, end)
        if last > first:
            lines += 1
            all_size += points[k] - point
            bullet = data[first] == 45 or data[first] == 42
            if last - first >= 3:
                if data[first] == 0xE2 and data[first + 1] == 0x80 and data[first + 2] == 0xA2:
                    bullet = True
                a, b, c = data[last - 3], data[last - 2], data[last - 1]
                ellipses += (a == 46 and b == 46 and c == 46) or (a == 0xE2 and b == 0x80 and c == 0xA6)
            bullets += bullet
            if _first_of(table, mask, keys, k) != k:
                again += 1
                again_size += points[k] - point
        begin = end + 1
        point = np.int64(points[k]) + 1
    if lines:
        row[4] = bullets / lines
        row[5] = ellipses / lines
        row[8] = again / lines
        row[9] = again_size / all_size
    _paragraph_measures(all_lines, ends, points, keys, table, row)


@inlined
def _paragraph_measures(all_lines: Any, ends: Any, points: Any, keys: Any, table: Any, row: Any) -> None:
    """Measure runs of lines that are not empty; `keys` are the lines', and become the paragraphs'."""
    mask = _clear(table, all_lines)
    paragraphs, again, again_size, all_size = 0, 0, 0, 0
    k = np.int64(0)
    while k < all_lines:
        if ends[k] == (ends[k - 1] + 1 if k else 0):
            k += 1
            continue
        point = points[k - 1] + 1 if k else 0
        value = np.uint64(0xCBF29CE484222325)
        while k < all_lines and ends[k] != (ends[k - 1] + 1 if k else 0):
            value = _mixed(value, keys[k])
            k += 1
        size = points[k - 1] - point
        keys[paragraphs] = value
        all_size += size
        if _first_of(table, mask, keys, paragraphs) != paragraphs:
            again += 1
            again_size += size
        paragraphs += 1
    if paragraphs:
        row[10] = again / paragraphs
        row[11] = again_size / all_size


@inlined
def _shingle_measures(data: Any, low: Any, all_lines: Any, ends: Any, keys: Any, table: Any, row: Any) -> None:
    mask = _clear(table, all_lines)
    one, two, shingles, again = np.uint64(0), np.uint64(0), 0, 0
    lines, begin = 0, low
    for k in range(all_lines):
        value, first, blank = np.uint64(0xCBF29CE484222325), True, np.int64(0)
        for at in range(begin, low + ends[k]):
            byte = data[at]
            if byte == 32 or byte == 9 or byte == 13:  # noqa: PLR1714 (compiled)
                blank += 1
            else:
                if not first:
                    for _ in range(blank):
                        value = _mixed(value, np.uint64(32))
                blank, first = np.int64(0), False
                value = _mixed(value, np.uint64(48 if 48 <= byte <= 57 else byte))
        begin = low + ends[k] + 1
        if first:
            continue
        lines += 1
        if lines >= 3:
            key = _mixed(_mixed(value, np.uint64(1)) ^ (two * np.uint64(3)), np.uint64(2)) ^ (one * np.uint64(5))
            keys[shingles] = key
            again += _first_of(table, mask, keys, shingles) != shingles
            shingles += 1
        one, two = two, value
    if shingles:
        row[21] = again / shingles


@inlined
def _gram_measures(
    words: Any, begins: Any, sizes: Any, table: Any, first: Any, counts: Any, places: Any, row: Any
) -> None:
    """Measure the n-grams of words, level by level: each is the pair of the two shorter ones in it.

    Only where both of these stand elsewhere too can an n-gram be repeated. `first` is, of every place, the first one with
    the same n-gram of the level before; `places` are those whose n-gram stands more than once.
    """
    count, characters = np.int64(row[1]), row[0]
    left = np.int64(0)
    mask = _clear(table, count)
    for k in range(count):
        counts[k] = 0
        first[k] = _first_of(table, mask, words, k)
        counts[first[k]] += 1
    for k in range(count):
        if counts[first[k]] > 1:
            places[left] = k
            left += 1
    for n in range(2, 11):
        candidates, most, most_size = np.int64(0), 0, 0
        mask = _clear(table, left)
        for j in range(left - 1):
            k = places[j]
            if places[j + 1] != k + 1:
                continue
            words[k] = (np.uint64(first[k]) << np.uint64(32)) | np.uint64(first[k + 1])
            counts[k] = 0
            mine = _first_of(table, mask, words, k)
            first[k] = mine
            counts[mine] += 1
            places[candidates] = k
            candidates += 1
            if n <= 4:
                times, size = counts[mine], begins[k + n - 1] + sizes[k + n - 1] - begins[k]
                if times > most or (times == most and size > most_size):
                    most, most_size = times, size
        left = np.int64(0)
        for j in range(candidates):
            if counts[first[places[j]]] > 1:
                places[left] = places[j]
                left += 1
        if not left:
            return
        if n <= 4:
            row[12 + n - 2] = most * most_size / characters
        else:
            row[15 + n - 5] = _found_again(begins, sizes, counts, first, places, left, n) / characters


@inlined
def _found_again(begins: Any, sizes: Any, counts: Any, first: Any, places: Any, left: Any, n: Any) -> Any:
    """Return the characters of n-grams that the search meets again. A count below 0: it met the n-gram."""
    repeated: Any = np.int64(0)
    at: Any = np.int64(0)
    for j in range(left):
        k = places[j]
        if k < at:
            continue
        if counts[first[k]] < 0:
            repeated += begins[k + n - 1] + sizes[k + n - 1] - begins[k]
            at = k + n
        else:
            counts[first[k]] = -1
    return repeated
