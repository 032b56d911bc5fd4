"""Processes that call one upstream through one gate, and what must hold for all of them.

The upstream's count is the truth; the gate's own log is judged besides. What a process tells of itself is
only believed where it complains.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter, deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from redis.asyncio import Redis

from fairlead.policy.limits.key import KeyKind, Keyspace
from fairlead.policy.limits.limit import BucketLimit
from tests.faults.support.caller import DOMAIN, PREFIX
from tests.faults.support.child import Child
from tests.faults.support.ground import CLUSTERED
from tests.faults.support.nursery import Nursery
from tests.faults.support.rate import most_over
from tests.faults.support.report import Figures
from tests.faults.support.upstream import Upstream, upstream
from tests.support.pool_verdict import PoolCheck, PoolEvent, verify_pool_log
from tests.support.standstill import passed, patience, ran_s

LEASE_S = 1.0
SLOTS = 6
POOL: dict[str, Any] = {"key": "pool", "capacity": SLOTS, "lease_s": LEASE_S, "claim_s": 0.3}
ORDER: dict[str, Any] = {
    "child": "caller",
    "plan": {"pool": POOL},
    "callers": 8,
    "work_s": [0.005, 0.06],
    "wait_s": 30.0,
    "lease_s": LEASE_S,
}
LOG = Keyspace(PREFIX).key(KeyKind.POOL, DOMAIN, "pool")
BUCKETS_BOUND_S = 5.0
"""From the store's return until the rate is full again (R23)."""
WRITABLE_S = 2.0 if CLUSTERED else 0.0
"""A primary of a cluster that comes back takes no writes for so long."""
SLOTS_BOUND_S = 0.5 + LEASE_S + 1.0 + 0.5 + WRITABLE_S
"""From a loss until all slots are: two looks that find the store, 0.2 s each; a lease, in which who holds one
tells of it; who waits asks again within a second; the rest is for the way."""
NOTICED_S = 5.0
"""From a fault until every process goes by its share."""
OVERLAP_S = 0.5
"""What an outage may add to the rate, while some processes know already and some do not (R27)."""
FULL = 0.9
"""Of the rate: so much is let in within a second of plenty, as callers come."""
RATE = BucketLimit("bucket", 30, 120)
BOTH: dict[str, Any] = {"pool": POOL, "buckets": [{"key": RATE.key, "capacity": 30, "per_s": 120}]}
"""A plan with slots and a bucket, both of which are felt."""


def rate_alone(limit: BucketLimit, *unsafe: str) -> dict[str, Any]:
    """An order: short calls, as many as one bucket lets through, without the safeguards *unsafe*."""
    plan = {"buckets": [{"key": limit.key, "capacity": limit.capacity, "per_s": limit.per_s}]}
    return {"plan": plan, "work_s": [0.0, 0.005], "unsafe": [*unsafe], "limit": 0}


def long_calls(unsafe: str) -> dict[str, Any]:
    """An order: calls that hold their slots for long, without the safeguard *unsafe*."""
    lease_s = 5.0
    plan = {"pool": POOL | {"lease_s": lease_s}}
    return {"plan": plan, "lease_s": lease_s, "work_s": [1.5, 2.0], "unsafe": [unsafe]}


