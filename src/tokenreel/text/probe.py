"""Choose the fastest engine whose ids equal the reference's on the probe set and on a sample of the real text.

Each candidate runs in a child process of its own, because an engine may panic, crash or hang. The child only encodes;
the comparison is made here. That an engine agreed on the probe is evidence, not proof, so builds go on comparing a
sample of documents (`tokenreel.text.recheck`).
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tokenreel.text.engines import CANDIDATES, reference_version
from tokenreel.text.probe_texts import PROBE_SET, probe_texts, tokens_in_context
from tokenreel.text.texts import text_array, text_bytes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tokenreel.text.engines import Candidate
    from tokenreel.text.spec import SpecialInText
    from tokenreel.text.texts import Texts
    from tokenreel.text.tokenizer import Encoded, Tokenizer

SAMPLE_BYTES = 2 << 20
"""How much of the sample is used: the reference takes 0.3 to 1.5 s for it."""

TIMEOUT = 90.0
"""Seconds after which a candidate is given up: it needs about two."""


@dataclass(frozen=True, slots=True)
class EngineChoice:
    """Which engine, and why no other. Only `probe_sha256` is the same on every machine."""

    name: str
    version: str
    probe_sha256: str
    """`probe_digest` of the reference: says which tokenizer this is, whatever its file's bytes and whatever engine."""
    rejected: tuple[tuple[str, str], ...] = ()
    """Engines not chosen, with the reason."""
    speeds: tuple[tuple[str, float], ...] = ()
    """MB of UTF-8 per CPU second on the sample, first encounter, of every engine that agreed; empty without sample."""


@dataclass(slots=True)
class _Trial:
    """A candidate in its child process."""

    candidate: Candidate
    version: str
    folder: Path
    process: subprocess.Popen[bytes]
    deadline: float
    reason: str = ""
    seconds: float = field(default=0.0)


def probe_digest(tok: Tokenizer) -> str:
    """Return the SHA-256, in hex, of the reference's ids on the probe set with special tokens as ordinary text.

    Hashed are ``"tokenreel-probe-1\\n"``, the number of texts (uint64 LE), their lengths in ids (uint64 LE each) and
    the ids end to end (uint32 LE each). Cost: 0.1 to 0.5 s.
    """
    return _digest(tok.encode_batch(probe_texts()))


def choose_engine(
    tok: Tokenizer,
    sample: Texts = (),
    *,
    special_in_text: SpecialInText = "text",
    candidates: Sequence[Candidate] = CANDIDATES,
    timeout: float = TIMEOUT,
) -> EngineChoice:
    """Return the fastest candidate that gives the reference's ids on the probe set and `sample`, else the reference.

    `sample` is real text, varied; its first `SAMPLE_BYTES` are used. Candidates that agree are ordered by CPU time on
    it, in the order given when there is none. ``bytes`` needs no other engine. Cost: two to four seconds, most of it
    the children's start. Raises only what the reference raises.
    """
    version = reference_version(tok)
    if special_in_text == "special":
        tok.encode_batch([], special=True)  # refuses now if it cannot be honoured
    if tok.kind == "bytes" or not candidates:
        return EngineChoice(tok.reference, version, probe_digest(tok))
    special = special_in_text == "special"
    fixed = probe_texts()
    own = tokens_in_context(getattr(tok, "added", tuple(tok.specials)))
    real = _cut(text_array(sample), SAMPLE_BYTES)
    with tempfile.TemporaryDirectory(prefix="tokenreel-probe-") as temporary:
        request = Path(temporary)
        _write_request(request, tok, [*fixed, *own], real)
        trials, rejected = _start(request, tok, candidates, special=special, timeout=timeout)
        try:
            plain = tok.encode_batch(fixed)
            wanted = [_joined(tok.encode_batch(fixed, special=True) if special else plain, tok.encode_batch(own, special=special)),
                      tok.encode_batch(real, special=special)]  # fmt: skip
            for trial in trials:
                trial.reason = _wait(trial) or _compare(trial, wanted, [*fixed, *own], real)
        finally:
            for trial in trials:
                if trial.process.poll() is None:
                    trial.process.kill()
                trial.process.wait()
    megabytes = len(text_bytes(real)[0]) / 1e6
    agreed = [trial for trial in trials if not trial.reason]
    if megabytes:
        agreed.sort(key=lambda trial: trial.seconds)
    rejected += [(trial.candidate.name, trial.reason) for trial in trials if trial.reason]
    speeds = tuple((t.candidate.name, round(megabytes / max(t.seconds, 1e-6), 1)) for t in agreed if megabytes)
    if not agreed:
        return EngineChoice(tok.reference, version, _digest(plain), tuple(rejected))
    best = agreed[0]
    rejected += [(trial.candidate.name, f"slower than {best.candidate.name}") for trial in agreed[1:]]
    return EngineChoice(best.candidate.name, best.version, _digest(plain), tuple(rejected), speeds)


