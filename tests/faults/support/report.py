"""One JSON line per test of an experiment: what was done, what the ledgers say, and whether it holds.

The line goes to stdout, and to the folder that FAIRLEAD_RESULTS names (tools/results.py). Of a test that
fails before it could conclude, the line says so; of one that fails outside of it, or hangs, or is killed, a
line stays that says that it was begun.
"""

from __future__ import annotations

import json
import math
import os
import secrets
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from tests.faults.catalogue import experiment
from tests.support.standstill import ran_s
from tools import results

FULL = os.environ.get("FAIRLEAD_FAULTS", "smoke") == "full"
"""Whether experiments (E01) are run in full size."""
CONTROLS_FULL = os.environ.get("FAIRLEAD_SECURITY", "smoke") == "full"
"""Whether controls of the security checklist (S01) are."""


CHANCES = 3
MOST_STOOD = 0.2


def is_full(id: str) -> bool:
    """Whether *id*, of an experiment or a control, is run in full size."""
    return CONTROLS_FULL if id.startswith("S") else FULL


def sized(smoke: Any, full: Any, id: str = "E") -> Any:
    """The number for this run of *id*, or of an experiment."""
    return full if is_full(id) else smoke


def quantiles(values: Sequence[float], scale: float = 1.0, digits: int = 3) -> dict[str, float]:
    """p50, p99 and max (nearest rank), each times *scale*; nothing for no values."""
    if not values:
        return {}
    ranked = sorted(values)

    def at(share: float) -> float:
        return round(ranked[max(0, math.ceil(share * len(ranked)) - 1)] * scale, digits)

    return {"p50": at(0.5), "p99": at(0.99), "max": at(1.0)}


@dataclass
class Figures:
    """An experiment on its way: its chance, its counters, and what did not hold."""

    id: str
    ablation: str | None = None
    sees: str = ""
    """Of an ablation: what a line of `broken` says where the missing safeguard shows; no other counts."""
    seed: int = field(default_factory=lambda: int(os.environ.get("FAIRLEAD_SEED") or secrets.randbits(32)))
    counters: dict[str, Any] = field(default_factory=dict)
    broken: list[str] = field(default_factory=list)
    zeros: list[str] = field(default_factory=list)
    ended_early: bool = False
    size: str = ""

    def __post_init__(self) -> None:
        if bool(self.ablation) != bool(self.sees):
            raise ValueError(f"{self.id}: an ablation names what it must break")
        self.size = self.size or ("full" if is_full(self.id) else "smoke")
        self.draw = Random(self.seed)
        self._begun_s = time.monotonic()
        _unconcluded.append(self)

    def note(self, **counters: Any) -> None:
        """Add to the line."""
        self.counters |= counters

    def holds(self, true: bool, claim: str) -> None:
        """Note an invariant that does not hold."""
        if not true:
            self.broken.append(claim)

    def zero(self, **counters: int) -> None:
        """Add counters that must be 0."""
        self.note(**counters)
        self.zeros += [name for name in counters if name not in self.zeros]
        for name, count in counters.items():
            self.holds(count == 0, f"{name} = {count}")

    @property
    def _all_zero(self) -> bool:
        return bool(self.zeros) and not any(self.counters[name] for name in self.zeros)

    @property
    def is_seen(self) -> bool:
        """Whether what an ablation has to break is broken."""
        return any(self.sees in text for text in self.broken)

    @property
    def verdict(self) -> str:
        """``holds`` or ``broken``; of an ablation whether it showed that the check sees."""
        if self.ablation and not self.ended_early:
            return "violation seen" if self.is_seen else "no violation seen"
        return "broken" if self.broken else "holds"

    @property
    def line(self) -> Mapping[str, Any]:
        """As it is printed and kept."""
        record: dict[str, Any] = {"id": self.id, "test": _test()}
        record |= {"ablation": self.ablation, "sees": self.sees} if self.ablation else {}
        record |= {"size": self.size, "seed": self.seed} | results.circumstances()
        record |= self.counters | {"zeros": self.zeros}
        n = self.counters.get("n")
        if n and self._all_zero and not self.ablation:  # what was 0 is below this, at 95 %
            record["3/n"] = round(3 / n, 6)
        experiment_known = experiment(results.base(self.id))
        about = (
            {"promises": experiment_known.promises, "limit": experiment_known.limit}
            if experiment_known
            else {}
        )
        return record | about | {"verdict": self.verdict, "broken": self.broken}

    def _note_standstills(self) -> None:
        """What is judged less such times is no judgement where they are most of it."""
        until_s = time.monotonic()
        took_s = until_s - self._begun_s
        try:
            stood_s = took_s - ran_s(self._begun_s, until_s)
        except RuntimeError as error:
            self.broken.append(str(error))
            return
        self.note(stood_still_s=round(stood_s, 3))
        if self.size == "full":
            reason = f"the machine stood still for {stood_s:.0f} s of {took_s:.0f} s"
            self.holds(stood_s <= MOST_STOOD * took_s, reason)

    def conclude(self) -> None:
        """Tell, and fail unless it holds (for an ablation: unless a violation was seen)."""
        conclude(self)

    def check(self, line: str) -> None:
        """Fail unless it holds; *line* is what was told."""
        if self.ablation:
            assert self.is_seen, f"without its safeguard the check must see {self.sees!r}: {line}"
        else:
            assert not self.broken, line

    def tell(self) -> str:
        """Print the line and keep it."""
        _unconcluded.remove(self)
        self._note_standstills()
        line = self.line
        _lines.append(line)
        results.keep(line)
        text = json.dumps(line)
        print(f"\n{text}", flush=True)
        return text


