"""What a promise is: its words, its figures and what they are counted of, its limit."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tools.results import Line

Figure = tuple[str, str, str]  # in words, its n, and the most it may be at 95 %

LOSSES = (
    "at_work",
    "kills",
    "backends_ended",
    "crashes",
    "failovers",
    "fail_overs",
    "flushes",
    "stalls",
    "drains",
    "rounds",
    "faults",
    "outages",
    "rollouts",
)
"""Events that may lose something, as experiments count them: whoever is hit by one shares its fate.

Of backends that were ended those that were ``at_work`` come first: one that rested in a pool loses nothing.
"""


def chances(line: Line, of: Collection[str]) -> int:
    """How many *line* had. A list has as many as it is long, a mapping what its values add up to.

    A line that ended early may have none; of any other there is no figure without them: ValueError.
    """
    counted = next((line[name] for name in of if name in line), 0)
    if isinstance(counted, Mapping):
        counted = sum(counted.values())
    n = len(counted) if isinstance(counted, list) else int(counted)
    if not n and not is_harmed(line):
        raise ValueError(f"{line['id']} {line.get('test', '')}: a figure without its n, {' or '.join(of)}")
    return n


def is_harmed(line: Line) -> bool:
    """Whether its experiment is broken."""
    return bool(line.get("verdict", "holds") != "holds")


def is_of(line: Line, what: str, without: str = "") -> bool:
    """Whether it is of the part *what* of its test, if one is named, and not of the part *without*."""
    return what in ("", line.get("what")) and (not without or line.get("what") != without)


@dataclass(frozen=True, slots=True)
class Zero:
    """Counters that must be 0, added up over the tests of experiments.

    *counted* is the word for what *of* counts: of several names the first that a line has. *beside* is that
    for ``n`` where it is another count: of jobs that share the fate of an event, say. *what*: the part alone;
    *without*: all but this part.
    *among*: counters that say what was looked at, where that is no number of chances. *unless*: a line that
    has this counter is of another setting, in which the others are no faults.
    """

    words: str
    experiments: Sequence[str]
    counters: Sequence[str]
    counted: str
    of: Sequence[str] = ("n",)
    beside: str = ""
    what: str = ""
    without: str = ""
    among: Sequence[str] = ()
    unless: str = ""

    @property
    def asked(self) -> Sequence[str]:
        """The counters, of which each experiment tells one at least."""
        return self.counters

    def is_told_by(self, line: Line) -> bool:
        """Whether *line* says something to it."""
        is_told = any(name in line for name in self.counters) and any(line.get(name) for name in self.of)
        return is_told and is_of(line, self.what, self.without)

    def told(self, lines: Sequence[Line]) -> Figure | None:
        """None where no line has a counter; ValueError where one has no chances."""
        found = [line for line in lines if any(name in line for name in self.counters)]
        found = [line for line in found if not self.unless or self.unless not in line]
        found = [line for line in found if is_of(line, self.what, self.without)]
        if not found:
            return None
        count = sum(line.get(name, 0) for line in found for name in self.counters)
        n = sum(chances(line, self.of) for line in found)
        of = f"{n:,} {self.counted}"
        if self.beside:
            of += f" with {sum(line.get('n', 0) for line in found):,} {self.beside}"
        around = [
            f"{sum(line.get(name, 0) for line in found):,} {name.replace('_', ' ')}" for name in self.among
        ]
        told = f"{self.words}: {count}" + (f" among {', '.join(around)}" if around else "")
        is_bound = n > 3 and not count and not any(map(is_harmed, found))
        return told, of, share(3 / n) if is_bound else "–"


@dataclass(frozen=True, slots=True)
class Most:
    """The worst value of a counter, or *added* up; of quantiles that which *at* names. *what*: as of Zero."""

    words: str
    experiments: Sequence[str]
    counter: str
    counted: str
    unit: str = ""
    at: str = "max"
    of: Sequence[str] = ("n",)
    added: bool = False
    what: str = ""

    @property
    def asked(self) -> Sequence[str]:
        return (self.counter,)

    def is_told_by(self, line: Line) -> bool:
        """As of Zero."""
        is_told = line.get(self.counter) not in (None, {}) and any(line.get(name) for name in self.of)
        return is_told and is_of(line, self.what)

    def told(self, lines: Sequence[Line]) -> Figure | None:
        """As of Zero; there is nothing that may be more."""
        found = [line for line in lines if line.get(self.counter) not in (None, {})]
        found = [line for line in found if is_of(line, self.what)]
        if not found:
            return None
        values = [_value(line[self.counter], self.at) for line in found]
        worst = sum(values) if self.added else max(values)
        n = sum(chances(line, self.of) for line in found)
        return f"{self.words}: {worst:,g}{self.unit}", f"{n:,} {self.counted}", "–"


@dataclass(frozen=True, slots=True)
class Promise:
    """One row. *command* runs what shows it."""

    id: str
    says: str
    parts: Sequence[Zero | Most]
    limit: str
    command: str = field(default="")


def _value(told: Any, at: str) -> float:
    if not isinstance(told, Mapping):
        return float(told)
    return float(told[at]) if at in told else max(map(float, told.values()))


def share(value: float) -> str:
    """In per cent, with the two digits that count."""
    percent = value * 100
    digits = max(0, 1 - math.floor(math.log10(percent)))
    text = f"{percent:.{digits}f}"
    return (text.rstrip("0").rstrip(".") if digits else text) + " %"
