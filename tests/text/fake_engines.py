"""Engines that fail in every way an engine can; opened by name in the probe's child process."""

from __future__ import annotations

import ctypes
import os
import time

import numpy as np

from tokenreel.text.engines import Candidate


class Panic(BaseException):
    """Stands for pyo3's PanicException, which is no Exception either."""


class _Engine:
    honours_special = False

    def __init__(self, tok, act):
        self.tok, self.act = tok, act

    def encode(self, texts):
        ids, lengths = self.tok.encode_batch(texts)
        return self.act(texts, ids.copy(), lengths.copy())


def right(tok, special, threads):
    return _Engine(tok, lambda texts, ids, lengths: (ids, lengths))


def wrong(tok, special, threads):
    """Differs on one rare text only: the combining marks."""

    def act(texts, ids, lengths):
        edges = np.concatenate(([0], np.cumsum(lengths)))
        for k, text in enumerate(texts.to_pylist()):
            if "\u0315\u0300" in text:
                ids[edges[k]] ^= 1
        return ids, lengths

    return _Engine(tok, act)


def wrong_on_sample(tok, special, threads):
    """Differs where a text is exactly the pair of marks after an a, which the probe set does not hold."""

    def act(texts, ids, lengths):
        edges = np.concatenate(([0], np.cumsum(lengths)))
        for k, text in enumerate(texts.to_pylist()):
            if text == "a\u0315\u0300":
                ids[edges[k]] ^= 1
        return ids, lengths

    return _Engine(tok, act)


def ignores_special(tok, special, threads):
    """Encodes special tokens as tokens although they are to be ordinary text."""

    class Engine(_Engine):
        def encode(self, texts):
            return self.tok.encode_batch(texts, special=True)

    return Engine(tok, None)


def loses_count(tok, special, threads):
    return _Engine(tok, lambda texts, ids, lengths: (ids, lengths[:-1]))


def leaves(tok, special, threads):
    return _Engine(tok, lambda *_: os._exit(3))


def segfaults(tok, special, threads):
    return _Engine(tok, lambda *_: ctypes.string_at(0))


def hangs(tok, special, threads):
    return _Engine(tok, lambda *_: time.sleep(600))


def panics(tok, special, threads):
    raise Panic("byte remapping failed")


def panics_later(tok, special, threads):
    def act(*_):
        raise Panic("index out of bounds")

    return _Engine(tok, act)


def slow(tok, special, threads):
    """Right, and slower than `right`."""

    def act(texts, ids, lengths):
        until = time.process_time() + 0.3
        while time.process_time() < until:
            pass
        return ids, lengths

    return _Engine(tok, act)


class Fake(Candidate):
    def version(self):
        return "1.0"


def fake(name: str) -> Candidate:
    return Fake(name, f"tests.text.fake_engines:{name}")
