from __future__ import annotations

import os
import subprocess
import sys
import time
import types

import pytest

from tests.text.made import trained_json
from tokenreel.errors import StorageError
from tokenreel.text import TokenizerSpec, load_tokenizer, pinned
from tokenreel.text.hub import hub_cache, resolve

COMMIT = "0123456789abcdef0123456789abcdef01234567"
OTHER = "f" * 40


@pytest.fixture
def cache(tmp_path, monkeypatch):
    root = tmp_path / "hub" / "models--org--name"
    snapshot = root / "snapshots" / COMMIT
    (snapshot / "sub").mkdir(parents=True)
    (root / "refs").mkdir()
    (root / "refs" / "main").write_text(COMMIT)
    (root / "refs" / "broken").write_text("not a commit")
    (root / "blobs").mkdir()
    (root / "blobs" / "x").write_bytes(trained_json())
    (snapshot / "tokenizer.json").symlink_to(root / "blobs" / "x")
    (snapshot / "sub" / "t.json").write_bytes(trained_json(300))
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    return tmp_path / "hub"


def spec(**table):
    return TokenizerSpec.parse({"repo": "org/name", **table})


def test_from_the_local_cache(cache):
    found = resolve(spec(revision=COMMIT))
    assert found.path.parts[-2:] == (COMMIT, "tokenizer.json")
    tok = load_tokenizer(spec(revision=COMMIT, subfolder="sub", file="t.json"))
    assert (tok.vocab_size, tok.name) == (300, "org/name/sub/t.json")


def test_a_branch_is_resolved_once(cache):
    assert pinned(spec()).revision == COMMIT
    assert pinned(spec(revision=COMMIT)) == spec(revision=COMMIT)
    assert pinned(TokenizerSpec.parse("bytes")).kind == "bytes"


@pytest.mark.parametrize(
    ("table", "code"),
    [({"revision": OTHER}, "TKZ009"), ({"revision": COMMIT, "file": "no.json"}, "TKZ009"), ({"revision": "v2"}, "TKZ010"),
     ({"revision": "broken"}, "TKZ010")],
)  # fmt: skip
def test_what_is_not_there(cache, table, code):
    with pytest.raises(StorageError, match=code) as caught:
        load_tokenizer(spec(**table))
    assert caught.value.exit_status == 3
    assert caught.value.hint.startswith("hf download org/name ")
    assert f"--revision {table['revision']}" in caught.value.hint


def fake_hub(monkeypatch, download, metadata=lambda url, *, timeout: None):
    """Put a hub in place of the package: its metadata are asked for first, then the file."""
    quiet = []
    words = types.SimpleNamespace(CRITICAL=50, get_verbosity=lambda: 30, set_verbosity=quiet.append)
    utils = types.SimpleNamespace(
        logging=words,
        are_progress_bars_disabled=lambda: False,
        disable_progress_bars=lambda: quiet.append("no bars"),
        enable_progress_bars=lambda: quiet.append("bars"),
    )
    hub = types.SimpleNamespace(
        utils=utils,
        hf_hub_url=lambda repo, name, *, revision: f"{repo}/{name}@{revision}",
        get_hf_file_metadata=metadata,
        hf_hub_download=download,
    )
    monkeypatch.setitem(sys.modules, "huggingface_hub", hub)
    return quiet


def test_an_unreachable_hub_is_asked_once_and_quietly(cache, monkeypatch):
    asked = []

    def metadata(url, *, timeout):
        asked.append((url, timeout))
        raise ConnectionError("no route to host")

    def download(*_, **__):
        raise AssertionError("the download tries again and again")

    quiet = fake_hub(monkeypatch, download, metadata)
    with pytest.raises(StorageError, match=r"TKZ010[\s\S]*no route to host"):
        resolve(spec(revision="v2"), online=True)
    assert len(asked) == 1
    assert asked[0][1] <= 10
    assert quiet == [50, "no bars", 30, "bars"]


def test_the_real_package_gives_up_soon_and_says_nothing(cache, monkeypatch, capfd):
    """The discard port of this machine refuses at once; five tries with pauses would take half a minute."""
    constants = pytest.importorskip("huggingface_hub.constants")
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setattr(
        constants, "HUGGINGFACE_CO_URL_TEMPLATE", "http://127.0.0.1:9/{repo_id}/resolve/{revision}/{filename}"
    )
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    begun = time.monotonic()
    with pytest.raises(StorageError, match="TKZ010"):
        resolve(spec(revision="v2"), online=True)
    assert time.monotonic() - begun < 5
    assert capfd.readouterr() == ("", "")


def test_the_real_package_is_asked_from_a_new_process(cache):
    """There nothing imported the parts that some of its versions do not name before they are imported."""
    pytest.importorskip("huggingface_hub")
    code = (
        "from tokenreel.text import TokenizerSpec\n"
        "from tokenreel.text.hub import resolve\n"
        "resolve(TokenizerSpec.parse({'repo': 'org/name', 'revision': 'v2'}), online=True)"
    )
    environment = {**os.environ, "HF_ENDPOINT": "http://127.0.0.1:9"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment)
    assert "TKZ010" in done.stderr
    assert "attribute" not in done.stderr.splitlines()[-2]


def test_the_hub_is_asked_last(cache, monkeypatch):
    asked = []

    def download(repo, name, *, revision, cache_dir):
        asked.append((repo, name, revision, cache_dir))
        path = cache / "models--org--name" / "snapshots" / OTHER / name
        path.parent.mkdir(parents=True)
        path.write_bytes(trained_json())
        return str(path)

    fake_hub(monkeypatch, download)
    assert resolve(spec(revision="v2", subfolder="a/b"), online=True).revision == OTHER
    assert asked == [("org/name", "a/b/tokenizer.json", "v2", str(cache))]
    resolve(spec(), online=True)
    assert len(asked) == 1


def test_a_hub_that_fails_is_an_error_with_its_reason(cache, monkeypatch):
    def download(*_, **__):
        raise ConnectionError("name resolution")

    fake_hub(monkeypatch, download)
    with pytest.raises(StorageError, match=r"TKZ010[\s\S]*name resolution"):
        resolve(spec(revision="v2"), online=True)
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(StorageError, match=r"TKZ009[\s\S]*not installed"):
        resolve(spec(revision=OTHER), online=True)


def test_where_the_cache_is():
    assert hub_cache({"HF_HUB_CACHE": "/a", "HF_HOME": "/b"}).as_posix() == "/a"
    assert hub_cache({"HF_HOME": "/b"}).as_posix() == "/b/hub"
    assert hub_cache({"XDG_CACHE_HOME": "/c"}).as_posix() == "/c/huggingface/hub"
    assert hub_cache({}).parts[-3:] == (".cache", "huggingface", "hub")
