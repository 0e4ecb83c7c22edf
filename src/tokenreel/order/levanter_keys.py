"""Where Levanter's orders get their keys, and the settings that a replay of them depends on without naming them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tokenreel.errors import OrderError
from tokenreel.order.threefry import Key, key_chain, prng_key, split

Trainer = Literal["train_lm", "grug"]
PythonSum = Literal["plain", "compensated"]
TRAINERS = ("train_lm", "grug")
SUMS: tuple[PythonSum, ...] = ("plain", "compensated")


@dataclass(frozen=True, slots=True, kw_only=True)
class LevanterReplay:
    """What a Levanter run took from its environment. Recorded with the order; `check` refuses what is not reproduced.

    `python_sum` is how Python added floats: "plain" up to 3.11, "compensated" from 3.12 on. `numpy_major` is needed for the
    linear permutation only. Both may be left out where every setting gives the same order; where not, the order asks.
    """

    threefry_partitionable: bool = True
    """``jax_threefry_partitionable``, which Levanter's trainer turns on."""
    enable_x64: bool = False
    """``jax_enable_x64``: only off is reproduced."""
    prng: str = "threefry2x32"
    """``jax_default_prng_impl``: only this one is reproduced."""
    python_sum: PythonSum | None = None
    numpy_major: int | None = None

    def check(self) -> None:
        """Raise `OrderError` (ORD130) for settings that nothing here reproduces."""
        if self.enable_x64:
            raise OrderError("ORD130", "enable_x64", expected="off, as Levanter's trainer leaves it", found="on")
        if self.prng != "threefry2x32":
            raise OrderError("ORD130", "prng", expected="threefry2x32", found=self.prng)
        if self.python_sum is not None and self.python_sum not in SUMS:
            raise OrderError(
                "ORD130", "python_sum", expected="plain (Python 3.11) or compensated", found=self.python_sum
            )
        if self.numpy_major not in (None, 1, 2):
            raise OrderError("ORD130", "numpy_major", expected="1 or 2", found=self.numpy_major)

    def sums(self) -> tuple[PythonSum, ...]:
        """Return the ways in which floats may have been added: the one that is named, or all."""
        return SUMS if self.python_sum is None else (self.python_sum,)

    def as_dict(self) -> dict[str, object]:
        """Return the settings by name, for records."""
        return {
            "enable_x64": self.enable_x64,
            "numpy_major": self.numpy_major,
            "prng": self.prng,
            "python_sum": self.python_sum,
            "threefry_partitionable": self.threefry_partitionable,
        }


def data_key(
    seed: int, data_seed: int | None = None, *, trainer: Trainer = "train_lm", partitionable: bool = True
) -> Key:
    """Return the key that a trainer gives to its data.

    `train_lm` splits its seed into four, the Grug trainers into two; a data seed that is given, 0 included, is a key of its
    own and is not split.

    >>> data_key(0), data_key(0, trainer="grug"), data_key(0, 0)
    ((1797259609, 2579123966), (1797259609, 2579123966), (0, 0))
    >>> data_key(0, partitionable=False) == data_key(0, trainer="grug", partitionable=False)
    False
    """
    if trainer not in TRAINERS:
        raise OrderError("ORD002", "trainer", expected=" or ".join(TRAINERS), found=trainer)
    if data_seed is not None:
        return prng_key(data_seed)
    return split(prng_key(seed), 4 if trainer == "train_lm" else 2, partitionable=partitionable)[0]


def mix_and_shuffle_keys(data: Key, *, partitionable: bool = True) -> tuple[Key, Key]:
    """Return the keys of the mixture and of the shuffles of its components.

    >>> mix_and_shuffle_keys(data_key(0))
    ((4165894930, 804218099), (1353695780, 2116000888))
    """
    mix, shuffle = split(data, 2, partitionable=partitionable)
    return mix, shuffle


def component_keys(shuffle: Key, count: int, *, partitionable: bool = True) -> tuple[Key, ...]:
    """Return the keys of the first `count` components that have a weight, in the order of the configuration.

    Each is drawn from what the one before left, so a component put in or taken out gives every later one another key.

    >>> component_keys((1353695780, 2116000888), 2)
    ((3254170493, 2583240948), (3972956925, 984894047))
    """
    made = key_chain(shuffle, count, partitionable=partitionable)
    return tuple((a, b) for a, b in made.tolist())
