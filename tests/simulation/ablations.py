"""The safeguards, each taken out of the simulated world in turn: what is then let through must be found.

A check that never fails proves nothing. None of these is a switch in the product: each is another part of the
world (`stores.Parts`), as careless as the systems that it is taken from.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from random import Random
from typing import Any
from uuid import UUID

from fairlead.engine.ports import ClaimFilter, ConnectionKey, Enqueued, Job, NewJob, Settlement, SettleVerdict
from fairlead.engine.ports.gate import Ask, GateRefusal
from fairlead.errors import DependencyUnavailable
from fairlead.policy.gate.breaker import Mode, Pass
from fairlead.policy.gate.limit import MICRO, Domain, PoolLimit
from fairlead.policy.gate.pool import Pool
from fairlead.policy.gate.retries import RetryBudget
from fairlead.policy.states import JobState
from fairlead.policy.token import PublicToken
from fairlead.testing.memory import MemoryCredentialStore
from fairlead.testing.memory.database import statement
from fairlead.testing.memory.enqueue import insert
from fairlead.testing.memory.rows import JobRow
from fairlead.testing.memory.turns import is_wanted, settle
from tests.simulation.chance import Chance
from tests.simulation.providers import LITTLE
from tests.simulation.redis import SimRedis
from tests.simulation.run import Options, run_seed
from tests.simulation.shared_gate import SharedGate
from tests.simulation.stores import Parts, WatchedJobs, WatchedSessions, plain
from tests.simulation.swarm import Swarm
from tests.simulation.watch import Broken, Freed, Watch
from tests.simulation.world import FLEET

MOST_SEEDS = 200
"""Within so many each must be found."""


@dataclass(frozen=True, slots=True)
class Ablation:
    """*made* gives a world without the safeguard; made anew for each seed, as it may keep something.

    *breaks*: the invariants that stand behind it. Whatever else goes wrong without it is no proof of them.
    *needs*: faults without all of which nothing asks for it, so that such a seed is passed over.
    *first*: seeds that are looked at before all others, where what it lets through is rare.
    """

    name: str
    breaks: tuple[str, ...]
    made: Callable[[], Parts]
    needs: tuple[str, ...] = ()
    first: tuple[int, ...] = ()

    def may_show(self, seed: int) -> bool:
        """Whether a fault that it needs is on."""
        on = Swarm.of(Chance(seed).swarm).faults
        return not self.needs or any(name in on for name in self.needs)

    def parts(self) -> Parts:
        """The same, with the name of what it lacks."""
        return replace(self.made(), lacks=self.name)


@dataclass(frozen=True, slots=True)
class Found:
    """What found it, at which seed."""

    seed: int
    broken: Broken


# ---- jobs --------------------------------------------------------------------------------------


class NoFence(WatchedJobs):
    """An outcome is taken from whoever brings it."""

    def _leased(self, job_id: UUID, lease_id: int) -> JobRow | None:
        return self.database.jobs.get(job_id)


class ReplaysCommits(WatchedJobs):
    """What was committed and not answered is sent again as a new transaction."""

    async def enqueue(self, jobs: Iterable[NewJob]) -> list[Enqueued]:
        asked = list(jobs)
        try:
            return await super().enqueue(asked)
        except DependencyUnavailable:
            again = [replace(job, job_id=self.database.ids.uuid7()) for job in asked]
            return [insert(self.database, job) for job in again]


class FirstComeFirstServed(WatchedJobs):
    """The longest due first, whoever's it is."""

    async def claim(self, wanted: ClaimFilter, demand: int, session_id: UUID) -> list[Job]:
        await self.link.arrive("claim")
        self._hand_back_lost()
        taken = self._due(wanted)[:demand] if self.database.is_open(session_id) else []
        for row in taken:
            row.started_at = self.database.now
        jobs = [self._claimed(row, session_id) for row in taken]
        await self._answer_claim("claim", jobs)
        return jobs

    def _due(self, wanted: ClaimFilter) -> list[JobRow]:
        lanes = settle(self.database).items()
        due = [row for lane, rows in lanes for row in rows if is_wanted(lane, wanted)]
        return sorted(due, key=lambda row: (row.run_at, row.job_id))


