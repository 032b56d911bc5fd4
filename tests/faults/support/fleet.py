"""Processes that call one upstream through one gate, and what must hold for all of them.

The upstream's count is the truth; the gate's own log is judged besides. What a process tells of itself is
only believed where it complains.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from redis.asyncio import Redis

from fairlead.policy.gate.key import KeyKind, Keyspace
from fairlead.policy.gate.limit import BucketLimit
from fairlead.policy.gate.verdict import PoolEvent, PoolVerdict, judge_bucket, judge_pool
from tests.faults.support.caller import DOMAIN, PREFIX
from tests.faults.support.child import Child
from tests.faults.support.nursery import Nursery
from tests.faults.support.report import Figures
from tests.faults.support.upstream import Upstream, upstream

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
        told = self.told + await asyncio.gather(*(child.ask("figures") for child in self.children))
        return sum(one["counts"].get("cancelled", 0) + one["counts"].get("stalls", 0) for one in told)

    async def served(self, calls: int, within_s: float = 30.0) -> None:
        """Return once so many calls have arrived since the beginning."""
        async with asyncio.timeout(within_s):
            while len(self.upstream.calls) < calls:
                await asyncio.sleep(0.005)

    async def back(self, since_s: float, within_s: float = 30.0) -> float:
        """Seconds from a moment until every process was let in by the fleet's counts again."""
        names = {self.names[child.pid] for child in self.children}
        async with asyncio.timeout(within_s):
            while True:
                first: dict[str, float] = {}
                for call in reversed(self.upstream.calls):
                    if call.admitted_s <= since_s:
                        break
                    if not call.local:
                        first[call.process] = call.admitted_s
                if first.keys() >= names:
                    return max(first.values()) - since_s
                await asyncio.sleep(0.005)

    async def all_away(self, since_s: float, within_s: float = 5.0) -> float:
        """Seconds from a moment until every process had noticed that the store was gone."""
        async with asyncio.timeout(within_s):
            while True:
                gone = {
                    line["process"]: line["s"]
                    for line in self.lines()
                    if line["told"] == "degraded" and line["s"] > since_s
                }
                if len(gone) >= len(self.children):
                    return max(gone.values()) - since_s
                await asyncio.sleep(0.01)

    # ---- what must hold

    def note_callers(self) -> Counter[str]:
        """What the callers counted, and that none saw an error that is not his to see."""
        counts: Counter[str] = Counter()
        closed: Counter[str] = Counter()
        for told in self.told:
            counts.update(told["counts"])
            closed.update(told["closed"])
        lines = self.lines()
        bad = [line for line in lines if line["told"] == "failed"]
        self.figures.note(degraded_for=sorted({line["why"] for line in lines if line["told"] == "degraded"}))
        self.figures.note(calls=len(self.upstream.calls), counts=dict(counts), closed=dict(closed))
        self.figures.zero(failed=len(bad))
        if bad:
            self.figures.note(first_failure=bad[0])
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

    def note_rate(self, limit: BucketLimit, *, overlap_s: float = 0.0, since_s: float = 0.0) -> None:
        """No window above burst + rate · W.

        What was let through may arrive later by the lag, so so much more may come together; *overlap_s* of
        the rate is allowed on top where processes with and without the store overlap (R27).
        """
        verdict = judge_bucket(
            self.upstream.spends(since_s), capacity=limit.capacity_micro, rate=limit.rate_micro
        )
        slack_s = self.upstream.lag_s() + 0.05
        self.figures.note(
            rate_over=round(verdict.most_over, 3),
            rate_over_s=round(verdict.most_over / limit.per_s, 3),
            lag_s=round(slack_s, 3),
        )
        self.figures.holds(
            verdict.most_over <= limit.per_s * (slack_s + overlap_s), f"rate over by {verdict.most_over:.1f}"
        )

    async def note_log(self, *, holding: bool = False, **expected: Any) -> PoolVerdict:
        """The pool's log since the last loss."""
        verdict = judge_pool(await pool_log(self.url), holding=None if holding else (), **expected)
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
        took_s = time.monotonic() - began_s
        self.figures.note(free_at_rest=free, all_free_s=round(took_s, 3))
        self.figures.holds(free == capacity, f"{free} of {capacity} slots free at rest")
        self.figures.holds(took_s <= within_s, f"all slots free after {took_s:.2f} s")


async def pool_log(url: str, key: str = LOG) -> list[PoolEvent]:
    """What the server has written down of a pool."""
    client = Redis.from_url(url, decode_responses=True)
    try:
        told = await client.xrange(f"{key}:e")
    finally:
        await client.aclose()
    return [parsed(fields) for _, fields in told]


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
