"""Gates: rules that drop documents, each with what it found. Pure functions over batches; the first that drops counts.

| kind | drops where | rule it gives |
|---|---|---|
| characters | code points are outside min..max | ``NAME < MIN``, ``NAME > MAX`` |
| tokens | ids of the text, before a cap, are outside min..max | as above; after all other gates |
| quality | a field is outside min..max, or no number | as above, ``NAME is no number`` |
| language | the detector says none of `languages`, or is too unsure | ``NAME not in LANGUAGES``, ``NAME < MIN_SCORE`` |
| repetition, symbols | a measure passes its limit, Gopher's unless said | ``NAME: MEASURE > LIMIT`` |
| shingles | the share of repeated line shingles is above max | ``NAME > MAX`` |
| allow | a field holds none of `values` | ``NAME not allowed`` |
| python | a function returns something other than None | ``NAME`` |
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from tokenreel.build.gate_limits import limits_of
from tokenreel.build.gate_python import PythonGate, load_function
from tokenreel.build.measures import MEASURES, groups_of, measure
from tokenreel.errors import RecipeError

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from tokenreel.build.gate_limits import Limit
    from tokenreel.config.mixed import GateTable


@dataclass(frozen=True, slots=True)
class Verdict:
    """A document that a gate drops."""

    row: int
    """Its number in the batch."""
    rule: str
    value: str


@dataclass(slots=True, eq=False)
class GateInput:
    """What gates look at of a batch: texts, asked columns, and what was measured so far."""

    texts: Any
    """``pyarrow.LargeStringArray``, valid UTF-8."""
    columns: dict[str, list[Any]] = field(default_factory=dict)
    tokens: npt.NDArray[np.int64] | None = None
    """Ids of each text, where it is tokenised already."""
    _measures: npt.NDArray[np.float64] | None = None
    _known: int = 0
    """Groups of measures that are in it."""

    def __len__(self) -> int:
        """Return the number of documents."""
        return len(self.texts)

    def measured(self, groups: int) -> npt.NDArray[np.float64]:
        """Return what `measure` says of the texts, at least of these groups; each is computed once."""
        if self._measures is None:
            self._measures, self._known = measure(self.texts, groups), groups
        elif groups & ~self._known:
            # Groups that are not computed are 0.
            more = measure(self.texts, groups & ~self._known)
            self._measures, self._known = np.maximum(self._measures, more), self._known | groups
        return self._measures

    def column(self, name: str, gate: str) -> list[Any]:
        """Return a column; raises `RecipeError` (RCP006) where the source has none of that name."""
        if name not in self.columns:
            raise RecipeError("RCP006", f"gate {gate!r}: the source has no field {name!r}", hint="set its `sources`")
        return self.columns[name]

    def take(self, rows: npt.NDArray[np.int64]) -> GateInput:
        """Return these documents alone."""
        pick = rows.tolist()
        return GateInput(
            self.texts.take(rows),
            {name: [values[k] for k in pick] for name, values in self.columns.items()},
            None if self.tokens is None else self.tokens[rows],
            None if self._measures is None else self._measures[rows],
            self._known,
        )


class Gate(Protocol):
    """One rule."""

    @property
    def name(self) -> str:
        """What its rules begin with."""
        ...

    def judge(self, documents: GateInput) -> list[Verdict]:
        """Return a verdict for every document that goes, in order."""
        ...


def open_gate(table: GateTable) -> Gate:
    """Return the gate of a recipe's table; raises `RecipeError` (RCP003, RCP004) and `MissingExtra` (USE002).

    >>> import pyarrow as pa
    >>> from tokenreel.config.mixed import GateTable
    >>> gate = open_gate(GateTable(kind="characters", min=3))
    >>> gate.judge(GateInput(pa.array(["abc", "été", "ab"], pa.large_string())))
    [Verdict(row=2, rule='characters < 3', value='2')]
    """
    name = table.name or table.kind
    if table.kind in ("characters", "tokens", "quality"):
        return Between(name, table.kind, table.min, table.max, table.column or "")
    if table.kind == "shingles":
        return Limits(name, (limits_of("shingles", {"shingles_repeated": table.max or 0.0})[0],), single=True)
    if table.kind in ("repetition", "symbols"):
        return Limits(name, limits_of(table.kind, table.limits))
    if table.kind == "allow":
        return Allow(name, table.column or "", tuple(table.values))
    if table.kind == "language":
        from tokenreel.build.gate_language import Language

        return Language(name, tuple(table.languages), table.min_score, table.chars)
    return PythonGate(name, table.entry or "", load_function(table.entry or ""))


def gates_for(tables: Sequence[GateTable], source: str) -> tuple[list[Gate], list[Gate]]:
    """Return the gates that a source's documents pass: those over texts, those over counts of tokens."""
    mine = [table for table in tables if not table.sources or source in table.sources]
    return (
        [open_gate(table) for table in mine if table.kind != "tokens"],
        [open_gate(table) for table in mine if table.kind == "tokens"],
    )


