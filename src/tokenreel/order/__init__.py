"""Pure orders: sample index -> extents. Nothing here opens a file, reads a clock or keeps global random state.

The names below are loaded when first used: importing the package loads no numpy.

>>> from tokenreel.order import KeyedPermutation
>>> KeyedPermutation(10, 7).at([0, 1, 2]).tolist()
[0, 2, 9]
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tokenreel.order.grain_shuffle import grain_index_shuffle
    from tokenreel.order.keyed import KeyedPermutation
    from tokenreel.order.legacy_shuffle import LegacyShuffle
    from tokenreel.order.levanter import LevanterOrder
    from tokenreel.order.levanter_keys import LevanterReplay
    from tokenreel.order.levanter_mixture import LevanterMixture
    from tokenreel.order.levanter_schedule import LevanterSchedule
    from tokenreel.order.levanter_shuffle import LevanterShuffle
    from tokenreel.order.maxtext_blend import MaxTextBlendOrder
    from tokenreel.order.maxtext_mmap import MaxTextMmapOrder
    from tokenreel.order.maxtext_mmap_mix import MaxTextMmapMixOrder
    from tokenreel.order.maxtext_npy import MaxTextNpyOrder
    from tokenreel.order.maxtext_settings import MaxTextInput, read_settings
    from tokenreel.order.maxtext_spec import parse_datasets, parse_files
    from tokenreel.order.megatron import MegatronOrder
    from tokenreel.order.megatron_blend import MegatronBlend, megatron_orders
    from tokenreel.order.mix import Component, MixOrder
    from tokenreel.order.mix_phases import Phase
    from tokenreel.order.protocol import Hits, Node, Order
    from tokenreel.order.quality import shuffle_quality
    from tokenreel.order.stream import StreamOrder
    from tokenreel.order.streams_hobbylm import HobbyStream
    from tokenreel.order.streams_llmc import LlmcStream
    from tokenreel.order.streams_nanogpt import NanogptOrder
    from tokenreel.order.torch_permutation import torch_randperm
    from tokenreel.order.windows import WindowsOrder
    from tokenreel.order.windows_shuffle import BlockShuffle

_HOME = {
    "BlockShuffle": "windows_shuffle",
    "Component": "mix",
    "Hits": "protocol",
    "HobbyStream": "streams_hobbylm",
    "KeyedPermutation": "keyed",
    "LegacyShuffle": "legacy_shuffle",
    "LevanterMixture": "levanter_mixture",
    "LevanterOrder": "levanter",
    "LevanterReplay": "levanter_keys",
    "LevanterSchedule": "levanter_schedule",
    "LevanterShuffle": "levanter_shuffle",
    "LlmcStream": "streams_llmc",
    "MaxTextBlendOrder": "maxtext_blend",
    "MaxTextInput": "maxtext_settings",
    "MaxTextMmapMixOrder": "maxtext_mmap_mix",
    "MaxTextMmapOrder": "maxtext_mmap",
    "MaxTextNpyOrder": "maxtext_npy",
    "MegatronBlend": "megatron_blend",
    "MegatronOrder": "megatron",
    "MixOrder": "mix",
    "NanogptOrder": "streams_nanogpt",
    "Node": "protocol",
    "Order": "protocol",
    "Phase": "mix_phases",
    "StreamOrder": "stream",
    "WindowsOrder": "windows",
    "grain_index_shuffle": "grain_shuffle",
    "megatron_orders": "megatron_blend",
    "parse_datasets": "maxtext_spec",
    "parse_files": "maxtext_spec",
    "read_settings": "maxtext_settings",
    "shuffle_quality": "quality",
    "torch_randperm": "torch_permutation",
}

__all__ = [
    "BlockShuffle",
    "Component",
    "Hits",
    "HobbyStream",
    "KeyedPermutation",
    "LegacyShuffle",
    "LevanterMixture",
    "LevanterOrder",
    "LevanterReplay",
    "LevanterSchedule",
    "LevanterShuffle",
    "LlmcStream",
    "MaxTextBlendOrder",
    "MaxTextInput",
    "MaxTextMmapMixOrder",
    "MaxTextMmapOrder",
    "MaxTextNpyOrder",
    "MegatronBlend",
    "MegatronOrder",
    "MixOrder",
    "NanogptOrder",
    "Node",
    "Order",
    "Phase",
    "StreamOrder",
    "WindowsOrder",
    "grain_index_shuffle",
    "megatron_orders",
    "parse_datasets",
    "parse_files",
    "read_settings",
    "shuffle_quality",
    "torch_randperm",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        msg = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(msg)
    value = getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
