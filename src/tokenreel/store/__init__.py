"""Bytes: local files, memory; atomic writes; bounded, lazily opened maps.

Every path handed to a store is POSIX and relative to the store's root. Writes are atomic (temporary, fsync, rename,
fsync of the folder); reads are exact: fewer bytes than asked for is an error, never a shorter answer.
"""

from tokenreel.store.atomic import atomic_write, remove_leftovers, write_bytes_atomic
from tokenreel.store.base import Entry, Reader, Store
from tokenreel.store.jsonio import dumps_canonical, loads_strict, read_json
from tokenreel.store.local import LocalStore
from tokenreel.store.maps import MapPool
from tokenreel.store.memory import MemoryStore

__all__ = [
    "Entry",
    "LocalStore",
    "MapPool",
    "MemoryStore",
    "Reader",
    "Store",
    "atomic_write",
    "dumps_canonical",
    "loads_strict",
    "read_json",
    "remove_leftovers",
    "write_bytes_atomic",
]
