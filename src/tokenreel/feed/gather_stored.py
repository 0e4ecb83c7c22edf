"""Memory as an array, by its address: how one kernel reads every shard that a batch touches.

An address is the caller's word that the memory is there, is long enough, and stays until the kernel has returned.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from tokenreel.order.kernels import before_compiling

KINDS = tuple(np.dtype(name) for name in ("uint8", "int8", "int16", "uint16", "int32", "uint32", "int64"))
"""Stored types that kernels read, at the numbers by which they are told which one it is."""


def _there(address: int, count: int, dtype: Any) -> Any:
    if count == 0:
        return np.empty(0, dtype)
    size = int(count) * np.dtype(dtype).itemsize
    return np.frombuffer((ctypes.c_char * size).from_address(int(address)), dtype=dtype, count=count)


def stored_u8(address: int, count: int) -> Any:
    """Return `count` uint8 from an address; likewise those below, each of its type."""
    return _there(address, count, np.uint8)


def stored_i8(address: int, count: int) -> Any:
    """Return `count` int8."""
    return _there(address, count, np.int8)


def stored_i16(address: int, count: int) -> Any:
    """Return `count` int16."""
    return _there(address, count, np.int16)


def stored_u16(address: int, count: int) -> Any:
    """Return `count` uint16."""
    return _there(address, count, np.uint16)


def stored_i32(address: int, count: int) -> Any:
    """Return `count` int32."""
    return _there(address, count, np.int32)


def stored_u32(address: int, count: int) -> Any:
    """Return `count` uint32."""
    return _there(address, count, np.uint32)


def stored_i64(address: int, count: int) -> Any:
    """Return `count` int64."""
    return _there(address, count, np.int64)


def ask_to_read(address: int) -> None:
    """Have the line of memory at an address fetched, to be read soon; outside kernels nothing happens."""


READERS = (stored_u8, stored_i8, stored_i16, stored_u16, stored_i32, stored_u32, stored_i64)


@before_compiling
def _lower() -> None:
    """Make the readers known to numba: an array over the memory itself."""
    from numba import carray, types  # type: ignore[attr-defined]
    from numba.extending import intrinsic, overload

    @intrinsic
    def pointed(typing: Any, address: Any) -> Any:  # noqa: ARG001
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            return builder.inttoptr(arguments[0], context.get_value_type(signature.return_type))

        return types.voidptr(types.int64), generate

    @intrinsic
    def prefetch(typing: Any, address: Any) -> Any:  # noqa: ARG001
        return types.void(types.int64), _prefetch

    @overload(ask_to_read, strict=False, inline="always")
    def compiled_ask(address: Any) -> Any:  # noqa: ARG001
        return lambda address: prefetch(address)  # type: ignore[call-arg]  # noqa: PLW0108

    def lower(reader: Any, dtype: Any) -> None:
        @overload(reader, strict=False, inline="always")
        def compiled(address: Any, count: Any) -> Any:  # noqa: ARG001
            return lambda address, count: carray(pointed(address), (count,), dtype)  # type: ignore[call-arg]

    for reader, kind in zip(READERS, KINDS, strict=True):
        lower(reader, kind.type)


def _prefetch(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:  # noqa: ARG001
    """Emit a prefetch for reading, into all levels of the cache."""
    from llvmlite import ir  # type: ignore[import-untyped]

    i32 = ir.IntType(32)
    place = builder.inttoptr(arguments[0], ir.IntType(8).as_pointer())
    kind = ir.FunctionType(ir.VoidType(), [place.type, i32, i32, i32])
    function = builder.module.declare_intrinsic("llvm.prefetch", (place.type,), kind)
    builder.call(function, [place, *(ir.Constant(i32, value) for value in (0, 3, 1))])
    return context.get_dummy_value()
