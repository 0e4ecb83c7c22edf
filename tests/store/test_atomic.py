"""Atomic writes: all or nothing, whatever ends the writer, and durable in the right order."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tokenreel.errors import StorageError
from tokenreel.store import atomic_write, remove_leftovers, write_bytes_atomic
from tokenreel.store.atomic import TEMPORARY_SUFFIX, fsync_folder, remove_own, temporary_name, write_error


def tree(folder: Path) -> dict[str, bytes]:
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def run_script(script: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", script, *map(str, arguments)], capture_output=True, text=True, timeout=60
    )


def test_a_block_that_ends_well_makes_the_file(tmp_path: Path) -> None:
    with atomic_write(tmp_path / "a/b/c.bin") as file:
        file.write(b"12")
        assert not (tmp_path / "a/b/c.bin").exists()
        file.write(b"34")
    assert tree(tmp_path) == {"a/b/c.bin": b"1234"}


@pytest.mark.parametrize("error", [ValueError("x"), KeyboardInterrupt(), SystemExit(3), GeneratorExit()])
@pytest.mark.parametrize("before", [{}, {"a": b"old"}])
def test_a_block_that_raises_leaves_what_was_there(
    tmp_path: Path, error: BaseException, before: dict[str, bytes]
) -> None:
    for name, data in before.items():
        (tmp_path / name).write_bytes(data)

    def write_and_fail() -> None:
        with atomic_write(tmp_path / "a") as file:
            file.write(bytes(1 << 20))
            file.flush()
            raise error

    with pytest.raises(type(error)):
        write_and_fail()
    assert tree(tmp_path) == before


def test_an_error_about_another_file_is_not_called_a_failed_write(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as caught:
        with atomic_write(tmp_path / "out"):
            (tmp_path / "no/input").read_bytes()
    assert not isinstance(caught.value, StorageError)
    with pytest.raises(StorageError) as nested:
        with atomic_write(tmp_path / "out"):
            raise StorageError("STO002", path="input")
    assert nested.value.code == "STO002"
    assert tree(tmp_path) == {}


def test_a_folder_in_the_way(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "f").write_bytes(b"1")
    for target in (tmp_path / "a", tmp_path / "f/below"):
        with pytest.raises(StorageError) as caught:
            write_bytes_atomic(target, b"x")
        assert caught.value.code == "STO003"
        assert caught.value.where["path"] == str(target)
        assert caught.value.exit_status == 3
    assert tree(tmp_path) == {"f": b"1"}


def test_the_order_of_durability(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Data before the name, the name before its folder, a new folder before anything in it is promised."""
    events: list[str] = []
    real_fsync, real_replace = os.fsync, Path.replace

    def fsync(handle: int) -> None:
        place = Path(f"/proc/self/fd/{handle}").readlink()
        kind = "folder" if place.is_dir() else f"file of {place.stat().st_size} bytes"
        events.append(f"fsync {kind} {place.relative_to(tmp_path) if place.is_dir() else ''}".strip())
        real_fsync(handle)

    def replace(self: Path, target: Path) -> Path:
        events.append(f"rename to {Path(target).name}")
        return real_replace(self, target)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(Path, "replace", replace)
    write_bytes_atomic(tmp_path / "x/y/c.bin", b"12345")
    assert events == [
        "fsync folder .",
        "fsync folder x",
        "fsync file of 5 bytes",
        "rename to c.bin",
        "fsync folder x/y",
    ]


def test_a_folder_that_cannot_be_synced_as_one_is_fine_and_a_failing_disk_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(number: int) -> Callable[[int], None]:
        def fsync(handle: int) -> None:
            raise OSError(number, os.strerror(number))

        return fsync

    monkeypatch.setattr(os, "fsync", failing(errno.EINVAL))
    fsync_folder(tmp_path)
    monkeypatch.setattr(os, "fsync", failing(errno.EIO))
    with pytest.raises(OSError, match="Input/output"):
        fsync_folder(tmp_path)
    with pytest.raises(StorageError) as caught:
        write_bytes_atomic(tmp_path / "a", b"1")
    assert caught.value.code == "STO003"
    assert tree(tmp_path) == {}


# ---- other processes -----------------------------------------------------------------------------------------------

KILLED = """
import sys
from tokenreel.store import atomic_write
size = 8 << 20
for number in range(10**9):
    with atomic_write(sys.argv[1]) as file:
        for part in range(8):
            file.write(bytes([number % 256]) * (size // 8))
            if number == 1 and part == 3:
                print("writing", flush=True)
"""