async def with_retries(figures: Figures, attempt: Callable[[Path], Awaitable[None]], folder: Path) -> None:
    """One *attempt*, in *folder*; an ablation has three, for what it takes away need not show in each."""
    for number in range(1, CHANCES + 1 if figures.ablation else 2):
        attempt_folder = folder / f"attempt-{number}"
        attempt_folder.mkdir(parents=True)
        await attempt(attempt_folder)
        if figures.ablation:
            figures.note(attempts=number)
            if figures.is_seen:
                break


def conclude(*parts: Figures) -> None:
    """Conclude the parts of one experiment: all are told, whichever of them fails."""
    for figures, line in [(figures, figures.tell()) for figures in parts]:
        figures.check(line)


_unconcluded: list[Figures] = []
_lines: list[Mapping[str, Any]] = []
"""By the test that runs."""


def begin_test(experiment: str, test: str) -> None:
    """Keep a line that says so, until the test is over."""
    _lines.clear()
    results.keep(_course(experiment, test, "begun, and never ended"))


def keep_course(experiment: str, test: str, failure: str | None) -> None:
    """What is kept of a test's course: why it failed where no line of its own says it, else nothing."""
    is_broken = any(line["verdict"] not in ("holds", "violation seen") for line in _lines)
    if failure and not is_broken:
        results.keep(_course(experiment, test, failure))
    else:
        results.drop(_course(experiment, test, ""))


def _course(experiment: str, test: str, why: str) -> Mapping[str, Any]:
    line = {"id": experiment, "test": test, "what": "its course", "size": "full" if FULL else "smoke"}
    line |= {"ablation": "as named"} if "ablation" in test else {}
    return line | results.circumstances() | {"verdict": "broken", "broken": [why]}


def end_of_test(failure: str | None) -> None:
    """A test is over. If it failed before it had concluded, what it had is told as broken."""
    for figures in list(_unconcluded):
        if failure is None:
            _unconcluded.remove(figures)
        else:
            figures.ended_early = True
            figures.broken.append(failure)
            figures.tell()


def _test() -> str:
    """The test that runs, as its file names it."""
    named = os.environ.get("PYTEST_CURRENT_TEST", "")
    return named.rpartition("::")[2].rpartition(" (")[0]
