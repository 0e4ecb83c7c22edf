"""The house rules as functions over a source tree; each returns the violations it finds, as text.

`tests/test_structure.py` runs them on this repository and, to show that each can fail, on small bad trees.
"""

from __future__ import annotations

import ast
import re
import subprocess
import tomllib
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PACKAGE = "tokenreel"
MAX_LINES = 500

# ---- imports ------------------------------------------------------------------------------------------------------

_BASE = frozenset({"errors", "spans", "hashing"})
_STORED = _BASE | {"store"}
_CORPUS = _STORED | {"text", "formats", "corpus"}
_INDEX = _CORPUS | {"order", "pack", "config", "index"}
_VERIFY = _INDEX | {"verify"}
_MADE = _VERIFY | {"convert", "build"}
_USED = _MADE | {"feed", "replay", "publish", "report"}

ALLOWED: dict[str, frozenset[str]] = {
    "errors": frozenset(),
    "spans": frozenset({"errors"}),
    "hashing": frozenset({"errors"}),
    "order": _BASE,
    "pack": _BASE | {"order"},
    "store": _BASE,
    "config": _STORED,
    "text": _STORED,
    "formats": _STORED,
    "corpus": _CORPUS - {"corpus"},
    "index": _INDEX - {"index"},
    "verify": _INDEX,
    "convert": _VERIFY,
    "build": _VERIFY,
    "feed": _MADE,
    "replay": _MADE | {"feed"},  # ledgers are read as feeds write them
    "publish": _MADE,
    "report": _MADE,
    "demo": _USED,
    "cli": _USED | {"demo"},
}
"""What each part of the package may import, besides itself. `testing` may import all; nothing imports it."""

# Packages that cost seconds or are optional: never imported when a module of ours is.
HEAVY = frozenset(
    {
        "fastokens", "gigatoken", "google_crc32c", "grain", "huggingface_hub", "jax", "matplotlib", "numba", "numcodecs", "obstore", "py3langid",
        "pyarrow", "ray", "sentencepiece", "tokenizers", "torch", "zarr", "zstandard",
    }
)  # fmt: skip
# Rims: a module that is nothing without its framework may import it at its top.
RIMS = {
    "feed/torch.py": "torch", "feed/torch_batch.py": "torch", "feed/torch_data.py": "torch", "feed/jax.py": "jax",
    "feed/grain.py": "grain",
}  # fmt: skip

# `inspect`, `verify` and `convert` never import numba, nor does anything they stand on.
NUMBA_FREE = _CORPUS | {"verify", "convert"}

PURE = frozenset({"spans", "order", "pack"})
IMPURE_MODULES = frozenset(
    {"datetime", "glob", "io", "mmap", "multiprocessing", "os", "pathlib", "random", "secrets", "shutil", "socket",
     "subprocess", "tempfile", "threading", "time", "uuid"}
)  # fmt: skip
GLOBAL_RANDOM = frozenset(
    {"seed", "rand", "randn", "randint", "random", "choice", "shuffle", "permutation", "uniform", "normal"}
)


@dataclass(frozen=True, slots=True)
class Import:
    """One import found in a module: its dotted target, where, and whether it runs when the module is imported."""

    target: str
    line: int
    at_top: bool


@cache
def parse(path: Path) -> ast.Module:
    """Return the syntax tree of a module."""
    return ast.parse(path.read_text("utf-8"), str(path))


def modules(tree: Path) -> list[Path]:
    """Return the modules of the package at `tree` (the folder that is the package), sorted."""
    return sorted(tree.rglob("*.py"))


def where(path: Path, tree: Path, line: int = 1) -> str:
    """Return a place in the way compilers print it."""
    return f"{path.relative_to(tree).as_posix()}:{line}"


def part_of(path: Path, tree: Path) -> str:
    """Return the part of the package a module belongs to: `errors`, `order`, ..., `__init__`, `__main__`."""
    first = path.relative_to(tree).parts[0]
    return first.removesuffix(".py")


