"""Verification: rules over a corpus give findings, each with a stable code; `inspect` says what a path holds.

``verify`` runs the rules of `tokenreel.verify.rules`, then those over ids (`stream`), hashes, documents.parquet and, if
asked, the source. A rule looks at a `Target` and adds to `Findings`; it never raises for what the data says, and what
it cannot check it reports as not checked.
"""

# Eager on purpose: importing a submodule `verify` lazily would later put the module over the function of that name.
from tokenreel.verify.finding import Finding, NotChecked
from tokenreel.verify.histogram import histogram_lines
from tokenreel.verify.inspect import Inspection, inspect
from tokenreel.verify.report import Report
from tokenreel.verify.selecting import known_codes
from tokenreel.verify.verify import verify

__all__ = ["Finding", "Inspection", "NotChecked", "Report", "histogram_lines", "inspect", "known_codes", "verify"]