class CrashesAreFree(WatchedSessions):
    """A rescue counts for nothing."""

    def _rescue_one(self, row: JobRow, max_crashes: int) -> bool:
        row.crash_count = 0
        return super()._rescue_one(row, max_crashes)


class HasNothingToGiveBack(WatchedSessions):
    """A claim takes the job out of the store, so what the dead held is gone with them."""

    def _rescue_one(self, row: JobRow, max_crashes: int) -> bool:
        self.watch.tell(Freed(row.job_id, row.lease_id, crash=row.started_at is not None))
        del self.database.jobs[row.job_id]
        return False


class GivesBackEverybodys(WatchedSessions):
    """Who stops gives back all that runs, whoever runs it."""

    @statement
    def close(self, session_id: UUID) -> None:
        for row in self.database.jobs.values():
            if row.state is JobState.RUNNING:
                row.session_id = session_id
        plain(WatchedSessions.close)(self, session_id)


def silent_while_it_works(program: Any) -> None:
    """No sign of life while a handler runs."""
    ask = program.sessions.heartbeat

    async def heartbeat(session_id: UUID) -> bool:
        if program.desk.running:
            raise DependencyUnavailable("nobody asked")
        alive: bool = await ask(session_id)
        return alive

    program.sessions.heartbeat = heartbeat


# ---- refreshes ---------------------------------------------------------------------------------


class LockByTime(MemoryCredentialStore):
    """A lock with an end in the place of intent and SENT mark: whoever comes after its end sends."""

    @statement
    def mark_sent(self, connection_id: UUID, rotation_id: UUID) -> datetime | None:
        held = self._held(connection_id, rotation_id)
        return None if held is None else self.database.now


class SavesWhateverStands(MemoryCredentialStore):
    """An answer is stored though another has been meanwhile."""

    @statement
    def settle(self, settlement: Settlement) -> SettleVerdict:
        row = self.database.tokens.credentials.get(settlement.connection_id)
        if row is not None:
            row.generation = settlement.from_generation
        verdict: SettleVerdict = plain(MemoryCredentialStore.settle)(self, settlement)
        return verdict


def replays_at_once(program: Any) -> None:
    """A replay does not ask whether the send before it may still be under way."""
    program.unknown._settings = replace(program.unknown._settings, request_deadline_s=0.0)


def with_tokens_of_no_tenant(program: Any) -> None:
    """What is kept in memory is kept without its tenant: whoever asks is served the first that is there."""
    ask, cache = program.reader.served, program.reader._cache

    def served(key: ConnectionKey) -> PublicToken | None:
        tokens = (ask(known) for known in [*cache])
        return next((token for token in tokens if token is not None), None)

    program.reader.served = served


# ---- limits ------------------------------------------------------------------------------------


class FullAfterLoss(SharedGate):
    """Nothing is known, so nothing was spent."""

    def __init__(self, now_us: Callable[[], int], *, birth_us: int = 0, grants_from_us: int = 0) -> None:
        super().__init__(now_us, grants_from_us=grants_from_us)


class SlotsOfEach(SharedGate):
    """Each process counts its own calls: the fleet has as many slots as all of them together."""

    def _pool(self, domain: Domain, limit: PoolLimit) -> Pool:
        assert LITTLE.slots is not None
        return super()._pool(domain, replace(limit, capacity=LITTLE.slots * len(FLEET)))


class EverybodyProbes(SharedGate):
    """While one call decides about a breaker, so may the next."""

    def _judge_breaker(self, ask: Ask, now_us: int) -> GateRefusal | Pass | None:
        rule = ask.plan.breaker
        if rule is not None:
            key = (ask.plan.domain, rule.key)
            known = self._breakers.get(key)
            if known is not None and known.mode is Mode.HALF_OPEN:
                self._breakers[key] = replace(known, mode=Mode.OPEN, until_us=now_us)
        return super()._judge_breaker(ask, now_us)


def _redis(gate: type[SharedGate]) -> type[SimRedis]:
    return type(gate.__name__, (SimRedis,), {"kind": gate})


class ClockOfWhoAsks(SimRedis):
    """Leases and refills go by the wall clock of the process that asks."""

    def __init__(self, now_us: Callable[[], int], draw: Random, watch: Watch) -> None:
        self.programs: dict[str, Any] = {}
        super().__init__(now_us, draw, watch)

    def time_us(self) -> int:
        program = self.programs.get(self.asker)
        return super().time_us() + (0 if program is None else round(program.clock.wall_s * MICRO))


