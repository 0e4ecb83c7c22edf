"""Run the command and kill it, as kill -9 does, before its nth change of what lies below a folder."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

DRIVER = """
import os, signal, sys
left, place = int(sys.argv[1]), sys.argv[2]
CHANGES = {"os.rename", "os.mkdir", "os.rmdir", "os.remove"}

def hook(event, args):
    global left
    if event == "open":
        change = bool(args[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT))
    else:
        change = event in CHANGES
    if change and any(place in os.fsdecode(a) for a in args if isinstance(a, (str, bytes, os.PathLike))):
        left -= 1
        if left < 0:
            os.kill(os.getpid(), signal.SIGKILL)

from tokenreel.cli import main
sys.addaudithook(hook)
status = main(sys.argv[3:])
print(left, file=sys.stderr)
sys.exit(status)
"""
MANY = 1 << 30


def killed(number: int, place: Path, *words: object) -> bool:
    """Run ``tokenreel WORDS`` and kill it before change `number`, counted from 0, below `place`; False: it came to its end."""
    command = [sys.executable, "-c", DRIVER, str(number), str(place), *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode == -signal.SIGKILL:
        return True
    assert done.returncode in (0, 1), done.stderr
    return False


def changes(place: Path, *words: object) -> int:
    """Run ``tokenreel WORDS`` to its end and return how many changes below `place` it made."""
    command = [sys.executable, "-c", DRIVER, str(MANY), str(place), *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode in (0, 1), done.stderr
    return MANY - int(done.stderr.split()[-1])
