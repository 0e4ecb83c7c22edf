"""Read structs of Thrift's compact protocol: footers and page headers of Parquet files, before anything is trusted."""

from __future__ import annotations

from typing import Any


class Compact:
    """Reads structs from bytes; IndexError where the bytes end, ValueError for what is no struct.

    What is made is at most in proportion to the bytes.

    >>> Compact(bytes([0x15, 6, 0x19, 0x25, 2, 4, 0])).struct()
    {1: 3, 2: [1, 2]}
    """

    __slots__ = ("_depth", "at", "data")

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0
        self._depth = 0

    def struct(self) -> dict[int, Any]:
        """Return a struct's fields by number: integers, Booleans, bytes, lists and structs; the rest is passed over."""
        self._depth += 1
        if self._depth > 32:
            raise ValueError("structs in structs")
        fields: dict[int, Any] = {}
        number = 0
        while head := self._byte():
            step, kind = head >> 4, head & 15
            number = number + step if step else self._zigzag()
            fields[number] = kind == 1 if kind in (1, 2) else self._value(kind)
        self._depth -= 1
        return fields

    def _value(self, kind: int) -> Any:
        if kind in (1, 2, 3):  # in a list, a Boolean is a byte
            return self._byte()
        if kind in (4, 5, 6):
            return self._zigzag()
        if kind == 7:
            return self._take(8)
        if kind == 8:
            return self._take(self._varint())
        if kind in (9, 10):
            head = self._byte()
            count = head >> 4 if head >> 4 < 15 else self._varint()
            if count > len(self.data) - self.at:
                raise IndexError
            self._depth += 1
            if self._depth > 32:
                raise ValueError("lists in lists")
            found = [self._value(head & 15) for _ in range(count)]
            self._depth -= 1
            return found
        if kind == 12:
            return self.struct()
        raise ValueError(f"type {kind}")

    def _byte(self) -> int:
        self.at += 1
        return self.data[self.at - 1]

    def _take(self, count: int) -> bytes:
        self.at += count
        if self.at > len(self.data):
            raise IndexError
        return self.data[self.at - count : self.at]

    def _varint(self) -> int:
        value = shift = 0
        while True:
            byte = self._byte()
            value |= (byte & 127) << shift
            if byte < 128:
                return value
            shift += 7
            if shift > 63:
                raise ValueError("a number of more than 64 bits")

    def _zigzag(self) -> int:
        value = self._varint()
        return (value >> 1) ^ -(value & 1)
