"""Run in a user's checkout: calls one function of theirs for every JSON line, and answers with a JSON list of texts.

Needs nothing but Python: it is started by its path with the checkout's own interpreter.
"""

import importlib
import json
import os
import sys


def texts_of(made: object) -> list:  # type: ignore[type-arg]
    """Return the texts in what a transform gave: a text, an object with one, a sequence of these, or None."""
    if made is None:
        return []
    if isinstance(made, str):
        return [made]
    if isinstance(made, dict):
        return [made["text"]] if made.get("text") is not None else []
    return [text for one in made for text in texts_of(one)]  # type: ignore[attr-defined]


def main() -> None:
    """Serve until the input ends; an exception is an answer, ``{"error": ...}``."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    # What the checkout prints must not stand among the answers.
    os.dup2(2, 1)
    sys.path.insert(0, os.getcwd())  # noqa: PTH109
    sys.stdin.reconfigure(encoding="utf-8")  # type: ignore[union-attr]
    function = getattr(importlib.import_module(sys.argv[1]), sys.argv[2])
    for line in sys.stdin:
        try:
            answer = texts_of(function(json.loads(line)))
        except Exception as error:  # noqa: BLE001 (their code, their errors: said in the answer)
            answer = {"error": f"{type(error).__name__}: {error}"}  # type: ignore[assignment]
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
