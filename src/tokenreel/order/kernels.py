"""The one place where kernels are compiled: plain Python functions that numba compiles when they are first called.

A kernel is declared with its signatures and costs nothing until it is called; then numba is imported and the machine
code is read from a private cache (``$XDG_CACHE_HOME/tokenreel/kernels``, or where ``NUMBA_CACHE_DIR`` points) or compiled
and put there. Files appear there whole, so that any number of processes may start on a cold cache at once; where no
directory can be written, every process compiles for itself. Kernels release the GIL and hold no state; `.python` is the
same function uncompiled, what tests compare with. What a kernel returns never depends on the cache.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from tokenreel.errors import require

if TYPE_CHECKING:
    from collections.abc import Callable

_Function = TypeVar("_Function", bound="Callable[..., Any]")
_inlined: list[Callable[..., Any]] = []
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
            self._compiled = self.compile()
        return self._compiled(*arguments)

    def compile(self) -> Callable[..., Any]:
        """Return the compiled function, from the cache where it is there. Cost: 5 ms cached, up to a second cold."""
        numba = require("numba", extra="train")
        _register()
        # Without NaN and the sign of zero a maximum can be taken in any order; nothing else about floats may change.
        options: dict[str, Any] = {"nogil": True, "fastmath": False if self._exact else {"nnan", "nsz"}}
        ours = not numba.config.CACHE_DIR
        try:
            if ours:
                numba.config.CACHE_DIR = _private_directory()
            made: Callable[..., Any] = numba.njit(list(self._signatures), cache=True, **options)(self.python)
        except Exception:  # noqa: BLE001
            # Whatever is wrong with the cache (no directory, a full disk, a torn file), compiling needs none; what is
            # wrong with the function is raised again here.
            made = numba.njit(list(self._signatures), **options)(self.python)
        finally:
            if ours:
                numba.config.CACHE_DIR = ""
        return made


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


def inlined(function: _Function) -> _Function:
    """Declare a function that kernels of its own module may call."""
    _inlined.append(function)
    return function


def fused(a: float, b: float, c: float) -> float:
    """Return ``a*b + c`` rounded once; in a kernel one instruction.

    >>> fused(0.1, 10.0, -1.0)
    5.551115123125783e-17
    """
    from fractions import Fraction

    return float(Fraction(a) * Fraction(b) + Fraction(c))


def _register() -> None:
    """Make the inlined functions, and `fused`, known to numba."""
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

    while len(_done) - 1 < len(_inlined):
        register_jitable(_inlined[len(_done) - 1])
        _done.add(len(_done) - 1)


def _private_directory() -> str:
    from numba.misc.appdirs import AppDirs

    directories: Any = AppDirs("tokenreel", appauthor=False)  # type: ignore[no-untyped-call]
    return f"{directories.user_cache_dir}/kernels"