def imports(path: Path, tree: Path) -> Iterator[Import]:
    """Yield every import of a module, those inside functions too, but for those only a type checker sees.

    `import_module("a.b")` and `require("a.b")` with a literal count: they import as well.
    """
    inside = [PACKAGE, *path.relative_to(tree).parent.parts]

    def visit(node: ast.AST, at_top: bool) -> Iterator[Import]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.If) and _is_type_checking(child.test):
                for branch in child.orelse:
                    yield from visit(ast.Module([branch], []), at_top)
                continue
            if isinstance(child, ast.Import):
                for alias in child.names:
                    yield Import(alias.name, child.lineno, at_top)
            elif isinstance(child, ast.ImportFrom):
                base = child.module or ""
                if child.level:
                    outer = inside[: len(inside) - child.level + 1]
                    base = ".".join([*outer, base] if base else outer)
                for alias in child.names:
                    # `from tokenreel import store` names a part; `from tokenreel.store import x` a member of one.
                    yield Import(f"{base}.{alias.name}", child.lineno, at_top)
            elif isinstance(child, ast.Call) and (target := _dynamic_import(child)):
                yield Import(target, child.lineno, at_top)
            inner = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
            yield from visit(child, at_top and not inner)

    yield from visit(parse(path), at_top=True)


def _is_type_checking(test: ast.expr) -> bool:
    return ast.unparse(test) in {"TYPE_CHECKING", "typing.TYPE_CHECKING"}


def _dynamic_import(call: ast.Call) -> str | None:
    name = ast.unparse(call.func).rpartition(".")[2]
    if name not in {"import_module", "__import__", "require"} or not call.args:
        return None
    first = call.args[0]
    return first.value if isinstance(first, ast.Constant) and isinstance(first.value, str) else None


def import_direction(tree: Path) -> list[str]:
    """Imports between parts of the package that `ALLOWED` does not allow."""
    parts = {part_of(path, tree) for path in modules(tree)}
    bad = [f"{part}: not a part of the house" for part in sorted(parts - set(ALLOWED) - _FREE - {"testing"})]
    for path in modules(tree):
        part = part_of(path, tree)
        if part == "testing":
            continue
        for found in imports(path, tree):
            target = _part_imported(found.target, parts)
            if target is None or target == part:
                continue
            if target == "testing" or (part not in _FREE and target not in ALLOWED.get(part, frozenset())):
                bad.append(f"{where(path, tree, found.line)}: {part} imports {target}")
    return bad


# The package itself re-exports, and `python -m` starts the command line.
_FREE = frozenset({"__init__", "__main__"})


def _part_imported(target: str, parts: set[str]) -> str | None:
    """Return the part a dotted name leads into; None outside the package, `__init__` for the public surface."""
    names = target.split(".")
    if names[0] != PACKAGE or target == f"{PACKAGE}.__version__":
        return None
    if len(names) > 1 and (names[1] in parts or names[1] in ALLOWED or names[1] == "testing"):
        return names[1]
    return "__init__"


def heavy_imports(tree: Path) -> list[str]:
    """Heavy packages imported at the top of a module, and numba where it must not be."""
    bad = []
    for path in modules(tree):
        relative = path.relative_to(tree).as_posix()
        for found in imports(path, tree):
            package = found.target.split(".")[0]
            if package in HEAVY and found.at_top and RIMS.get(relative) != package:
                bad.append(f"{where(path, tree, found.line)}: {package} imported at the top of a module")
            if package == "numba" and part_of(path, tree) in NUMBA_FREE:
                bad.append(f"{where(path, tree, found.line)}: {part_of(path, tree)} imports numba")
    return bad


def impurities(tree: Path) -> list[str]:
    """Files, clocks and global random state in the pure parts."""
    bad = []
    for path in modules(tree):
        if part_of(path, tree) not in PURE:
            continue
        bad += [
            f"{where(path, tree, found.line)}: pure code imports {found.target}"
            for found in imports(path, tree)
            if found.target.split(".")[0] in IMPURE_MODULES
        ]
        for node in ast.walk(parse(path)):
            if not isinstance(node, ast.Call):
                continue
            name = ast.unparse(node.func)
            draws = re.fullmatch(r"(np|numpy)\.random\.(\w+)", name)
            if name == "open" or (draws and draws[2] in GLOBAL_RANDOM):
                bad.append(f"{where(path, tree, node.lineno)}: pure code calls {name}")
    return bad