@pytest.mark.parametrize("delay", [0.0, 0.004, 0.011, 0.023, 0.04, 0.07])
def test_kill_leaves_the_old_file_or_the_new_one(tmp_path: Path, delay: float) -> None:
    target = tmp_path / "a.bin"
    process = subprocess.Popen([sys.executable, "-c", KILLED, str(target)], stdout=subprocess.PIPE)
    assert process.stdout is not None
    with process.stdout:
        assert process.stdout.readline() == b"writing\n"
        time.sleep(delay)
        process.send_signal(signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL
    data = target.read_bytes()
    assert len(data) == 8 << 20
    assert len(set(data)) == 1
    leftovers = [name for name in tree(tmp_path) if name != "a.bin"]
    assert all(name.endswith(TEMPORARY_SUFFIX) for name in leftovers)
    assert remove_leftovers(tmp_path) == len(leftovers)
    assert list(tree(tmp_path)) == ["a.bin"]


FULL = """
import resource, signal, sys
from tokenreel.errors import StorageError
from tokenreel.store import atomic_write
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
try:
    with atomic_write(sys.argv[1]) as file:
        for _ in range(64):
            file.write(bytes(int(sys.argv[2])))
except StorageError as error:
    print(error.code, error.exit_status, error.where["path"] == sys.argv[1])
"""


@pytest.mark.parametrize("step", [1 << 15, (1 << 14) + 1001, 1 << 22])
def test_no_room_leaves_nothing(tmp_path: Path, step: int) -> None:
    """A file-size limit fails a write half-way, as a full disk does."""
    (tmp_path / "a").write_bytes(b"old")
    done = run_script(FULL, tmp_path / "a", step)
    assert done.stdout.split() == ["STO003", "3", "True"], done.stderr
    assert tree(tmp_path) == {"a": b"old"}


UNPRIVILEGED = """
import os, sys
from tokenreel.errors import StorageError, codes
from tokenreel.store import LocalStore, write_bytes_atomic
codes()
if os.geteuid() == 0:  # for root, nothing is read-only
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
store = LocalStore(sys.argv[1])
for act in (
    lambda: write_bytes_atomic(sys.argv[1] + "/new", b"x"),
    lambda: store.write("old", b"x"),
    lambda: store.write("below/new", b"x"),
    lambda: store.remove("old"),
    lambda: store.read("secret"),
    lambda: store.reader("secret"),
    lambda: store.list("closed/"),
):
    try:
        act()
    except StorageError as error:
        print(error.code, end=" ")
"""


def test_a_read_only_folder_and_an_unreadable_file() -> None:
    with tempfile.TemporaryDirectory() as name:  # not below tmp_path, which only its owner may enter
        folder = Path(name)
        (folder / "old").write_bytes(b"old")
        (folder / "secret").write_bytes(b"s")
        (folder / "closed").mkdir()
        (folder / "secret").chmod(0)
        (folder / "closed").chmod(0)
        folder.chmod(0o555)
        try:
            done = run_script(UNPRIVILEGED, folder)
        finally:
            folder.chmod(0o755)
            (folder / "secret").chmod(0o600)
            (folder / "closed").chmod(0o700)
        assert done.stdout.split() == ["STO003"] * 4 + ["STO002"] * 3, done.stderr
        assert tree(folder) == {"old": b"old", "secret": b"s"}


# ---- temporaries ---------------------------------------------------------------------------------------------------


def test_two_threads_never_share_a_temporary(tmp_path: Path) -> None:
    failed: list[Exception] = []

    def write(number: int) -> None:
        try:
            for _ in range(5):
                with atomic_write(tmp_path / "a") as file:
                    for _ in range(4):
                        file.write(bytes([number]) * 70_000)
                        file.flush()
        except Exception as error:  # noqa: BLE001 (a thread's error must reach the test)
            failed.append(error)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    files = tree(tmp_path)
    assert list(files) == ["a"]
    assert len(files["a"]) == 280_000
    assert len(set(files["a"])) == 1


@pytest.mark.parametrize("name", ["a", "x" * 255, "é" * 127, "." + "y" * 254])
def test_names_as_long_as_file_systems_take(tmp_path: Path, name: str) -> None:
    write_bytes_atomic(tmp_path / name, b"1")
    assert tree(tmp_path) == {name: b"1"}
    temporary = temporary_name(tmp_path / name)
    assert temporary.parent == tmp_path
    assert temporary.name.startswith(".")
    assert temporary.name.endswith(TEMPORARY_SUFFIX)
    assert len(os.fsencode(temporary.name)) <= 255
    assert temporary_name(tmp_path / name) != temporary


def test_remove_leftovers_takes_nothing_else(tmp_path: Path) -> None:
    kept = {"a": b"1", f"b{TEMPORARY_SUFFIX}": b"2", ".hidden": b"3"}
    for name, data in kept.items():
        (tmp_path / name).write_bytes(data)
    (tmp_path / "deep/er").mkdir(parents=True)
    temporary_name(tmp_path / "deep/er/x").write_bytes(b"half")
    temporary_name(tmp_path / "y").write_bytes(b"half")
    assert remove_leftovers(tmp_path) == 2
    assert tree(tmp_path) == kept
    assert remove_leftovers(tmp_path / "none") == 0


def test_open_files_are_closed(tmp_path: Path) -> None:
    before = len(list(Path("/proc/self/fd").iterdir()))
    for number in range(20):
        write_bytes_atomic(tmp_path / str(number), b"1")
        with pytest.raises(ValueError, match="x"):
            with atomic_write(tmp_path / "b"):
                raise ValueError("x")
    assert len(list(Path("/proc/self/fd").iterdir())) == before


@pytest.mark.parametrize(
    ("number", "command"),
    [(errno.ENOSPC, "df -h"), (errno.EDQUOT, "df -h"), (errno.EACCES, "ls -ld"), (errno.EROFS, "ls -ld")],
)
def test_what_helps_depends_on_what_went_wrong(tmp_path: Path, number: int, command: str) -> None:
    folder = tmp_path / "a b"
    folder.mkdir()
    for target in (folder / "x", folder / "new/deeper/x"):
        hint = write_error(target, OSError(number, os.strerror(number))).hint
        assert hint is not None
        assert hint.startswith(f"{command} '{folder}'")


def test_only_own_temporaries_of_a_prefix_are_removed(tmp_path: Path) -> None:
    mine = [temporary_name(tmp_path / name) for name in ("all.bin", "all.idx")]
    kept = [temporary_name(tmp_path / "other.bin"), temporary_name(tmp_path / "all.idx.old"), tmp_path / "all.bin"]
    kept.append(tmp_path / f".all.bin.{os.getpid() + 1}-00{TEMPORARY_SUFFIX}")
    for path in [*mine, *kept]:
        path.write_bytes(b"1")
    remove_own(tmp_path / "all")
    assert sorted(tmp_path.iterdir()) == sorted(kept)
    remove_own(tmp_path / "absent" / "all")
