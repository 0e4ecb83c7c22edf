"""Names and versions of the files that a mix writes of itself."""

from __future__ import annotations

from tokenreel.corpus.opening import MIX_COMPLETE, MIX_CONFIG

CONFIG, RECORD, COMPLETE = MIX_CONFIG, "mix.json", MIX_COMPLETE
STAGE, STAGES = "stage", "stages"
"""Folder of staged parts, and of what stays of them: receipts and lists of dropped documents."""
AUDIT, ATTRIBUTION, MIX_PLAN = "audit.json", "ATTRIBUTION.md", "MIX_PLAN.md"
CONFIG_FORMAT, RECORD_FORMAT, COMPLETE_FORMAT = "tokenreel-mix-config-1", "tokenreel-mix-1", "tokenreel-mix-complete-1"
STAGE_FORMAT = "tokenreel-stage/1"
"""Of receipts."""
AUDIT_FORMAT = "tokenreel-audit-1"
