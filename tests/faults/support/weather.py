"""Everything that may break, one thing after the other, drawn by chance: what the soak lives through.

Each fault ends by itself. What it excuses is kept: runs of jobs that may happen again, calls that may be
served while their slot is another's, and calls above the rate. Each only at its time.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from fairlead.testing import Quirk
from fairlead.testing.api.stripe import StripeApi
from tests.faults.support.child import Child
from tests.faults.support.faultproxy import FaultProxy
from tests.faults.support.report import Figures
from tests.faults.support.sink import Run, Runs
from tests.faults.support.stage import Stage
from tests.faults.support.valkey import OwnValkey

BACKENDS = (
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database()"
    " AND backend_type = 'client backend' AND pid <> pg_backend_pid() AND application_name = 'fairlead'"
    " AND random() < 0.5"
)


UNWRITTEN_S = 1.0
"""How long after its effect a run may not be stored yet, and after its end a fault may still show."""


@dataclass(frozen=True, slots=True)
class Fault:
    """Something broke from when to when. *pid*: the one process that it met; 0: all of them."""

    name: str
    begun_s: float
    ended_s: float
    pid: int = 0

    def excuses(self, run: Run, again: Run) -> bool:
        """Whether *run* was at work when it came, so that its job may have run *again*."""
        if self.name not in RUNS_AGAIN or (self.pid and self.pid not in (run.pid, again.pid)):
            return False
        until_s = again.began_s if run.ended_s is None else run.ended_s + UNWRITTEN_S
        return run.began_s <= self.ended_s + UNWRITTEN_S and self.begun_s <= until_s


@dataclass
class Weather:
    """Over *workers*, of which the first is never killed: it is the one whose growth is measured.

    *lasts_s*: how long a fault lasts that has a length. *born* makes a worker.
    """

    stage: Stage
    figures: Figures
    workers: list[Child]
    wire: FaultProxy
    valkey: OwnValkey
    api: StripeApi
    born: Callable[[], Awaitable[Child]]
    lasts_s: float
    lease_s: float
    faults: list[Fault] = field(default_factory=list)
    excused: list[tuple[float, float, int]] = field(default_factory=list)
    """From when to when how many calls more than the limit may be served."""

    async def one(self, name: str) -> None:
        """Have the fault *name*, and heal it."""
        begun_s = time.monotonic()
        pid = await getattr(self, f"_{name}")() or 0
        self.faults.append(Fault(name, begun_s, time.monotonic(), pid))

    @property
    def came(self) -> Counter[str]:
        """How often each fault came."""
        return Counter(fault.name for fault in self.faults)

    def _excuse(self, for_s: float) -> None:
        """Calls that are being served now may be served beside those that get their slots."""
        now_s = time.monotonic()
        self.excused.append((now_s, now_s + for_s + self.lease_s, self.api.ledger.in_flight()))

    # ---- processes

    async def _kill(self) -> int:
        victim = self.workers.pop(self.figures.draw.randrange(1, len(self.workers)))
        self._excuse(0.0)
        await victim.kill()
        self.stage.children.remove(victim)
        self.workers.append(await self.born())
        return victim.pid

    async def _freeze(self) -> int:
        worker = self.figures.draw.choice(self.workers)
        for_s = 1.5 * self.lease_s
        await worker.freeze()
        self._excuse(for_s)
        await asyncio.sleep(for_s)
        worker.thaw()
        return worker.pid

    # ---- PostgreSQL

    async def _database_stalls(self) -> None:
        self.wire.stall()
        await asyncio.sleep(self.lasts_s)
        self.wire.heal()

    async def _database_cut(self) -> None:
        self.wire.away()
        await asyncio.sleep(self.lasts_s / 2)
        self.wire.heal()

    async def _backends_killed(self) -> None:
        await self.stage.run(BACKENDS)

    # ---- Redis

    async def _redis_emptied(self) -> None:
        await self.valkey.tell("FLUSHALL")
        await self.valkey.tell("SCRIPT", "FLUSH")

    async def _redis_killed(self) -> None:
        self.valkey.kill()
        await asyncio.sleep(self.lasts_s)
        await asyncio.to_thread(self.valkey.start)

    async def _redis_stalls(self) -> None:
        self.valkey.freeze()
        await asyncio.sleep(self.lasts_s)
        self.valkey.thaw()

    # ---- vendors

    async def _issuer_fails(self) -> None:
        self.stage.issuer.be_rude(Quirk(status=503), times=10)
        await asyncio.sleep(self.lasts_s)

    async def _api_storm(self) -> None:
        self.api.switch(failing=0.8, how=503)
        await asyncio.sleep(self.lasts_s)
        self.api.calm()


FAULTS = (
    "kill",
    "freeze",
    "database_stalls",
    "database_cut",
    "backends_killed",
    "redis_emptied",
    "redis_killed",
    "redis_stalls",
    "issuer_fails",
    "api_storm",
)
RUNS_AGAIN = ("kill", "freeze", "database_stalls", "database_cut", "backends_killed")
CUTS_REDIS = ("redis_emptied", "redis_killed", "redis_stalls")


def excuses_of(runs: Runs, faults: Iterable[Fault]) -> Iterator[Fault | None]:
    """Of each run beyond a job's first the first fault that excuses it; None: nothing does."""
    faults_known = list(faults)
    previous_runs: dict[str, Run] = {}
    for run in runs.by_lease.values():
        if earlier := previous_runs.get(run.job_id):
            yield next((fault for fault in faults_known if fault.excuses(earlier, run)), None)
        previous_runs[run.job_id] = run


def most_over_rate(
    arrived_s: Iterable[float], burst: float, per_s: float, excused: Iterable[tuple[float, float, float]]
) -> float:
    """By how many requests some window held more than *burst* + *per_s* x window, without the excused.

    *excused*: from when to when how many requests above that may come; each excuses so many, then no more.
    """
    allowances = [list(allowance) for allowance in excused]
    level = over = 0.0
    last_s = float("-inf")
    for at_s in sorted(arrived_s):
        level, last_s = max(0.0, level - per_s * (at_s - last_s)) + 1.0, at_s
        open_now = (
            allowance
            for allowance in allowances
            if allowance[0] <= at_s <= allowance[1] and allowance[2] >= 1.0
        )
        if level > burst and (open_allowance := next(open_now, None)):
            open_allowance[2] -= 1.0
            level -= 1.0
        over = max(over, level - burst)
    return over


def over_excused(served: list[tuple[float, int]], limit: int, excused: list[tuple[float, float, int]]) -> int:
    """How often more than *limit* were served that nothing excuses; *served*: (time, +1 or -1)."""
    over = now = 0
    for at_s, step in sorted(served):
        now += step
        allowed = limit + sum(calls for begun_s, ended_s, calls in excused if begun_s <= at_s <= ended_s)
        over += step > 0 and now > allowed
    return over


def served_times(api: StripeApi, account: str) -> list[tuple[float, int]]:
    """When each request of *account* began and ended to be served."""
    ended: list[tuple[float, int]] = []
    for arrival in api.ledger.of(account):
        begun_s: Any = arrival.begun_mono
        ended += [(begun_s, 1), (arrival.ended_mono if arrival.ended_mono is not None else float("inf"), -1)]
    return ended
