"""Memory of one worker does not grow with the input."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.build.making import CORPUS, tokenizer_file, write_recipe

MEASURED = """
import resource, sys
from tokenreel.build.run import build
report = build(sys.argv[1], sys.argv[2], in_process=True)
print(report.engine.split()[0], resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["bytes", "gigatoken", "fastokens"])
def test_an_input_of_hundreds_of_megabytes(tmp_path: Path, engine: str) -> None:
    if engine != "bytes":
        pytest.importorskip(engine)
    tokenizer_file(tmp_path)
    (tmp_path / "in").mkdir()
    line = json.dumps({"text": " ".join(CORPUS) * 3, "id": "x"}, ensure_ascii=False).encode() + b"\n"
    with (tmp_path / "in" / "a.jsonl").open("wb") as file:
        for _ in range(300):
            file.write(line * ((1 << 20) // len(line)))
    tokenizer = {"name": "bytes"} if engine == "bytes" else {"path": "tokenizer.json", "eod": "<eod>", "engine": engine}
    recipe = write_recipe(tmp_path, corpus={"layout": "native"}, tokenizer=tokenizer)
    words = [sys.executable, "-c", MEASURED, str(recipe), str(tmp_path / "out")]
    done = subprocess.run(words, capture_output=True, text=True, timeout=560, check=True)
    name, kilobytes = done.stdout.split()
    assert name == engine
    assert int(kilobytes) < 1 << 20
