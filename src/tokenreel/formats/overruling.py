"""Which refusals of readers an expert may overrule, by code: they doubt what bytes mean, and do not prove it wrong."""

from __future__ import annotations

from tokenreel.formats.megatron_check import OVERRULABLE

READERS = OVERRULABLE | {"DTV009", "FLT003", "LEV002", "LEV008", "LIT011", "MDS013", "MDS015", "PQT004"}
"""Given as ``accept``, a reader passes over these; all other codes it never does."""
