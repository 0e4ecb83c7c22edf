"""The one place where kernels are compiled: plain Python functions that numba compiles when they are first called.

A kernel is declared with its signatures and costs nothing until it is called; then numba is imported and the machine
code is read from a private cache (``$XDG_CACHE_HOME/tokenreel/kernels``, or where ``NUMBA_CACHE_DIR`` points) or compiled
and put there, in a folder named by a hash of the kernel as this process holds it: numba itself goes by the time of the
source file, which is another version's after an upgrade under a running process. Files appear there whole, so that any number of processes may start on a cold cache at once; where no
directory can be written, every process compiles for itself. Kernels release the GIL and hold no state; `.python` is the
same function uncompiled, what tests compare with. What a kernel returns never depends on the cache.
"""

from __future__ import annotations

import hashlib
from types import CodeType
from typing import TYPE_CHECKING, Any, TypeVar

from tokenreel.errors import require

if TYPE_CHECKING:
    from collections.abc import Callable

_Function = TypeVar("_Function", bound="Callable[..., Any]")
_inlined: list[Callable[..., Any]] = []
_registrars: list[Callable[[], None]] = []
_done: set[int] = set()
KERNELS: list[Kernel] = []
"""Every kernel declared by the modules imported so far: what warming an image goes through."""


class Kernel:
    """One function, compiled for its declared signatures at its first call."""

    __slots__ = ("_compiled", "_exact", "_signatures", "python")

    def __init__(self, function: Callable[..., Any], signatures: tuple[str, ...], exact: bool) -> None:
        self.python = function
        """The function as it was written."""
        self._signatures = signatures
        self._exact = exact
        self._compiled: Callable[..., Any] | None = None

    def __call__(self, *arguments: Any) -> Any:
        """Call the compiled function; raises `MissingExtra` (USE002) without numba."""
        if self._compiled is None:
            require("numba", extra="train")
            from numba.core.compiler_lock import global_compiler_lock

            # numba is told through a global where its cache is: one thread at a time.
            with global_compiler_lock:
                if self._compiled is None:
                    self._compiled = self.compile()
        return self._compiled(*arguments)

    def compile(self) -> Callable[..., Any]:
        """Return the compiled function, from the cache where it is there. Cost: 5 ms cached, up to a second cold."""
        numba = require("numba", extra="train")
        _register()
        # Without NaN and the sign of zero a maximum can be taken in any order; nothing else about floats may change.
        options: dict[str, Any] = {"nogil": True, "fastmath": False if self._exact else {"nnan", "nsz"}}
        given = numba.config.CACHE_DIR
        try:
            numba.config.CACHE_DIR = f"{given or _private_directory()}/{self.version()}"
            made: Callable[..., Any] = numba.njit(list(self._signatures), cache=True, **options)(self.python)
        except Exception:  # noqa: BLE001
            # Whatever is wrong with the cache (no directory, a full disk, a torn file), compiling needs none; what is
            # wrong with the function is raised again here.
            made = numba.njit(list(self._signatures), **options)(self.python)
        finally:
            numba.config.CACHE_DIR = given
        return made

    def version(self) -> str:
        """Return a hash of all that is compiled: this function, what it may call, constants, numba and NumPy."""
        import numba
        import numpy as np

        known = self.python.__globals__
        modules = {one.__module__ for one in _inlined if known.get(one.__name__) is one} | {self.python.__module__}
        near = [one for one in (*(k.python for k in KERNELS), *_inlined) if one.__module__ in modules]
        parts = [f"{numba.__version__} {np.__version__}", *_described(self.python)]
        for one in sorted(near, key=lambda function: function.__qualname__):
            parts += _described(one)
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


def kernel(*signatures: str, exact: bool = True) -> Callable[[Callable[..., Any]], Kernel]:
    """Declare a function as a kernel with numba `signatures`.

    `exact=False` lets maxima of floats be taken in any order, where no NaN can occur.

    >>> @kernel("int64(int64)")
    ... def double(x):
    ...     return 2 * x
    >>> double(21), double.python(4)
    (42, 8)
    """

    def declare(function: Callable[..., Any]) -> Kernel:
        made = Kernel(function, signatures, exact)
        KERNELS.append(made)
        return made

    return declare


