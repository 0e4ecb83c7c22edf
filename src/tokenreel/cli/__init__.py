"""The command line: parse -> call -> render. No logic lives here.

Exit status: 0 fine, 1 the data is wrong, 2 usage or recipe, 3 could not read or write, 4 incomplete, 70 a bug, 130
interrupted, 143 terminated.
"""

from tokenreel.cli.main import main

__all__ = ["main"]