# ---- size and names -----------------------------------------------------------------------------------------------


def too_long(tree: Path, limit: int = MAX_LINES) -> list[str]:
    """Modules of more than `limit` lines."""
    sizes = [(path, len(path.read_text("utf-8").splitlines())) for path in modules(tree)]
    return [f"{where(path, tree)}: {size} lines, at most {limit}" for path, size in sizes if size > limit]


def vague_names(tree: Path) -> list[str]:
    """Modules and classes whose name does not say what they are."""
    bad = []
    for path in modules(tree):
        if re.fullmatch(r"_?(utils?|helpers?|misc|common)", path.stem) or path.parent.name in {"utils", "helpers"}:
            bad.append(f"{where(path, tree)}: a module named {path.stem}")
        bad += [
            f"{where(path, tree, node.lineno)}: a class named {node.name}"
            for node in ast.walk(parse(path))
            if isinstance(node, ast.ClassDef) and re.search(r"Manager|Handler|Helper|Utils?$", node.name)
        ]
    return bad


# ---- statements that are not allowed -------------------------------------------------------------------------------

PICKLERS = frozenset({"pickle", "_pickle", "cPickle", "cloudpickle", "dill", "joblib", "marshal", "shelve"})


def asserts(tree: Path) -> list[str]:
    """`assert` statements: they vanish under -O and carry no code."""
    return [
        f"{where(path, tree, node.lineno)}: assert"
        for path in modules(tree)
        for node in ast.walk(parse(path))
        if isinstance(node, ast.Assert)
    ]


def pickles(tree: Path) -> list[str]:
    """Imports of a pickling module, and `allow_pickle=` set to anything but False."""
    bad = []
    for path in modules(tree):
        bad += [
            f"{where(path, tree, found.line)}: imports {found.target}"
            for found in imports(path, tree)
            if found.target.split(".")[0] in PICKLERS
        ]
        bad += [
            f"{where(path, tree, node.lineno)}: allow_pickle={ast.unparse(node.value)}"
            for call in ast.walk(parse(path))
            if isinstance(call, ast.Call)
            for node in call.keywords
            if node.arg == "allow_pickle" and not (isinstance(node.value, ast.Constant) and node.value.value is False)
        ]
    return bad


# ---- the table of codes -------------------------------------------------------------------------------------------

FAMILIES = frozenset(
    {"MEG", "LMC", "FLT", "OFF", "OLM", "DTV", "MDS", "LIT", "LEV", "PQT", "PBN", "SID", "MAN", "TOK", "DOC", "SPL",
     "IDX", "SRC", "RCP", "TKZ", "PCK", "STA", "STO", "RPL", "PUB", "ORD", "USE"}
)  # fmt: skip
CODE = re.compile(r"[A-Z]{3}[0-9]{3}")
MENTION = re.compile(rf"\b(?:{'|'.join(sorted(FAMILIES))})[0-9]{{3}}\b")
NOT_CODES = frozenset({"SHA224", "SHA256", "SHA384", "SHA512"})
FIELDS = ("title", "meaning", "why", "mend")


def table_of_codes(tree: Path) -> dict[str, dict[str, object]]:
    """Return codes.toml as it is."""
    return tomllib.loads((tree / "codes.toml").read_text("utf-8"))


def codes_used(tree: Path) -> dict[str, str]:
    """Return every code that is a whole string literal in the package, with its first place."""
    used: dict[str, str] = {}
    for path in modules(tree):
        for node in ast.walk(parse(path)):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                code = node.value
                if CODE.fullmatch(code) and code not in NOT_CODES:
                    used.setdefault(code, where(path, tree, node.lineno))
    return used


def unknown_codes(tree: Path) -> list[str]:
    """Codes that the source raises, or its text mentions, and the table lacks."""
    known = table_of_codes(tree)
    # A code of a known family is found by its mention, whole literals included; what is left has no family.
    bad = [
        f"{place}: {code} is not in codes.toml"
        for code, place in codes_used(tree).items()
        if code not in known and not MENTION.fullmatch(code)
    ]
    for path in [*modules(tree), tree / "codes.toml"]:
        for number, line in enumerate(path.read_text("utf-8").splitlines(), 1):
            bad += [
                f"{where(path, tree, number)}: {code} is not in codes.toml"
                for code in MENTION.findall(line)
                if code not in known
            ]
    return bad