def read_only(kind: str) -> str:
    """Return the type of a contiguous array of one dimension that a kernel reads: read-only arrays fit it, and others.

    >>> read_only("int64")
    "Array(int64, 1, 'C', True)"
    """
    return f"Array({kind}, 1, 'C', True)"


def inlined(function: _Function) -> _Function:
    """Declare a function that kernels of its own module may call."""
    _inlined.append(function)
    return function


def before_compiling(register: Callable[[], None]) -> Callable[[], None]:
    """Declare what tells numba how it compiles functions of its module; called once, before the next kernel is compiled."""
    _registrars.append(register)
    return register


def fused(a: float, b: float, c: float) -> float:
    """Return ``a*b + c`` rounded once; in a kernel one instruction.

    >>> fused(0.1, 10.0, -1.0)
    5.551115123125783e-17
    """
    from fractions import Fraction

    return float(Fraction(a) * Fraction(b) + Fraction(c))


def ask_for(array: Any, i: Any) -> None:
    """Have the memory of ``array[i]``, which must exist, fetched for a write to come; outside kernels nothing happens."""


def _register() -> None:
    """Make the inlined functions, `fused` and `ask_for` known to numba."""
    from numba import types
    from numba.extending import intrinsic, overload, register_jitable

    if not _done:
        _done.add(-1)

        @intrinsic
        def multiply_add(typing: Any, a: Any, b: Any, c: Any) -> Any:  # noqa: ARG001
            def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:  # noqa: ARG001
                return builder.fma(*arguments)

            return a(a, b, c), generate

        @overload(fused, strict=False)
        def compiled_fused(a: Any, b: Any, c: Any) -> Any:  # noqa: ARG001
            return lambda a, b, c: multiply_add(a, b, c)  # type: ignore[call-arg]  # noqa: PLW0108

        @intrinsic
        def prefetch(typing: Any, array: Any, i: Any) -> Any:  # noqa: ARG001
            return types.void(array, i), _prefetch

        @overload(ask_for, strict=False, inline="always")
        def compiled_ask_for(array: Any, i: Any) -> Any:  # noqa: ARG001
            return lambda array, i: prefetch(array, i)  # type: ignore[call-arg]  # noqa: PLW0108

    while _registrars:
        _registrars.pop()()
    while len(_done) - 1 < len(_inlined):
        register_jitable(_inlined[len(_done) - 1])
        _done.add(len(_done) - 1)


def _described(function: Callable[..., Any]) -> list[str]:
    """Return a function's code, and the constants of its module that it names: numba compiles their values in."""
    code, known = function.__code__, function.__globals__
    named = {name: known[name] for name in _names(code) if name in known}
    constants = [f"{name}={_constant(value)}" for name, value in sorted(named.items())]
    return [function.__qualname__, *_code(code), *constants]


def _names(code: CodeType) -> set[str]:
    inner = (_names(one) for one in code.co_consts if isinstance(one, CodeType))
    return set(code.co_names).union(*inner)


def _code(code: CodeType) -> list[str]:
    parts = [code.co_code.hex(), repr(code.co_names), repr(code.co_varnames), repr(code.co_freevars)]
    for one in code.co_consts:
        parts += _code(one) if isinstance(one, CodeType) else [repr(one)]
    return parts


def _constant(value: Any) -> str:
    if isinstance(value, bool | int | float | complex | str | bytes | tuple):
        return repr(value)
    data = getattr(value, "tobytes", None)
    return f"{value.dtype}{data().hex()}" if data is not None and hasattr(value, "dtype") else ""


def _prefetch(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    """Emit a prefetch for writing, into the second level of the cache."""
    from llvmlite import ir  # type: ignore[import-untyped]

    i32 = ir.IntType(32)
    data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
    place = builder.bitcast(builder.gep(data, [arguments[1]]), ir.IntType(8).as_pointer())
    kind = ir.FunctionType(ir.VoidType(), [place.type, i32, i32, i32])
    function = builder.module.declare_intrinsic("llvm.prefetch", (place.type,), kind)
    builder.call(function, [place, *(ir.Constant(i32, value) for value in (1, 2, 1))])
    return context.get_dummy_value()


def _private_directory() -> str:
    from numba.misc.appdirs import AppDirs

    directories: Any = AppDirs("tokenreel", appauthor=False)  # type: ignore[no-untyped-call]
    return f"{directories.user_cache_dir}/kernels"
