"""Turn corpora into others, provably the same: convert, merge, repair, adopt."""

from tokenreel.convert.conversion import convert
from tokenreel.convert.merge import merge
from tokenreel.convert.repair import Repaired, repair
from tokenreel.convert.report import Converted

__all__ = ["Converted", "Repaired", "convert", "merge", "repair"]