def columns_for(tables: Sequence[GateTable], source: str) -> tuple[str, ...]:
    """Return the fields that a source's records must have for its gates, each once."""
    mine = (table for table in tables if not table.sources or source in table.sources)
    return tuple(dict.fromkeys(table.column for table in mine if table.column is not None))


def judge_all(gates: Sequence[Gate], documents: GateInput) -> list[Verdict]:
    """Return the first verdict of every document that any gate drops, in order of documents.

    A gate sees only what those before it let pass.
    """
    alive = np.arange(len(documents))
    found: list[Verdict] = []
    for number, gate in enumerate(gates):
        if not len(alive):
            break
        verdicts = gate.judge(documents)
        if not verdicts:
            continue
        gone = np.array([one.row for one in verdicts], np.int64)
        found += [Verdict(int(alive[one.row]), one.rule, one.value) for one in verdicts]
        stays = np.ones(len(alive), np.bool_)
        stays[gone] = False
        if number + 1 < len(gates):
            documents = documents.take(np.flatnonzero(stays))
        alive = alive[stays]
    return sorted(found, key=lambda one: one.row)


def shown(value: float) -> str:
    """Return a number as rules and values spell it.

    >>> shown(200.0), shown(0.25), shown(1 / 3)
    ('200', '0.25', '0.333333')
    """
    return str(int(value)) if float(value).is_integer() else f"{value:.6g}"


@dataclass(frozen=True, slots=True)
class Between:
    """A count, or a field that is a number, within bounds."""

    name: str
    kind: str
    least: float | None
    most: float | None
    column: str = ""

    def judge(self, documents: GateInput) -> list[Verdict]:
        """Return what lies outside."""
        values = self._values(documents)
        low = np.zeros(len(values), np.bool_) if self.least is None else values < self.least
        high = np.zeros(len(values), np.bool_) if self.most is None else values > self.most
        none = np.isnan(values)
        out = []
        for row in np.flatnonzero(low | high | none).tolist():
            if none[row]:
                found = documents.columns[self.column][row]
                out.append(Verdict(row, f"{self.name} is no number", "null" if found is None else str(found)[:80]))
            elif low[row]:
                out.append(Verdict(row, f"{self.name} < {shown(self.least or 0)}", shown(float(values[row]))))
            else:
                out.append(Verdict(row, f"{self.name} > {shown(self.most or 0)}", shown(float(values[row]))))
        return out

    def _values(self, documents: GateInput) -> npt.NDArray[np.float64]:
        if self.kind == "characters":
            import pyarrow.compute as pc

            return np.asarray(pc.utf8_length(documents.texts), np.float64)
        if self.kind == "tokens":
            if documents.tokens is None:
                raise RecipeError("RCP006", f"gate {self.name!r} counts tokens before there are any")
            return documents.tokens.astype(np.float64)
        given = documents.column(self.column, self.name)
        return np.array([_number(value) for value in given], np.float64)


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return float("nan")
    try:
        return float(value)
    except OverflowError:  # an integer of hundreds of digits
        return float("inf") if value > 0 else float("-inf")


@dataclass(frozen=True, slots=True)
class Limits:
    """Measures of the text within their limits."""

    name: str
    limits: tuple[Limit, ...]
    single: bool = False
    """Whether rules name no measure: there is one."""

    def judge(self, documents: GateInput) -> list[Verdict]:
        """Return what passes a limit; the first limit in the order of the table counts."""
        measured = documents.measured(groups_of(limit.measure for limit in self.limits))
        out: dict[int, Verdict] = {}
        for limit in self.limits:
            values = measured[:, MEASURES.index(limit.measure)]
            for row in np.flatnonzero(values < limit.value if limit.least else values > limit.value).tolist():
                if row not in out:
                    sign = "<" if limit.least else ">"
                    said = self.name if self.single else f"{self.name}: {limit.measure}"
                    out[row] = Verdict(row, f"{said} {sign} {shown(limit.value)}", shown(float(values[row])))
        return [out[row] for row in sorted(out)]


@dataclass(frozen=True, slots=True)
class Allow:
    """A field holds one of some values."""

    name: str
    column: str
    values: tuple[str | int | bool, ...]

    def judge(self, documents: GateInput) -> list[Verdict]:
        """Return what holds another value, or none."""
        # True is not 1 here.
        allowed = {(type(value), value) for value in self.values}
        given = documents.column(self.column, self.name)
        return [
            Verdict(row, f"{self.name} not allowed", "null" if value is None else str(value)[:80])
            for row, value in enumerate(given)
            if not isinstance(value, str | int | bool) or (type(value), value) not in allowed
        ]
