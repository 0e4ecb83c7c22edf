"""Codes as options name them: whole (`MEG004`) or their beginnings (`MEG`, `TOK02`); a misspelt one is refused."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tokenreel.errors import UsageError, codes, nearest

if TYPE_CHECKING:
    from collections.abc import Iterable


def known_codes(words: Iterable[str], option: str = "--select", *, whole: bool = False) -> tuple[str, ...]:
    """Return codes and beginnings of codes as an option names them, in upper case; commas separate as well.

    With `whole`, each must be a code. Raises `UsageError` (USE001) for one that the table does not have, naming the
    nearest: what is selected by a misspelt code is nothing, and nothing is always fine.

    >>> known_codes(["man", "TOK02,MEG004"])
    ('MAN', 'TOK02', 'MEG004')
    """
    table = codes()
    out = []
    for word in (part.strip().upper() for text in words for part in text.split(",")):
        fits = word in table if whole else bool(word) and any(code.startswith(word) for code in table)
        if not fits:
            near = nearest(word, [*table, *({} if whole else {code[:3]: None for code in table})])
            raise UsageError(
                "USE001",
                f"{option}: no code {'is' if whole else 'begins like'} this",
                expected="a code of the table" + ("" if whole else ", or its beginning"),
                found=word or "nothing",
                hint=f"{option} {near}" if near else "tokenreel explain --list",
            )
        out.append(word)
    return tuple(out)
