"""The whole life of a corpus, offline, on text that every machine has. Each act says what it did and what it measured.

``run_demo(folder, say)`` plays all acts in order; later features add theirs to `ACTS`.
"""

from tokenreel.demo.acts import ACTS, Act, run_demo

__all__ = ["ACTS", "Act", "run_demo"]
