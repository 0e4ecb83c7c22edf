"""What a file that is no shard is: told by its first bytes, so that one line says what to do with it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tokenreel.verify.target import Target

_MAGIC = (
    (b"PAR1", "Parquet without a column of ids (input_ids or tokens: list<int>)", "tokenreel build reads text of it"),
    (b"\x1f\x8b", "compressed with gzip", "tokenreel build reads it"),
    (b"\x28\xb5\x2f\xfd", "compressed with zstandard", "tokenreel build reads it"),
    (b"\xfd7zXZ\x00", "compressed with xz", "tokenreel build reads it"),
    (
        b"ARROW1",
        "Arrow without a column of ids (input_ids or tokens: list<int>)",
        "as Parquet, tokenreel build reads text of it",
    ),
    (b"\x93NUMPY", "a NumPy array", "this command reads Megatron pairs"),
    (b"PK\x03\x04", "a zip archive", "unpack it first"),
)
_JSON = (
    (("stats_sha256", "run_config_sha256"), "what says that a corpus is complete"),
    (("receipts_sha256",), "what says that a corpus is complete"),
    (("part", "splits"), "a receipt of a corpus"),
    (("split_rule", "tokenizer"), "the settings of a corpus"),
    (("shard_format", "boundary"), "the manifest of a corpus"),
    (("shards", "vocab"), "the manifest of a corpus of offset shards"),
    (("shard", "offset", "length"), "a table of documents of HobbyLM's"),
    (("is_finished", "shard_rows"), "the ledger of a Levanter cache"),
    (("_data_files",), "what datasets keeps beside its files"),
    (("by_split", "documents"), "statistics of a corpus"),
    (("made_from", "id_kind"), "the manifest of a replay index, which tokenreel replay validate reads"),
)
"""Files that stand beside shards, by keys that they have."""
HEAD = 4096
"""Bytes that are looked at."""


def what_it_is(head: bytes) -> str:
    """Return, for the first bytes of a file that is no shard, what it is and which command reads it.

    >>> what_it_is(b"PAR1\\x15\\x04")
    'this is Parquet without a column of ids (input_ids or tokens: list<int>); tokenreel build reads text of it'
    >>> what_it_is(b'{"text": "a"}\\n')
    'this is text; tokenreel build reads it'
    >>> what_it_is(b'[{"shard": "wiki_000000.bin", "offset": 0, "length": 7}]')
    "this is a table of documents of HobbyLM's; name its folder instead"
    """
    for magic, name, what in _MAGIC:
        if head.startswith(magic):
            return f"this is {name}; {what}"
    if not head:
        return "this file is empty"
    try:
        # The last character may be cut.
        text = head.decode() if len(head) < HEAD else head[:-3].decode("utf-8", "ignore")
    except UnicodeDecodeError:
        return "this is no shard of a known format"
    if text.lstrip()[:1] in ("{", "["):
        for said, name in _JSON:
            if all(f'"{key}"' in text for key in said):
                return f"this is {name}; name its folder instead"
    if "\0" in text or len(text.encode()) < len(head) - 6:
        return "this is no shard of a known format"
    return "this is text; tokenreel build reads it"


def what_is_there(target: Target) -> str:
    """Return what a folder without a shard holds, in one line; empty where nothing can be said."""
    if not target.sizes:
        return "the folder is empty"
    largest = max(target.sizes, key=lambda path: target.sizes[path])
    reader = target.store.reader(largest)
    try:
        head = reader.read(0, min(HEAD, reader.size))
    finally:
        reader.close()
    return f"no shard of a known format; {largest}: {what_it_is(head)}"
