"""One module per on-disk layout: recognise, read, write. No policy lives here.

Every layout is a row of `FORMATS`; the corpus asks `shards_of` what a folder holds and `open_shard` for one of them.
"""

from tokenreel.formats.base import Boundary, Found, Problem, Shard, WrittenFile
from tokenreel.formats.recognising import find_shards, shards_of
from tokenreel.formats.registry import FORMATS, Format, open_shard

__all__ = [
    "FORMATS",
    "Boundary",
    "Format",
    "Found",
    "Problem",
    "Shard",
    "WrittenFile",
    "find_shards",
    "open_shard",
    "shards_of",
]
