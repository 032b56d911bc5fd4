"""Random histories of jobs: memory and PostgreSQL tell the same, step by step, on one clock.

    python -m tests.contract.job_histories 10000        more than a test has; exit 1 where one differs

The simulation stands on the stores in memory: what it finds is true of PostgreSQL as far as this is.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from random import Random

from fairlead.adapters.postgres.pool import Database
from fairlead.testing.memory import MemoryDeadLetterStore, MemoryJobStore, MemorySessionStore
from tests.contract.job_steps import GROUPS, KINDS, QUEUES, TENANTS, Side
from tests.contract.pairs import Do, Histories, Look, Pass, Step, run_many
from tests.contract.stores import MemoryStores

STEPS = 50
PROCESSES = 3
PAUSES_S = (0.001, 0.5, 2.0, 15.0, 40.0, 100.0, 4000.0)
LOOK_EACH = 10
"""Steps after which all is compared that is stored; the jobs are after each."""


class Draft:
    """A history as it is drawn."""

    def __init__(self, draw: Random) -> None:
        self._draw = draw
        self.steps: list[Step] = []

    def begin(self) -> None:
        """Processes, and something to do."""
        for process in range(PROCESSES):
            self._do("begin", process)
        self.enqueue()

    def enqueue(self) -> None:
        """Some jobs, alike."""
        draw = self._draw
        fields: dict[str, object] = {
            "kind": draw.choice(KINDS),
            "queue": draw.choice(QUEUES),
            "tenant_id": draw.choice(TENANTS),
            "group_key": draw.choice(GROUPS),
            "priority": draw.randrange(4),
            "delay_s": draw.choice([0.0, 0.0, 0.0, 1.5, 30.0]),
            "expires_in_s": draw.choice([None, None, None, 20.0]),
        }
        if draw.random() < 0.4:
            fields["unique_key"] = f"key{draw.randrange(3)}"
            fields["unique_for_s"] = draw.choice([None, None, 60.0])
        self._do("enqueue", draw.randint(1, 3), fields)

    def claim(self) -> None:
        """All that one can have; or one of those that were in flight at a crash."""
        if self._draw.random() < 0.7:
            self._do("claim", self._who())
        else:
            self._do("claim_suspect", self._who(), self._draw.random() < 0.8)

    def acknowledge(self) -> None:
        """Of one that it holds, or held."""
        draw = self._draw
        outcomes = ["completed", "failed", "snoozed", "cancelled", "discarded"]
        [outcome] = draw.choices(outcomes, [6, 5, 3, 1, 4])
        self._do("acknowledge", self._who(), draw.randrange(50), outcome, draw.choice([0.0, 5.0, 30.0]))

    def process(self) -> None:
        """One ends, well or not; mostly another begins, and what is left is looked for."""
        process = self._who()
        if self._draw.random() < 0.5:  # with one in hand that was in flight at a crash before
            self._do("claim_suspect", process, True)
        self._do("end", process, self._draw.random() < 0.7)
        if self._draw.random() < 0.8:
            self._do("begin", process)
        if self._draw.random() < 0.8:
            self._do("rescue", self._who())

    def person(self) -> None:
        """Somebody acts by hand."""
        act = self._draw.choice(["cancel", "retry_now", "redrive", "redrive", "resolve"])
        self._do(act, self._draw.randrange(50))

    def upkeep(self) -> None:
        """What sweeps do."""
        act = self._draw.choice(["expire", "prune"])
        self._do(act, *([self._draw.choice([0.0, 50.0, 1e6])] if act == "prune" else []))

    def time(self) -> None:
        """It passes."""
        self.steps.append(Pass(self._draw.choice(PAUSES_S)))

    def _do(self, act: str, *args: object) -> None:
        self.steps.append(Do(act, args))

    def _who(self) -> int:
        return self._draw.randrange(PROCESSES)


_ACTS: dict[Callable[[Draft], None], int] = {
    Draft.enqueue: 12,
    Draft.claim: 22,
    Draft.acknowledge: 30,
    Draft.process: 12,
    Draft.person: 8,
    Draft.upkeep: 6,
    Draft.time: 14,
}


class Pair(Histories[Side]):
    """Jobs in memory, and those of a database whose clock stands still."""

    def __init__(
        self,
        database: Database,
        jobs: type[MemoryJobStore] = MemoryJobStore,
        sessions: type[MemorySessionStore] = MemorySessionStore,
        dead_letters: type[MemoryDeadLetterStore] = MemoryDeadLetterStore,
    ) -> None:
        super().__init__(database)
        self._made = jobs, sessions, dead_letters

    def history(self, draw: Random) -> list[Step]:
        """*STEPS* steps."""
        draft = Draft(draw)
        draft.begin()
        while len(draft.steps) < STEPS:
            [act] = draw.choices(list(_ACTS), list(_ACTS.values()))
            act(draft)
        return draft.steps[:STEPS]

    async def sides(self, start: int) -> tuple[Side, Side]:
        return Side(self._memory(), start), Side(self.real, start)

    def looks(self, number: int, step: Step, *, last: bool) -> Iterator[Look[Side]]:
        if not isinstance(step, Pass) and step.act != "begin":
            yield Side.glance
        if number % LOOK_EACH == 0 or last:
            yield Side.state

    def _memory(self) -> MemoryStores:
        stores, (jobs, sessions, dead_letters) = self.memory(), self._made
        link = stores.jobs.link
        return replace(stores, jobs=jobs(link), sessions=sessions(link), dead_letters=dead_letters(link))


if __name__ == "__main__":
    sys.exit(run_many(Pair, int(sys.argv[1])))
