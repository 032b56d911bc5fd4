"""Random histories of jobs: memory and PostgreSQL tell the same, step by step, on one clock.

    python -m tests.contract.job_histories 10000        more than a test has; exit 1 where one differs

The simulation stands on the stores in memory: what it finds is true of PostgreSQL as far as this is.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from random import Random

from fairlead.adapters.postgres.jobs import PostgresJobStore
from fairlead.testing._memory import MemoryJobStore, MemoryScheduleStore, MemorySessionStore
from tests.contract.job_steps import GROUPS, KINDS, QUEUES, SCHEDULES, TENANTS, Side
from tests.contract.losses import LossyDatabase, MemoryRoad
from tests.contract.pairs import Do, Histories, Look, Pass, Step, run_many
from tests.contract.stores import MemoryStores
from tests.support.engine import IDS

STEPS = 60
PROCESSES = 3
PAUSES_S = (0.001, 0.5, 2.0, 15.0, 40.0, 100.0, 4000.0)
LEASES_S = (20.0, 30.0, 1e9)
BREATHS_S = (5.0, 9.0, 10.0, 11.0)
"""Between two passes of a rescue: half of the shortest lease, or less, or a gap."""
LOST = 0.12
"""Of all acts, so many meet a loss."""
RESOLVED = (
    *("enqueue", "claim", "claim_suspect", "acknowledge", "acknowledge_all"),
    *("begin", "begin_again", "sync", "fire", "pause", "resume", "drop", "redrive"),
)
"""What a store asks once more by itself where an answer was lost."""
REPORTED = ("end", "heartbeat", "rescue", "cancel", "retry_now", "resolve", "expire", "prune")
"""What its caller is told to be in doubt then; all of it may be asked again."""
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
            self._begin(process)
        self._do("sync", 2, False)
        for process in range(PROCESSES):
            self._do("look", process)
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
            fields["unique_for_s"] = draw.choice([None, 10.0, 60.0])
            fields["unique_while"] = draw.choice(["follow_up", "follow_up", "waiting", "open"])
        self._do("enqueue", draw.randint(1, 3), fields)
        if draw.random() < 0.1:
            self._do("enqueue_again", draw.choice([-1, draw.randrange(50)]))

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
        delay_s = draw.choice([0.0, 5.0, 30.0])
        if draw.random() < 0.8:
            self._do("acknowledge", self._who(), draw.randrange(50), outcome, delay_s)
        else:
            self._do("acknowledge_all", self._who(), draw.choices(outcomes, k=3), delay_s)
        if outcome == "discarded" and draw.random() < 0.4:
            self._do("redrive", draw.randrange(50))

    def process(self) -> None:
        """One ends, well or not; mostly another begins, and what is left is looked for."""
        process = self._who()
        if self._draw.random() < 0.5:  # with one in hand that was in flight at a crash before
            self._do("claim_suspect", process, True)
        self._do("end", process, self._draw.random() < 0.7)
        if self._draw.random() < 0.8:
            self._begin(process)
        if self._draw.random() < 0.8:
            self._do("rescue", self._who(), self._draw.choice([0.0, 0.0, 10.0]))

    def killer(self) -> None:
        """A job kills whoever runs it."""
        process = self._who()
        self._do("claim", process)
        for _ in range(self._draw.randint(1, 3)):
            self._do("end", process, True)
            self._begin(process)
            self._do("rescue", process, 0.0)
            self._do("claim_suspect", process, self._draw.random() < 0.9)

    def _begin(self, process: int) -> None:
        self._do("begin", process, self._draw.choice(LEASES_S))
        if self._draw.random() < 0.1:
            self._do("begin_again", process)

    def silence(self) -> None:
        """One is not heard of, and another looks after all at a steady pace, or nearly."""
        draw, silent = self._draw, self._who()
        others = [process for process in range(PROCESSES) if process != silent]
        for _ in range(draw.randint(2, 7)):
            self.steps.append(Pass(draw.choice(BREATHS_S)))
            self.steps.extend(Do("heartbeat", (process,)) for process in others)
            self._do("rescue", draw.choice(others), draw.choice([0.0, 0.0, 10.0]))

    def sign_of_life(self) -> None:
        """A process says that it is there, or asks who else is."""
        self._do(self._draw.choice(["heartbeat", "heartbeat", "local_sessions"]), self._who())

    def duty(self) -> None:
        """A run is taken, by what its process knows; or a person has a hand in it."""
        draw, name = self._draw, self._draw.choice(SCHEDULES)
        kind = draw.random()
        if kind < 0.75:
            for _ in range(draw.choice([0, 1, 2])):
                self._do("look", self._who())
            for _ in range(draw.choice([1, 2])):
                fields: dict[str, object] = {"delay_s": draw.choice([0.0, 0.0, 3.0])}
                if draw.random() < 0.5:
                    fields["unique_key"] = f"key{draw.randrange(3)}"
                self._do("fire", self._who(), name, draw.choice([-5.0, 1.0, 60.0, 3600.0]), fields)
        elif kind < 0.85:
            self._do("sync", draw.randrange(4), draw.random() < 0.4)
        elif kind < 0.9:
            self._do("pause", name)
        elif kind < 0.97:
            self._do("resume", name, draw.random() < 0.5)
        else:
            self._do("drop", name)

    def person(self) -> None:
        """Somebody acts by hand."""
        act = self._draw.choice(["cancel", "retry_now", "redrive", "redrive", "resolve"])
        self._do(act, self._draw.randrange(50))

    def upkeep(self) -> None:
        """What sweeps do."""
        act = self._draw.choice(["expire", "expire", "prune", "forget_sessions", "forget_runs"])
        self._do(act, *([] if act == "expire" else [self._draw.choice([0.0, 50.0, 1e6])]))

    def time(self) -> None:
        """It passes."""
        self.steps.append(Pass(self._draw.choice(PAUSES_S)))

    def _do(self, act: str, *args: object) -> None:
        """It is done, or lost on the way there or back."""
        losses = ["request", "answers", "caller"]
        if act in RESOLVED:
            losses.append("answer")
        if act in (*RESOLVED, *REPORTED) and self._draw.random() < LOST:
            self.steps.append(Do("lost", (self._draw.choice(losses), act, args)))
        else:
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
    Draft.silence: 4,
    Draft.killer: 3,
    Draft.sign_of_life: 4,
    Draft.duty: 8,
}


class Attentive(PostgresJobStore):
    """Looks with each claim for what fell due: how often it does is no matter of these histories."""

    @property
    def _next_wake(self) -> float:
        return 0.0

    @_next_wake.setter
    def _next_wake(self, moment: float) -> None:
        """It stays so."""


class Pair(Histories[Side]):
    """Jobs in memory, and those of a database whose clock stands still."""

    def __init__(
        self,
        database: LossyDatabase,
        jobs: type[MemoryJobStore] = MemoryJobStore,
        sessions: type[MemorySessionStore] = MemorySessionStore,
        schedule_store: type[MemoryScheduleStore] = MemoryScheduleStore,
    ) -> None:
        super().__init__(database)
        self._made = jobs, sessions, schedule_store

    def history(self, draw: Random) -> list[Step]:
        """*STEPS* steps."""
        draft = Draft(draw)
        draft.begin()
        while len(draft.steps) < STEPS:
            [act] = draw.choices(list(_ACTS), list(_ACTS.values()))
            act(draft)
        return draft.steps[:STEPS]

    async def sides(self, start: int) -> tuple[Side, Side]:
        memory = self._memory()
        link = memory.jobs.link
        in_memory = Side(memory, start, MemoryRoad(link), lambda: self._made[0](link))
        real = replace(self.real, jobs=self._real_jobs())
        return in_memory, Side(real, start, self.database, self._real_jobs)

    def _real_jobs(self) -> PostgresJobStore:
        """It sends nothing beside what it is asked: that would meet a loss meant for another."""
        return Attentive(self.database, IDS, notify=False)

    def looks(self, number: int, step: Step, *, last: bool) -> Iterator[Look[Side]]:
        if not isinstance(step, Pass) and step.act != "begin":
            yield Side.glance
        if number % LOOK_EACH == 0 or last:
            yield Side.state

    def _memory(self) -> MemoryStores:
        stores, (jobs, sessions, schedule_store) = self.memory(), self._made
        link = stores.jobs.link
        return replace(stores, jobs=jobs(link), sessions=sessions(link), schedule_store=schedule_store(link))


if __name__ == "__main__":
    sys.exit(run_many(Pair, int(sys.argv[1])))