def _start(
    request: Path, tok: Tokenizer, candidates: Sequence[Candidate], *, special: bool, timeout: float
) -> tuple[list[_Trial], list[tuple[str, str]]]:
    trials, rejected = [], []
    path = os.pathsep.join(entry or os.getcwd() for entry in sys.path)  # noqa: PTH109
    for number, candidate in enumerate(candidates):
        version = candidate.version()
        if version is None:
            rejected.append((candidate.name, "not installed"))
            continue
        folder = request / str(number)
        folder.mkdir()
        order = {"name": candidate.name, "factory": candidate.factory, "special": special, "tokenizer": tok.name}
        (folder / "order.json").write_text(json.dumps(order), "utf-8")
        with (folder / "stderr").open("wb") as stderr:
            process = subprocess.Popen(
                [sys.executable, "-m", "tokenreel.text.probe_child", str(request), str(folder)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=stderr,
                env={**os.environ, "PYTHONPATH": path, "RAYON_NUM_THREADS": "1"},
            )
        trials.append(_Trial(candidate, version, folder, process, time.monotonic() + timeout))
    return trials, rejected


def _wait(trial: _Trial) -> str:
    """Return why the child gave no answer; empty if it did."""
    try:
        status = trial.process.wait(max(0.0, trial.deadline - time.monotonic()))
    except subprocess.TimeoutExpired:
        trial.process.kill()
        return f"no answer in time while {_stage(trial)}"
    try:
        result = json.loads((trial.folder / "result.json").read_text("utf-8"))
    except (OSError, ValueError):
        how = f"killed by signal {-status}" if status < 0 else f"exit status {status}"
        return f"died while {_stage(trial)} ({how}){_last_words(trial)}"
    trial.seconds = float(result.get("seconds", 0.0))
    return str(result.get("error", ""))


def _compare(trial: _Trial, wanted: list[Encoded], probe: list[str], real: Any) -> str:
    """Return where the engine's ids first differ from the reference's; empty if nowhere."""
    for part, reference in zip(("probe", "sample"), wanted, strict=True):
        found = tuple(np.load(trial.folder / f"{part}-{what}.npy") for what in ("ids", "lengths"))
        number = first_difference(reference, found)
        if number is not None:
            text = probe[number] if part == "probe" else real[number].as_py()
            return f"other ids than the reference on {part} text {number}: {text[:60]!a}"
    return ""


def first_difference(one: Encoded, other: Encoded) -> int | None:
    """Return the number of the first document whose ids differ, or None; a missing document differs.

    >>> ids = np.array([1, 2, 3], np.uint32)
    >>> first_difference((ids, np.array([1, 2])), (ids, np.array([2, 1])))
    0
    """
    if np.array_equal(one[1], other[1]) and np.array_equal(one[0], other[0]):
        return None
    edges = [np.concatenate(([0], np.cumsum(lengths))) for _, lengths in (one, other)]
    common = min(len(one[1]), len(other[1]))
    for k in range(common):
        mine, theirs = (ids[edge[k] : edge[k + 1]] for (ids, _), edge in zip((one, other), edges, strict=True))
        if not np.array_equal(mine, theirs):
            return k
    return common


def _write_request(folder: Path, tok: Tokenizer, probe: list[str], real: Any) -> None:
    import pyarrow as pa

    (folder / "tokenizer").write_bytes(tok.data)
    for name, texts in (("probe", pa.array(probe, pa.large_string())), ("sample", real)):
        table = pa.table({"text": texts})
        with pa.OSFile(str(folder / f"{name}.arrow"), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
            writer.write_table(table)


def _cut(texts: Any, most: int) -> Any:
    """Return the first documents of at most `most` bytes together; a first one that is longer is cut."""
    _, offsets = text_bytes(texts)
    count = int(np.searchsorted(offsets, most, side="right")) - 1
    if count or not len(texts):
        return texts[:count]
    import pyarrow as pa

    return pa.array([texts[0].as_py()[: most // 4]], pa.large_string())


def _joined(one: Encoded, other: Encoded) -> Encoded:
    return np.concatenate((one[0], other[0])), np.concatenate((one[1], other[1]))


def _digest(encoded: Encoded) -> str:
    ids, lengths = encoded
    digest = hashlib.sha256(f"{PROBE_SET}\n".encode())
    digest.update(len(lengths).to_bytes(8, "little"))
    digest.update(lengths.astype("<u8").tobytes())
    digest.update(ids.astype("<u4").tobytes())
    return digest.hexdigest()


def _stage(trial: _Trial) -> str:
    try:
        return (trial.folder / "stage").read_text("ascii") or "starting"
    except OSError:
        return "starting"


def _last_words(trial: _Trial) -> str:
    lines = (trial.folder / "stderr").read_text("utf-8", "replace").strip().splitlines()
    return f": {lines[-1][:200]}" if lines else ""