def by_local_clocks() -> Parts:
    """A store that asks each process for the time."""
    made: list[ClockOfWhoAsks] = []

    def redis(now_us: Callable[[], int], draw: Random, watch: Watch) -> SimRedis:
        made.append(ClockOfWhoAsks(now_us, draw, watch))
        return made[-1]

    def alter(program: Any) -> None:
        made[-1].programs[program.name] = program

    return Parts(redis=redis, alter=alter)


class NoBudget(RetryBudget):
    """Every retry fits in."""

    def may_retry(self, connection: Hashable) -> bool:
        return True

    def takes_retry(self, connection: Hashable, now_s: float) -> bool:
        return True


def without_a_budget(program: Any) -> None:
    """Retries of calls are not counted."""
    program.entrance._retries = NoBudget()


ABLATIONS: tuple[Ablation, ...] = (
    Ablation("no fence check", ("I2",), lambda: Parts(jobs=NoFence)),
    Ablation("release without owner check", ("I11",), lambda: Parts(sessions=GivesBackEverybodys)),
    Ablation("refresh lock by time", ("I6",), lambda: Parts(credentials=LockByTime), ("freeze", "stop")),
    Ablation("local clock for leases", ("I4", "I5"), by_local_clocks),
    Ablation("replayed COMMIT", ("I3",), lambda: Parts(jobs=ReplaysCommits), ("lost_commit", "late_store")),
    Ablation(
        "buckets full after a loss",
        ("I5",),
        lambda: Parts(redis=_redis(FullAfterLoss)),
        ("redis_loss", "redis_old"),
    ),
    Ablation("no heartbeat during a handler", ("I11",), lambda: Parts(alter=silent_while_it_works)),
    Ablation(
        "retries without a budget",
        ("I10",),
        lambda: Parts(alter=without_a_budget),
        ("ill", "storm", "cut_calls"),
    ),
    Ablation("a rescue is no attempt", ("I7",), lambda: Parts(sessions=CrashesAreFree)),
    Ablation("first come, first served", ("I8",), lambda: Parts(jobs=FirstComeFirstServed), ("noisy",)),
    Ablation(
        "a probe for everybody", ("I12",), lambda: Parts(redis=_redis(EverybodyProbes)), ("ill", "cut_calls")
    ),
    Ablation(
        "save without compare-and-set",
        ("I6",),
        lambda: Parts(credentials=SavesWhateverStands),
        ("freeze", "stop"),
    ),
    Ablation("replay at once", ("I6",), lambda: Parts(alter=replays_at_once), ("issuer_late",), (925, 970)),
    Ablation("a claim takes the job out", ("I1",), lambda: Parts(sessions=HasNothingToGiveBack)),
    Ablation("tokens kept without tenant", ("I9",), lambda: Parts(alter=with_tokens_of_no_tenant)),
    Ablation("slots of each process", ("I4",), lambda: Parts(redis=_redis(SlotsOfEach))),
)


def named(name: str) -> Ablation:
    """The one of that name; StopIteration where there is none."""
    return next(ablation for ablation in ABLATIONS if ablation.name == name)


def search(ablation: Ablation, seeds: Iterable[int]) -> Found | None:
    """The first of *seeds* at which what is behind the safeguard breaks without it, and nothing with it."""
    for seed in filter(ablation.may_show, seeds):
        broken = run_seed(Options(seed, parts=ablation.parts())).broken
        if (
            broken is not None
            and broken.invariant in ablation.breaks
            and run_seed(Options(seed)).broken is None
        ):
            return Found(seed, broken)
    return None


def search_all(seeds: Sequence[int], processes: int) -> Iterator[tuple[str, Found | None]]:
    """The same for each ablation, over some processes of this machine."""
    with multiprocessing.get_context("fork").Pool(processes, maxtasksperchild=1) as pool:
        tasks = [(number, tuple(seeds)) for number in range(len(ABLATIONS))]
        yield from pool.imap(_search, tasks)


def _search(task: tuple[int, tuple[int, ...]]) -> tuple[str, Found | None]:
    number, seeds = task
    ablation = ABLATIONS[number]
    return ablation.name, search(ablation, (*ablation.first, *seeds))
