"""Memory and local stores: one behaviour, held against a dictionary; what a path may be; what a listing shows."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tokenreel.errors import StorageError
from tokenreel.store import Entry, LocalStore, MapPool, MemoryStore, Store
from tokenreel.store.atomic import temporary_name

NAMES = ["a", "b", "a.bin", "a-b", "é", "10", "9"]
paths = st.lists(st.sampled_from(NAMES), min_size=1, max_size=3).map("/".join)
ESCAPES = [
    "",
    ".",
    "..",
    "/",
    "/etc/passwd",
    "../x",
    "a/../b",
    "a/../../x",
    "a/..",
    "a//b",
    "./a",
    "a/.",
    "a/",
    "//a",
    "a\0b",
]


def code_of(act: object) -> str:
    with pytest.raises(StorageError) as caught:
        act()  # type: ignore[operator]
    return caught.value.code


def clashes(files: dict[str, bytes], path: str) -> bool:
    """Return whether a folder could not hold `path` beside what it has: a file is in the way, or a folder is."""
    return any(other.startswith(f"{path}/") or path.startswith(f"{other}/") for other in files)


class Stores(RuleBasedStateMachine):
    """Any sequence of operations gives the same on a dictionary, in memory and on disk."""

    @initialize(limit=st.integers(1, 3))
    def start(self, limit: int) -> None:
        self.folder = tempfile.mkdtemp()
        self.model: dict[str, bytes] = {}
        self.pool = MapPool(limit)
        self.stores: list[Store] = [MemoryStore(), LocalStore(self.folder, self.pool)]

    def teardown(self) -> None:
        if hasattr(self, "folder"):
            shutil.rmtree(self.folder)

    @rule(path=paths, data=st.binary(max_size=12))
    def write(self, path: str, data: bytes) -> None:
        # A folder that once held files stays on disk, empty: only then may the two differ.
        if clashes(self.model, path):
            for store in self.stores:
                assert code_of(lambda s=store: s.write(path, data)) == "STO003"
        elif not (Path(self.folder) / path).is_dir():
            for store in self.stores:
                store.write(path, data)
            self.model[path] = data

    @rule(path=paths)
    def remove(self, path: str) -> None:
        if (Path(self.folder) / path).is_dir():
            return
        for store in self.stores:
            store.remove(path)
        self.model.pop(path, None)

    @rule(path=paths, offset=st.integers(-1, 14), length=st.integers(-1, 14))
    def read(self, path: str, offset: int, length: int) -> None:
        data = self.model.get(path)
        if data is None:
            absent = {"STO001", "STO002"} if (Path(self.folder) / path).is_dir() else {"STO001"}
            for store in self.stores:
                assert not store.exists(path)
                assert code_of(lambda s=store: s.read(path)) in absent
                assert code_of(lambda s=store: s.size(path)) in absent
                assert code_of(lambda s=store: s.reader(path)) in absent
            return
        for store in self.stores:
            assert store.exists(path)
            assert store.read(path) == data
            assert store.size(path) == len(data)
            reader = store.reader(path)
            assert reader.size == len(data)
            if offset >= 0 and length >= 0 and offset + length <= len(data):
                assert reader.read(offset, length) == data[offset : offset + length]
                assert reader.array("u1", offset, length).tobytes() == data[offset : offset + length]
            else:
                assert code_of(lambda r=reader: r.read(offset, length)) == "STO005"
                assert code_of(lambda r=reader: r.array("u1", offset, length)) == "STO005"

    @precondition(lambda self: self.model)
    @rule(data=st.data())
    def read_what_is_there(self, data: st.DataObject) -> None:
        self.read(data.draw(st.sampled_from(sorted(self.model))), data.draw(st.integers(0, 3)), 2)

    @rule(prefix=st.one_of(st.just(""), paths, paths.map("{}/".format)))
    def list_below(self, prefix: str) -> None:
        wanted = [
            Entry(path, len(data))
            for path, data in sorted(self.model.items(), key=lambda item: item[0].encode())
            if path.startswith(prefix)
        ]
        for store in self.stores:
            assert store.list(prefix) == wanted

    @invariant()
    def bounded(self) -> None:
        if hasattr(self, "pool"):
            assert len(self.pool) <= self.pool.limit


TestStores = Stores.TestCase
# Every write is three fsyncs: a quarter of the profile's sequences is a second, all of them are a coffee break.
TestStores.settings = settings(max_examples=max(25, settings().max_examples // 4), stateful_step_count=30)


@pytest.fixture(params=["memory", "local"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    return MemoryStore() if request.param == "memory" else LocalStore(tmp_path / "root")


# ---- paths ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ESCAPES)
def test_no_path_leaves_the_root_or_has_two_spellings(store: Store, tmp_path: Path, path: str) -> None:
    (tmp_path / "root/a").mkdir(parents=True)
    (tmp_path / "x").write_bytes(b"outside")
    before = sorted(tmp_path.rglob("*"))
    for act in (
        lambda: store.read(path),
        lambda: store.reader(path),
        lambda: store.size(path),
        lambda: store.exists(path),
        lambda: store.write(path, b"1"),
        lambda: store.remove(path),
    ):
        with pytest.raises(StorageError) as caught:
            act()
        assert caught.value.code == "STO006"
        assert caught.value.exit_status == 1
    assert sorted(tmp_path.rglob("*")) == before
    assert (tmp_path / "x").read_bytes() == b"outside"


@pytest.mark.parametrize("prefix", ["../", "a/../", "/", "/etc/", "a//", "./a", "../x", "a\0"])
def test_no_listing_leaves_the_root(store: Store, tmp_path: Path, prefix: str) -> None:
    (tmp_path / "root").mkdir()
    (tmp_path / "x").write_bytes(b"outside")
    assert code_of(lambda: store.list(prefix)) == "STO006"


@pytest.mark.parametrize("path", ["..a", "a..b", "...", ".hidden", "a b", "a\nb", "a\\..\\b", "-", "~"])
def test_odd_names_are_names(store: Store, path: str) -> None:
    store.write(f"d/{path}", b"1")
    assert store.list() == [Entry(f"d/{path}", 1)]
    assert store.read(f"d/{path}") == b"1"


# ---- listings ------------------------------------------------------------------------------------------------------


def test_order_is_of_bytes_not_of_numbers_or_folders(store: Store) -> None:
    names = ["2", "10", "1", "a/b", "a-b", "a.b", "a0", "Z", "é", "z", "\N{GRINNING FACE}", "\uffff"]
    for name in names:
        store.write(name, b"")
    found = [entry.path for entry in store.list()]
    assert found == sorted(names, key=str.encode)
    assert found[:3] == ["1", "10", "2"]
    assert found.index("a-b") < found.index("a.b") < found.index("a/b") < found.index("a0")


@given(st.sets(st.text("ab/-.0", min_size=1, max_size=5), max_size=6))
def test_both_list_the_same(names: set[str]) -> None:
    memory = MemoryStore()
    with tempfile.TemporaryDirectory() as folder:
        local = LocalStore(folder)
        for name in sorted(names):
            codes = []
            for store in (memory, local):
                try:
                    store.write(name, name.encode())
                    codes.append("written")
                except StorageError as error:
                    codes.append(error.code)
            assert codes[0] == codes[1]
        assert memory.list() == local.list()
        assert all(local.read(entry.path) == entry.path.encode() for entry in local.list())


def test_temporaries_are_hidden(tmp_path: Path) -> None:
    memory, local = MemoryStore(), LocalStore(tmp_path)
    hidden = temporary_name(tmp_path / "part.bin").name
    for store in (memory, local):
        store.write("d/part.bin", b"1")
        store.write(f"d/{hidden}", b"half")
        assert [entry.path for entry in store.list()] == ["d/part.bin"]
        assert [entry.path for entry in store.list("d/.")] == []


def test_a_missing_prefix_is_empty_and_a_missing_root_an_error(store: Store, tmp_path: Path) -> None:
    store.write("a/f", b"1")
    assert store.list("none/") == store.list("a/f/") == store.list("a/f/x") == []
    assert store.list("a") == store.list("a/") == store.list("a/f") == [Entry("a/f", 1)]
    assert code_of(LocalStore(tmp_path / "nowhere").list) == "STO001"
    assert code_of(lambda: LocalStore(tmp_path / "nowhere").list("a/")) == "STO001"


def test_links_are_followed(tmp_path: Path) -> None:
    """A shard that a program can open is listed: corpora are often linked together from several disks."""
    (tmp_path / "disk/shards").mkdir(parents=True)
    (tmp_path / "disk/shards/1").write_bytes(b"123")
    (tmp_path / "root").mkdir()
    (tmp_path / "root/train").symlink_to(tmp_path / "disk/shards")
    (tmp_path / "root/file").symlink_to(tmp_path / "disk/shards/1")
    (tmp_path / "link").symlink_to(tmp_path / "root")
    for root in ("root", "link"):
        store = LocalStore(tmp_path / root)
        assert store.list() == [Entry("file", 3), Entry("train/1", 3)]
        assert store.list("train/") == [Entry("train/1", 3)]
        assert all(store.size(entry.path) == 3 for entry in store.list())


def test_links_that_lead_nowhere_or_back_are_errors(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    (tmp_path / "a/b").mkdir(parents=True)
    (tmp_path / "a/b/back").symlink_to(tmp_path / "a")
    assert code_of(store.list) == "STO002"
    (tmp_path / "a/b/back").unlink()
    (tmp_path / "a/b/gone").symlink_to(tmp_path / "none")
    with pytest.raises(StorageError) as caught:
        store.list()
    assert caught.value.code == "STO001"
    assert caught.value.where["path"] == str(tmp_path / "a/b/gone")
    (tmp_path / "a/b/gone").unlink()
    (tmp_path / "a/b/self").symlink_to("self")
    assert code_of(store.list) == "STO002"


def test_only_regular_files_are_listed(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    (tmp_path / "f").write_bytes(b"1")
    store = LocalStore(tmp_path)
    assert store.list() == [Entry("f", 1)]
    assert not store.exists("pipe")
    assert not store.exists("folder")
    assert code_of(lambda: store.size("folder")) == "STO002"
    assert code_of(lambda: store.read("folder")) == "STO002"
    assert code_of(lambda: store.remove("folder")) == "STO003"


# ---- details -------------------------------------------------------------------------------------------------------


def test_memory_takes_initial_files_and_checks_them() -> None:
    given_files = {"a/b": b"1"}
    store = MemoryStore(given_files)
    store.write("c", b"2")
    assert given_files == {"a/b": b"1"}
    assert code_of(lambda: MemoryStore({"../a": b""})) == "STO006"
    assert code_of(lambda: MemoryStore({"a": b"", "a/b": b""})) == "STO003"


def test_what_is_written_is_a_copy(store: Store) -> None:
    data = bytearray(b"123")
    store.write("a", data)  # type: ignore[arg-type]
    data[0] = 0
    assert store.read("a") == b"123"


def test_roots_are_told_as_given(tmp_path: Path) -> None:
    assert LocalStore(tmp_path).root == str(tmp_path)
    assert MemoryStore().root == "memory:"


def test_a_given_pool_is_used_though_it_is_empty(tmp_path: Path) -> None:
    pool = MapPool(1)
    assert LocalStore(tmp_path, pool).pool is pool
    assert LocalStore(tmp_path).pool is not LocalStore(tmp_path).pool
