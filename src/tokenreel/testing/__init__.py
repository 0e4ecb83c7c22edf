"""For tests of loaders and models, ours and anybody's: nothing else of the package imports it.

`exactly_once` proves that a loader reads every row once whatever stops it, `mask_probe` that a model keeps documents
apart, `compare_loader` that somebody's loader reads what a feed reads; `write_corpus` and `strategies` are what such tests
start from. `corruptions` damages a corpus of any format in the ways that corpora are damaged, and `fuzz` tries a reader on it.
"""

from tokenreel.testing.corpora import numbered_documents, tiny_corpus, tiny_documents, write_corpus
from tokenreel.testing.corruptors import Corruption, corruptions
from tokenreel.testing.exactly_once import Report, Setting, every_setting, exactly_once
from tokenreel.testing.fuzz import Fuzzed, fuzz
from tokenreel.testing.masks import MaskReport, document_map, mask_probe
from tokenreel.testing.shadow import Comparison, compare_loader

__all__ = [
    "Comparison",
    "Corruption",
    "Fuzzed",
    "MaskReport",
    "Report",
    "Setting",
    "compare_loader",
    "corruptions",
    "document_map",
    "every_setting",
    "exactly_once",
    "fuzz",
    "mask_probe",
    "numbered_documents",
    "tiny_corpus",
    "tiny_documents",
    "write_corpus",
]
