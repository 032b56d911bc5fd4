"""From when to when faults of some kinds kept a process, or all, from its work: what invariants excuse by."""

from __future__ import annotations

import math
from itertools import chain

from tests.simulation.watch import NOBODY, Entry, Over, Struck


class Spell:
    """One of *fault*, from *began* to *ended*."""

    __slots__ = ("began", "ended", "fault")

    def __init__(self, fault: str, began_at: float, ended: float) -> None:
        self.fault = fault
        self.began = began_at
        self.ended = ended

    def meets(self, since: float, until: float) -> bool:
        """Whether some of it lies between the two."""
        return self.began <= until and self.ended >= since


class Spells:
    """The spells of each process by faults whose names begin with one of *kinds*."""

    def __init__(self, *kinds: str) -> None:
        self._kinds = kinds
        self._of: dict[str, list[Spell]] = {}

    def see(self, entry: Entry) -> None:
        """Take it in."""
        match entry.seen:
            case Struck(fault=fault, until=until) if fault.startswith(self._kinds):
                self._of.setdefault(entry.process, []).append(Spell(fault, entry.at, until))
            case Over(fault=fault):
                for spell in self._of.get(entry.process, ()):
                    if spell.fault.startswith(fault):
                        spell.ended = min(spell.ended, entry.at)

    def of(self, process: str, since: float, until: float) -> list[Spell]:
        """Those of *process*, and those of all, that meet the time from *since* to *until*."""
        own_spells, of_all = self._of.get(process, ()), self._of.get(NOBODY, ())
        return [spell for spell in (*own_spells, *of_all) if spell.meets(since, until)]

    def meets_alone(self, process: str, since: float, until: float) -> bool:
        """Whether *process* was struck between the two, and not all were."""
        return bool(self.of(process, since, until)) and not self.of(NOBODY, since, until)

    def ended_for_all(self, least_s: float) -> float:
        """When the latest that met all, and lasted *least_s* or longer, was over or will be."""
        of_all = self._of.get(NOBODY, ())
        return max(
            (spell.ended for spell in of_all if spell.ended - spell.began >= least_s), default=-math.inf
        )

    def anywhere(self, since: float, until: float) -> bool:
        """Whether anybody was struck between the two."""
        return any(spell.meets(since, until) for spell in chain.from_iterable(self._of.values()))
