from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.text.fake_engines import fake
from tests.text.made import byte_bpe, made, shared_tokenizer
from tokenreel.errors import MissingExtra, TokenizerError
from tokenreel.text import open_engine
from tokenreel.text.engines import CANDIDATES
from tokenreel.text.probe_texts import probe_texts, tokens_in_context

FAST = [c.name for c in CANDIDATES if c.version() is not None]
TEXTS = st.lists(
    st.one_of(
        st.text(st.characters(exclude_categories=["Cs"]), max_size=80),
        st.lists(st.sampled_from(["<|endoftext|>", "<|end", "oftext|>", " ", "\n", "the", "é", "0"]), max_size=8).map(
            "".join
        ),
    ),
    max_size=6,
)


@pytest.mark.parametrize("name", FAST)
@pytest.mark.parametrize("mode", ["text", "special", "drop"])
def test_engine_equals_reference_on_any_text(name, mode):
    tok = byte_bpe()
    engine, reference = open_engine(tok, name, special_in_text=mode), open_engine(tok, special_in_text=mode)

    @settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
    @given(TEXTS)
    def check(texts):
        for mine, theirs in zip(engine.encode(texts), reference.encode(texts), strict=True):
            assert mine.dtype == theirs.dtype
            assert np.array_equal(mine, theirs)

    check()


@pytest.mark.parametrize("name", FAST)
@pytest.mark.parametrize("mode", ["text", "special"])
def test_engine_on_gpt2(name, mode):
    tok = shared_tokenizer("gpt2")
    texts = [*probe_texts(), *tokens_in_context(tok.added)]
    engine, reference = open_engine(tok, name, special_in_text=mode), open_engine(tok, special_in_text=mode)
    for mine, theirs in zip(engine.encode(texts), reference.encode(texts), strict=True):
        assert np.array_equal(mine, theirs)


@pytest.mark.parametrize("name", [*FAST, None])
def test_shapes_of_input(name):
    encoder = open_engine(byte_bpe(), name)
    texts = ["", "one", "<|endoftext|>", "", "x" * 100_000, "é<|endoftext|>", ""]
    ids, lengths = encoder.encode(texts)
    array = pa.array(["skipped", *texts], pa.large_string())
    for other in (array[1:], pa.array(texts, pa.string()), pa.chunked_array([texts[:2], texts[2:]]), tuple(texts)):
        again = encoder.encode(other)
        assert np.array_equal(again[0], ids)
        assert np.array_equal(again[1], lengths)
    assert lengths[[0, 3, 6]].tolist() == [0, 0, 0]
    for nothing in ([], pa.array([], pa.large_string()), [""], ["", ""]):
        ids, lengths = encoder.encode(nothing)
        assert (len(ids), lengths.tolist()) == (0, [0] * len(nothing))
        assert (ids.dtype, lengths.dtype) == (np.uint32, np.int64)
    with pytest.raises(TokenizerError, match="TKZ005 byte 0 document 1"):
        encoder.encode(["a", "\udfff"])


def test_failures_are_errors():
    tok = byte_bpe()
    with pytest.raises(TokenizerError, match=r"TKZ013 panics failed: Panic: byte remapping failed"):
        open_engine(tok, "panics", candidates=[fake("panics")])
    later = open_engine(tok, "panics_later", candidates=[fake("panics_later")])
    with pytest.raises(TokenizerError, match=r"TKZ013 panics_later failed: Panic: index out of bounds"):
        later.encode(["a"])
    with pytest.raises(TokenizerError, match=r"TKZ013[\s\S]*lost count"):
        open_engine(tok, "loses_count", candidates=[fake("loses_count")]).encode(["a", "b"])
    with pytest.raises(MissingExtra, match="USE002"):
        open_engine(tok, "unheard-of")


@pytest.mark.parametrize("name", FAST)
@pytest.mark.parametrize("kind", ["unigram", "wordpiece"])
def test_tokenizers_that_fast_engines_do_not_read(name, kind):
    with pytest.raises(TokenizerError, match="TKZ013"):
        open_engine(made(kind), name)


COUNT_THREADS = """
import os, sys
from tests.text.made import byte_bpe
from tokenreel.text import open_engine

def threads():
    return len(os.listdir("/proc/self/task"))

texts = ["some text " * 50] * 500
open_engine(byte_bpe()).encode(texts)  # what pyarrow starts is not the engine's
before = threads()
encoder = open_engine(byte_bpe(), sys.argv[1] or None)
opened = threads()
for _ in range(3):
    encoder.encode(texts)
print(opened - before, threads() - opened, os.environ.get("RAYON_NUM_THREADS"), os.environ.get("TOKENIZERS_PARALLELISM"))
"""


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="threads are counted in /proc")
@pytest.mark.parametrize("name", [*FAST, ""])
def test_one_thread_at_most_is_started(name):
    env = {k: v for k, v in os.environ.items() if k not in ("RAYON_NUM_THREADS", "TOKENIZERS_PARALLELISM")}
    env["PYTHONPATH"] = os.pathsep.join(sys.path)
    done = subprocess.run(
        [sys.executable, "-c", COUNT_THREADS, name], env=env, capture_output=True, text=True, check=True
    )
    pool = "1" if name == "fastokens" else "0"
    assert done.stdout.split() == [pool, "0", "None", "None"]


def _in_child(encoder, queue):
    try:
        queue.put(encoder.encode(["hello"])[1].tolist())
    except TokenizerError as error:
        queue.put(error.code)


@pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="no fork here")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("name", [*FAST, None])
def test_forked_after_use_is_an_answer_or_an_error_but_no_hang(name):
    encoder = open_engine(byte_bpe(), name)
    wanted = encoder.encode(["hello"])[1].tolist()
    context = multiprocessing.get_context("fork")
    queue = context.SimpleQueue()
    child = context.Process(target=_in_child, args=(encoder, queue))
    child.start()
    child.join(30)
    assert child.exitcode == 0
    assert queue.get() == ("TKZ013" if name == "fastokens" else wanted)