@dataclass
class Fleet:
    """Made by `fleet_at`."""

    nursery: Nursery
    url: str
    folder: Path
    upstream: Upstream
    figures: Figures
    order: dict[str, Any]
    children: list[Child] = field(default_factory=list)
    names: dict[int, str] = field(default_factory=dict)
    ranks: dict[int, int] = field(default_factory=dict)
    told: list[dict[str, Any]] = field(default_factory=list)
    outages: list[tuple[float, float]] = field(default_factory=list)
    """From when until when processes with and without the store may have overlapped."""
    froze: bool = False
    """Whether a process was stopped: whoever holds a slot there loses it."""
    usual_per_s: float = float("inf")
    """Units that this machine can let through, where that was measured."""
    _born: int = 0

    # ---- processes

    async def born(self, rank: int = 0, **more: Any) -> Child:
        """A process that calls; *more* of its order."""
        name = f"p{self._born}"
        self._born += 1
        order = self.order | more
        order |= {
            "url": order.get("url", self.url),
            "process": name,
            "rank": rank,
            "seed": self.figures.draw.getrandbits(32),
            "upstream": self.upstream.port,
            "ledger": str(self.folder / "callers.ndjson"),
            "log": str(self.folder / f"{name}.log"),
        }
        child = Child(self.nursery, order)
        await child.begin()
        self.children.append(child)
        self.names[child.pid], self.ranks[child.pid] = name, rank
        await child.ask("run")
        return child

    async def all_born(self, count: int) -> list[Child]:
        """*count* of them; each knows that there are so many."""
        self.order["processes"] = count
        return list(await asyncio.gather(*(self.born(rank) for rank in range(count))))

    async def kill(self, child: Child, *, counted: bool = False) -> None:
        """SIGKILL. *counted*: what it counted until a moment before is kept."""
        if counted:
            self.told.append(await child.ask("figures"))
        self.upstream.excuse(self.names[child.pid])
        await child.kill()
        self.children.remove(child)

    async def freeze(self, child: Child, seconds: float) -> None:
        """SIGSTOP, and SIGCONT after *seconds*."""
        name = self.names[child.pid]
        self.froze = True
        await child.freeze()
        self.upstream.excuse(name, float("inf"))  # also what it was let in for and has not sent
        await asyncio.sleep(seconds)
        self.upstream.excuse(name)
        child.thaw()

    async def rest(self) -> None:
        """No process calls any more; what they counted is kept."""
        self.told += await asyncio.gather(*(child.ask("rest") for child in self.children))

    async def end(self) -> None:
        """Every process is gone."""
        await asyncio.gather(*(child.kill() for child in self.children))

    # ---- what is waited for

    async def cycles(self) -> int:
        """How many calls were cancelled or held up so far."""
        figures_read = self.told + await asyncio.gather(*(child.ask("figures") for child in self.children))
        return sum(
            figure["counts"].get("cancelled", 0) + figure["counts"].get("stalls", 0)
            for figure in figures_read
        )

    async def served(self, calls: int, within_s: float = 60.0) -> None:
        """Return once so many calls have arrived since the beginning."""
        async with patience(within_s):
            while len(self.upstream.calls) < calls:
                await asyncio.sleep(0.005)

    async def let_in(self, since_s: float, within_s: float = 60.0) -> float:
        """Seconds from a moment until every process was let in by the fleet's counts again."""
        names = {self.names[child.pid] for child in self.children}
        async with patience(within_s):
            while True:
                first: dict[str, float] = {}
                for call in reversed(self.upstream.calls):
                    if call.admitted_s <= since_s:
                        break
                    if not call.local:
                        first[call.process] = call.admitted_s
                if first.keys() >= names:
                    return ran_s(since_s, max(first.values()))
                await asyncio.sleep(0.005)

    async def back(self, since_s: float, struck_s: float | None = None) -> float:
        """The same; from *struck_s* (default: *since_s*) until then was an outage."""
        took_s = await self.let_in(since_s)
        self.outages.append((since_s if struck_s is None else struck_s, time.monotonic()))
        return took_s

    async def all_slots(self, since_s: float, within_s: float = 60.0) -> float:
        """Seconds from a moment until the fleet's counts alone had filled all slots at the upstream."""
        async with patience(within_s):
            while not self.upstream.filled_s or self.upstream.filled_s[-1] <= since_s:
                await asyncio.sleep(0.005)
        return ran_s(since_s, next(at_s for at_s in self.upstream.filled_s if at_s > since_s))

    async def full_rate(self, limit: BucketLimit, since_s: float, within_s: float = 60.0) -> float:
        """Seconds from a moment to the end of the first second in which the fleet's counts let in nine tenths
        of the rate, or of what this machine can do (`warm_up`), if that is less."""
        units = FULL * min(limit.per_s, self.usual_per_s)
        async with patience(within_s):
            while (full_s := self._full_rate_s(units, since_s)) is None:
                await asyncio.sleep(0.02)
        return ran_s(since_s, full_s)

    async def warm_up(self) -> None:
        """In a small run, which has to hold on a machine that is no match for the rate: measure how many
        units a second it lets through, once the burst is spent."""
        if self.figures.size == "full":
            return
        await passed(1.0)
        begun_s, call_count = time.monotonic(), len(self.upstream.calls)
        await passed(2.0)
        units = sum(call.cost for call in self.upstream.calls[call_count:])
        self.usual_per_s = units / (time.monotonic() - begun_s)
        self.figures.note(usual_per_s=round(self.usual_per_s, 1))

    def _full_rate_s(self, units: float, since_s: float) -> float | None:
        let_in = sorted(
            (call.admitted_s, call.cost)
            for call in self.upstream.calls
            if call.admitted_s > since_s and not call.local
        )
        window, total = deque[tuple[float, float]](), 0.0
        for at_s, cost in let_in:
            window.append((at_s, cost))
            total += cost
            while window[0][0] <= at_s - 1.0:
                total -= window.popleft()[1]
            if total >= units:
                return at_s
        return None

    async def all_away(
        self, since_s: float, *, known_s: float | None = None, within_s: float = 60.0
    ) -> float:
        """Seconds from a moment until every process had noticed that the store was gone; judged.

        Who noticed before, but after *known_s*, counts as well: a slow machine may make a fault of what was
        none yet.
        """
        known_s = since_s if known_s is None else known_s
        async with patience(within_s):
            while True:
                gone_calls = {
                    line["process"]: line["s"]
                    for line in self.lines()
                    if line["told"] == "degraded" and line["s"] > known_s
                }
                if len(gone_calls) >= len(self.children):
                    took_s = ran_s(since_s, max(since_s, *gone_calls.values()))
                    self.figures.holds(took_s <= NOTICED_S, f"noticed after {took_s:.2f} s")
                    return took_s
                await asyncio.sleep(0.01)

    # ---- what must hold

    def note_callers(self) -> Counter[str]:
        """What the callers counted, and that none saw an error that is not his to see.

        Nor was one refused or cut off, but where that is the setting, or the doing of the experiment.
        """
        counts: Counter[str] = Counter()
        closed: Counter[str] = Counter()
        for figure in self.told:
            counts.update(figure["counts"])
            closed.update(figure["closed"])
        lines = self.lines()
        bad = [line for line in lines if line["told"] == "failed"]
        self.figures.note(degraded_for=sorted({line["why"] for line in lines if line["told"] == "degraded"}))
        self.figures.note(calls=len(self.upstream.calls), counts=dict(counts), closed=dict(closed))
        self.figures.zero(failed=len(bad))
        if bad:
            self.figures.note(first_failure=bad[0])
        if not (self.figures.ablation or self.froze or self.order.get("stall")):
            if self.order["plan"].get("degraded") != "closed":
                self.figures.zero(refused=closed.total())
            self.figures.zero(slots_lost=counts["slot_lost"])
        return counts

    def lines(self) -> list[dict[str, Any]]:
        """The ledger of the callers."""
        path = self.folder / "callers.ndjson"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def note_upstream(self) -> None:
        """Never more in flight than the limit, but for calls of the frozen and the killed."""
        up = self.upstream
        self.figures.note(n=len(up.calls), most_in_flight=up.most, over_by_frozen=up.excused_over)
        self.figures.zero(over_limit_at_upstream=up.over)

    def note_rate(self, limit: BucketLimit, *, overlap_s: float = 0.0) -> None:
        """What reached the upstream, in any window; a call may arrive as much later as the slowest did.

        *overlap_s* of the rate is allowed on top in windows that an outage touches, for each (R27): there
        processes with and without the store overlap.
        """
        spends, lag_s = self.upstream.spends(), self.upstream.lag_s() + 0.05
        beyond = most_over(spends, limit, self.outages, overlap_s)
        self.figures.note(
            rate_over=round(most_over(spends, limit), 3),
            rate_beyond_s=round(beyond / limit.per_s, 3),
            lag_s=round(lag_s, 3),
        )
        self.figures.holds(beyond <= limit.per_s * lag_s, f"rate over by {beyond:.1f}")

    async def note_log(self, *, holding: bool = False, **expected: Any) -> PoolCheck:
        """The pool's log since the last loss."""
        verdict = verify_pool_log(await pool_log(self.url), holding=None if holding else (), **expected)
        self.figures.note(
            log={
                name: getattr(verdict, name)
                for name in ("granted", "handed", "promoted", "adopted", "claimed", "released", "expired")
            }
            | {"most": verdict.most, "over_adopted": verdict.over_adopted, "late": verdict.late},
            longest_orphan_s=round(verdict.longest_orphan_s, 3),
        )
        self.figures.zero(
            over_admissions=verdict.over_admissions,
            leaked=verdict.leaked,
            bad_lines=verdict.doubled + verdict.unmatched + verdict.miscounted,
        )
        if verdict.violation:
            self.figures.note(violation=verdict.violation)
        return verdict

    async def note_free(self, within_s: float = LEASE_S + 1.0) -> None:
        """All slots can be had again within a lease and a second; asked by one of the processes."""
        capacity, began_s, free = self.order["plan"]["pool"]["capacity"], time.monotonic(), 0
        asker = self.children[0] if self.children else await self.born(callers=0)
        while free < capacity and time.monotonic() < began_s + within_s + 0.2:
            free = (await asker.ask("free"))["free"]
            await asyncio.sleep(0.02)
        took_s = ran_s(began_s)
        self.figures.note(free_at_rest=free, all_free_s=round(took_s, 3))
        self.figures.holds(free == capacity, f"{free} of {capacity} slots free at rest")
        self.figures.holds(took_s <= within_s, f"all slots free after {took_s:.2f} s")


async def pool_log(url: str, key: str = LOG) -> list[PoolEvent]:
    """What the server has written down of a pool."""
    client = Redis.from_url(url, decode_responses=True)
    try:
        entries = await client.xrange(f"{key}:e")
    finally:
        await client.aclose()
    return [parsed(fields) for _, fields in entries]


def parsed(fields: dict[str, str]) -> PoolEvent:
    """One line of a pool's log."""
    at_us, used, capacity, until_us = (int(float(fields[name])) for name in "tncu")
    return PoolEvent(fields["k"], at_us, used, capacity, fields["h"], until_us)


@asynccontextmanager
async def fleet_at(
    nursery: Nursery, url: str, folder: Path, figures: Figures, *, limit: int = SLOTS, **order: Any
) -> AsyncIterator[Fleet]:
    """A fleet without processes yet, before an upstream that takes *limit* calls at once."""
    folder.mkdir(exist_ok=True)
    async with upstream(limit) as provider:
        fleet = Fleet(nursery, url, folder, provider, figures, ORDER | order)
        try:
            yield fleet
        finally:
            with suppress(Exception):
                await fleet.end()