def unused_codes(tree: Path) -> list[str]:
    """Codes of the table that nothing in the package uses."""
    used = codes_used(tree)
    return [f"codes.toml: {code} is used nowhere" for code in table_of_codes(tree) if code not in used]


def faulty_rows(tree: Path) -> list[str]:
    """Rows of the table of codes that are not complete, not in order, or of no known family."""
    bad = []
    table = table_of_codes(tree)
    for code, row in table.items():
        if not CODE.fullmatch(code) or code[:3] not in FAMILIES:
            bad.append(f"codes.toml: {code} belongs to no family")
        for name in FIELDS:
            text = row.get(name)
            if not isinstance(text, str) or not text.strip():
                bad.append(f"codes.toml: {code} has no {name}")
            elif name == "title" and "\n" in text:
                bad.append(f"codes.toml: the title of {code} is more than one line")
        if not isinstance(row.get("exit", 1), int) or row.get("exit", 1) not in {1, 2, 3, 4}:
            bad.append(f"codes.toml: {code} has exit {row['exit']!r}")
        bad += [f"codes.toml: {code} has an unknown key {name}" for name in row if name not in {*FIELDS, "exit"}]
    if list(table) != sorted(table):
        first = next(a for a, b in zip(table, sorted(table), strict=True) if a != b)
        bad.append(f"codes.toml: not sorted, first at {first}")
    return bad


# ---- the repository -----------------------------------------------------------------------------------------------

# Put together from pieces, so that this file does not hold what it looks for.
FORBIDDEN = re.compile(
    "|".join(
        [
            r"(?<![\w.~])/(?:" + "root|work" + r")(?=/|\b(?!\w))",  # folders of one machine
            "pypi" + r"\.org",
            "python" + r"hosted\.org",
            r"/simple" + "/",  # the path of a package index
        ]
    ).encode()
)


def tracked_files(root: Path) -> list[Path]:
    """Return the files that git tracks, plus new ones it does not ignore; outside git (an sdist) all but hidden ones."""
    listing = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=root,
        capture_output=True,
        check=False,
    )
    if listing.returncode == 0:
        names = [name for name in listing.stdout.decode().split("\0") if name]
        return sorted(path for name in names if (path := root / name).is_file())
    files = [path for path in root.rglob("*") if path.is_file()]
    return sorted(p for p in files if not any(part.startswith(".") for part in p.relative_to(root).parts))


def forbidden_text(root: Path) -> list[str]:
    """Tracked files that name folders of one machine, or hosts of a package index."""
    bad = []
    for path in tracked_files(root):
        data = path.read_bytes()
        for hit in FORBIDDEN.finditer(data):
            line = data.count(b"\n", 0, hit.start()) + 1
            bad.append(f"{where(path, root, line)}: {hit[0].decode()}")
    return bad


def loose_requirements(root: Path) -> list[str]:
    """Lines of requirements/*.txt that do not pin one version, or hold an address or an option other than -r."""
    bad = []
    pinned = re.compile(r"[A-Za-z0-9][\w.-]*(?:\[[\w,-]+\])?==[\w.+!-]+(?: *;.*)?")
    for path in sorted((root / "requirements").glob("*.txt")):
        for number, raw in enumerate(path.read_text("utf-8").splitlines(), 1):
            line = raw.partition(" #")[0].strip()
            if (
                line
                and not line.startswith("#")
                and not pinned.fullmatch(line)
                and not re.fullmatch(r"-r \S+\.txt", line)
            ):
                bad.append(f"{where(path, root, number)}: {line}")
    return bad


def codes_mentioned_outside(root: Path, tree: Path) -> list[str]:
    """Codes that the README, docs or examples mention and the table lacks."""
    known = table_of_codes(tree)
    pages = [root / "README.md", *sorted((root / "docs").rglob("*.md")), *sorted((root / "examples").rglob("*.md"))]
    return [
        f"{where(page, root)}: {code} is not in codes.toml"
        for page in pages
        if page.is_file()
        for code in MENTION.findall(page.read_text("utf-8"))
        if code not in known
    ]
