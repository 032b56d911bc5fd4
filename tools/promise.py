"""A promise: its words, its figures and the number of chances behind each, and its limit."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tools.results import Line

FILE = Path(__file__).with_name("promises.toml")

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
"""Events that may lose something, as experiments count them. All jobs that one event hits count as one chance.

``at_work`` comes before ``backends_ended``, because an idle connection loses nothing.
"""


def chances(line: Line, of: Collection[str]) -> int:
    """Return how many chances *line* had, by the first counter of *of* that it has.

    A list counts its items, a mapping the sum of its values. Raise ValueError for a line without chances,
    unless it ended early.
    """
    counted = next((line[name] for name in of if name in line), 0)
    if isinstance(counted, Mapping):
        counted = sum(counted.values())
    n = len(counted) if isinstance(counted, list) else int(counted)
    if not n and not is_harmed(line):
        raise ValueError(f"{line['id']} {line.get('test', '')}: a figure without its n, {' or '.join(of)}")
    return n


def is_harmed(line: Line) -> bool:
    """Return whether the experiment of *line* is broken."""
    return bool(line.get("verdict", "holds") != "holds")


def is_of(line: Line, part: str, without: str = "") -> bool:
    """Return whether *line* is of *part* of its test, if one is named, and not of the part *without*."""
    return part in ("", line.get("what")) and (not without or line.get("what") != without)


@dataclass(frozen=True, slots=True)
class Zero:
    """Counters that must be 0, added up over the tests of experiments.

    Attributes:
        counted: The word for what *of* counts.
        of: Counters of chances; the first that a line has applies.
        beside: The word for ``n`` if that is another count, such as jobs that share the fate of an event.
        part: Only lines of this part.
        without: No lines of this part.
        among: Counters of what was checked, if that is no number of chances.
        unless: Skip lines with this counter: they are of a setting in which the others are no faults.
    """

    words: str
    experiments: Sequence[str]
    counters: Sequence[str]
    counted: str
    of: Sequence[str] = ("n",)
    beside: str = ""
    part: str = ""
    without: str = ""
    among: Sequence[str] = ()
    unless: str = ""

    @property
    def required(self) -> Sequence[str]:
        """The counters, of which each experiment reports at least one."""
        return self.counters

    def is_reported_by(self, line: Line) -> bool:
        """Return whether *line* reports a counter and chances for this figure."""
        is_reported = any(name in line for name in self.counters) and any(line.get(name) for name in self.of)
        return is_reported and is_of(line, self.part, self.without)

    def figure(self, lines: Sequence[Line]) -> Figure | None:
        """Return the figure; None if no line has a counter. Raise ValueError if one has no chances."""
        matching = [line for line in lines if any(name in line for name in self.counters)]
        matching = [line for line in matching if not self.unless or self.unless not in line]
        matching = [line for line in matching if is_of(line, self.part, self.without)]
        if not matching:
            return None
        count = sum(line.get(name, 0) for line in matching for name in self.counters)
        n = sum(chances(line, self.of) for line in matching)
        of = f"{n:,} {self.counted}"
        if self.beside:
            of += f" with {sum(line.get('n', 0) for line in matching):,} {self.beside}"
        around = [
            f"{sum(line.get(name, 0) for line in matching):,} {name.replace('_', ' ')}" for name in self.among
        ]
        text = f"{self.words}: {count}" + (f" among {', '.join(around)}" if around else "")
        is_bound = n > 3 and not count and not any(map(is_harmed, matching))
        return text, of, share(3 / n) if is_bound else "–"


@dataclass(frozen=True, slots=True)
class Most:
    """The worst value of a counter, or their sum if *added*. *at* names a quantile; *part* is as in Zero."""

    words: str
    experiments: Sequence[str]
    counter: str
    counted: str
    unit: str = ""
    at: str = "max"
    of: Sequence[str] = ("n",)
    added: bool = False
    part: str = ""

    @property
    def required(self) -> Sequence[str]:
        return (self.counter,)

    def is_reported_by(self, line: Line) -> bool:
        """Return whether *line* reports the counter and chances for this figure."""
        is_reported = line.get(self.counter) not in (None, {}) and any(line.get(name) for name in self.of)
        return is_reported and is_of(line, self.part)

    def figure(self, lines: Sequence[Line]) -> Figure | None:
        """Return the figure, without a bound; None if no line has the counter."""
        matching = [line for line in lines if line.get(self.counter) not in (None, {})]
        matching = [line for line in matching if is_of(line, self.part)]
        if not matching:
            return None
        values = [_value(line[self.counter], self.at) for line in matching]
        worst = sum(values) if self.added else max(values)
        n = sum(chances(line, self.of) for line in matching)
        return f"{self.words}: {worst:,g}{self.unit}", f"{n:,} {self.counted}", "–"


@dataclass(frozen=True, slots=True)
class Promise:
    """One promise. *command* runs the experiments behind it."""

    id: str
    says: str
    parts: Sequence[Zero | Most]
    limit: str
    command: str = field(default="")


def load(file: Path = FILE) -> tuple[Promise, ...]:
    """Return the promises that *file* lists."""
    tables = tomllib.loads(file.read_text("utf-8"))["promise"]
    return tuple(
        Promise(
            table["id"],
            table["says"],
            [_part(*pair) for pair in zip(table["figures"][::2], table["figures"][1::2], strict=True)],
            table["limit"],
            table.get("command", ""),
        )
        for table in tables
    )


def _part(words: str, read_from: Mapping[str, str]) -> Zero | Most:
    """Return the figure of two lines of the file. Raise TypeError for a key that it has not."""
    options: dict[str, Any] = dict(read_from)
    experiments, counted = options.pop("in").split(), options.pop("n")
    of = [
        name for word in options.pop("of", "n").split() for name in (LOSSES if word == "losses" else (word,))
    ]
    if "zero" in options:
        counters, among = options.pop("zero").split(), options.pop("among", "").split()
        return Zero(words, experiments, counters, counted, of, among=among, **options)
    is_added = "sum" in options
    counter, unit = options.pop("sum" if is_added else "most"), options.pop("unit", "")
    unit = f" {unit}" if unit else ""
    return Most(words, experiments, counter, counted, unit, of=of, added=is_added, **options)


def _value(value: Any, at: str) -> float:
    if not isinstance(value, Mapping):
        return float(value)
    return float(value[at]) if at in value else max(map(float, value.values()))


def share(value: float) -> str:
    """Return *value* in per cent with two significant digits."""
    percent = value * 100
    digits = max(0, 1 - math.floor(math.log10(percent)))
    text = f"{percent:.{digits}f}"
    return (text.rstrip("0").rstrip(".") if digits else text) + " %"
