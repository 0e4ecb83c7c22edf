"""Words for people: counted things in the singular and the plural."""

from __future__ import annotations


def counted(count: int, word: str, plural: str = "") -> str:
    """Return a number and its word.

    >>> counted(1, "shard"), counted(1200, "document"), counted(2, "check is", "checks are")
    ('1 shard', '1,200 documents', '2 checks are')
    """
    return f"{count:,} {word if count == 1 else plural or word + 's'}"
