"""How fair the claim is, and what that costs: claims on the embedded PostgreSQL, no worker around them.

fsync is off, because its time would be the same on all sides.

fairness.tax_*           a fair claim over a plain one (priority and time, SKIP LOCKED), 1,000 tenants
fairness.flat_*          buffers of a claim per job: the most expensive size over the cheapest
fairness.quiet           how long jobs of quiet tenants wait beside one with a hundred times their load while
                         all slots are taken, in rounds (three jobs of each ready lane): 95th percentile
fairness.unfairness      Temporal's: the sum of each key's first position over the square of their number;
                         keys drawn by Zipf's law, the worst of several demands
fairness.wrongorderness  Temporal's: pairs of jobs that ran against their priorities, of all pairs
fairness.weights         by how many per cent the share of a weight of 3 beside one of 1 is off
fairness.groups          the same for a tenant with 1,000 groups beside one with a single one
"""

from __future__ import annotations

import asyncio
import math
import random
import statistics
import time
from collections import Counter
from collections.abc import Sequence
from uuid import UUID

from bench.claimcost import flat, tax
from bench.claims import Queue, queue
from bench.databases import server
from bench.report import Row
from fairlead.engine.ports import Job, TenantShare
from fairlead.policy.jobs.job import Priority
from fairlead.policy.jobs.lane import QUANTUM

SEED = 20_260
DEMANDS = (1, 3, 10, 100)
READY = "SELECT count(*) FROM lane WHERE state = 'ready'"


async def run(*, rounds: int, quick: bool) -> list[Row]:
    """Measure and return all rows."""
    with server({"fsync": "off"}) as url:
        return [
            await _quiet(url, steps=40 if quick else 600),
            await _unfairness(url, rounds=1 if quick else rounds, jobs=500 if quick else 10_000),
            await _wrong_order(url, jobs=100 if quick else 1_000),
            await _weights(url, served=100 if quick else 1_200),
            await _groups(url, groups=50 if quick else 1_000),
            *await tax(url, rounds, quick),
            *await flat(url, quick),
        ]


# ---- quiet tenants ---------------------------------------------------------------------------------

QUIET, LOUD = 50, 100
SLOTS = 10
RATE = 0.08  # jobs of a quiet tenant while ten are served: with the loud one a fifth more than the capacity


async def _quiet(server_url: str, steps: int) -> Row:
    draw = random.Random(SEED)
    dwells: list[tuple[float, float, int]] = []  # in rounds, in milliseconds, and ready lanes
    async with queue(server_url, "quiet") as q:
        await q.enqueue(["loud"] * LOUD * 5)
        waiting: dict[UUID, tuple[int, int, float]] = {}
        run_count, claims, start_mono = 0, 0, time.perf_counter()
        for step in range(1, steps + 1):
            coming = [f"quiet {number}" for number in range(QUIET) if draw.random() < RATE]
            await q.enqueue(["loud"] * round(LOUD * RATE))
            requested_mono = time.perf_counter()
            ids = await q.enqueue(coming)
            waiting |= dict.fromkeys(ids, (run_count, await _ready(q), requested_mono))
            while run_count < step * SLOTS:
                jobs = await q.claim(step * SLOTS - run_count)
                claims += 1
                for job in jobs:
                    run_count += 1
                    if job.job_id in waiting:
                        count_before, ready, requested_mono = waiting.pop(job.job_id)
                        in_rounds = (run_count - 1 - count_before) / (QUANTUM * ready)
                        dwells.append((in_rounds, (time.perf_counter() - requested_mono) * 1000, ready))
                await q.done(jobs)
        a_job_ms = (time.perf_counter() - start_mono) * 1000 / run_count
    rounds, ms, ready = ([dwell[i] for dwell in dwells] for i in range(3))
    return Row(
        bench="fairness.quiet",
        ours=_quantile(rounds, 0.95),
        unit="rounds",
        goal={"ours": 2.0},
        at_most=True,
        n=len(dwells),
        more={
            "max": round(max(rounds), 2),
            "p95_ms": round(_quantile(ms, 0.95), 1),
            "round_ms": round(QUANTUM * statistics.median(ready) * a_job_ms, 1),
            "still_waiting": len(waiting),
            "claims_to_fill_all_places": round(claims / steps, 2),
        },
    )


async def _ready(q: Queue) -> int:
    async with q.database._checkouts.checkout() as connection:
        return int((await connection.fetch(READY))[0][0])


def _quantile(values: Sequence[float], share: float) -> float:
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)]


# ---- order -----------------------------------------------------------------------------------------


async def _unfairness(server_url: str, rounds: int, jobs: int) -> Row:
    """Measure Temporal's 225 jobs of 10 keys repeatedly, and a longer run for its simulator's percentiles."""
    draw, by_demand = random.Random(SEED), dict[int, float]()
    async with queue(server_url, "unfairness") as q:
        for demand in DEMANDS:
            orders = [await _drained(q, draw, f"{demand} {n}", 225, 10, demand) for n in range(rounds)]
            by_demand[demand] = round(
                statistics.median(unfairness([k for _, k in order]) for order in orders), 3
            )
        order = await _drained(q, draw, "long", jobs, 50, DEMANDS[-1])
    return Row(
        bench="fairness.unfairness",
        ours=max(by_demand.values()),
        unit="",
        goal={"ours": 1.0},
        at_most=True,
        n=rounds,
        more={
            "by_demand": by_demand,
            "50_keys": round(unfairness([key for _, key in order]), 3),
            "p90s_of_50_keys": _percentiles(order),
        },
    )


async def _drained(
    q: Queue, draw: random.Random, name: str, jobs: int, keys: int, demand: int
) -> list[tuple[int, int]]:
    """Run jobs with keys by Zipf's law (s = 2, v = 2). Return number and key in the order of claims."""
    drawn = draw.choices(range(keys), [(2 + key) ** -2.0 for key in range(keys)], k=jobs)
    ids = await q.enqueue([f"{name} {key}" for key in drawn])
    jobs_by_id = dict(zip(ids, enumerate(drawn), strict=True))
    return [jobs_by_id[job.job_id] for job in await q.served(jobs, demand)]


def unfairness(order: Sequence[int]) -> float:
    """Return 0.5 if all keys alternate, and about K / 2 if K keys run one after the other."""
    firsts: dict[int, int] = {}
    for position, key in enumerate(order):
        firsts.setdefault(key, position)
    return sum(firsts.values()) / len(firsts) ** 2


def _percentiles(order: Sequence[tuple[int, int]]) -> dict[str, float]:
    """Return percentiles over keys of the 90th percentile of normalized latency.

    The latency of a job is its position in the order minus its number, over the share of its key.
    """
    counts = Counter(key for _, key in order)
    latencies: dict[int, list[float]] = {}
    for position, (number, key) in enumerate(order):
        latencies.setdefault(key, []).append((position - number) / counts[key] * len(counts) / len(order))
    p90s = [_quantile(values, 0.9) for values in latencies.values()]
    return {f"@{share}": round(_quantile(p90s, share / 100), 3) for share in (20, 50, 90, 95)}


async def _wrong_order(server_url: str, jobs: int) -> Row:
    draw = random.Random(SEED)
    return Row(
        bench="fairness.wrongorderness",
        ours=await _inverted(server_url, draw, jobs, claimers=1),
        unit="",
        goal={"ours": 0.1},
        at_most=True,
        n=jobs,
        more={"four_claimers": round(await _inverted(server_url, draw, jobs, claimers=4), 3)},
    )


async def _inverted(server_url: str, draw: random.Random, jobs: int, claimers: int) -> float:
    """Return the share of inverted pairs; with several claimers in the order of their results."""
    order: list[int] = []
    async with queue(server_url, "order") as q:
        await q.store([q.job(f"t{n % 20}", priority=draw.choice(list(Priority))) for n in range(jobs)])

        async def claim() -> None:
            while batch := await q.claim(SLOTS):
                order.extend(job.priority for job in batch)
                await q.done(batch)

        await asyncio.gather(*(claim() for _ in range(claimers)))
    wrong = sum(first > second for position, first in enumerate(order) for second in order[position + 1 :])
    return wrong / (len(order) * (len(order) - 1) / 2)


# ---- shares ----------------------------------------------------------------------------------------


async def _weights(server_url: str, served: int) -> Row:
    off = {}
    for demand in DEMANDS:
        async with queue(server_url, "weights") as q:
            await q.lanes.set_tenant(TenantShare("heavy", weight=3.0))
            for tenant in ("heavy", "light"):
                await q.enqueue([tenant] * served)
            off[f"{demand}"] = _off(await q.served(served, demand), "heavy", 0.75)
    return Row(
        bench="fairness.weights",
        ours=max(map(abs, off.values())),
        unit="% off",
        goal={"ours": 2.0},
        at_most=True,
        n=served,
        more={"by_demand": off},
    )


async def _groups(server_url: str, groups: int) -> Row:
    off, served = {}, 4 * groups
    for demand in (10, 100):
        async with queue(server_url, "groups") as q:
            await q.store([q.job("many", group_key=f"g{n % groups}") for n in range(served)])
            await q.enqueue(["one"] * served, group_key="g")
            off[f"{demand}"] = _off(await q.served(served, demand), "many", 0.5)
    return Row(
        bench="fairness.groups",
        ours=max(map(abs, off.values())),
        unit="% off",
        goal={"ours": 5.0},
        at_most=True,
        n=served,
        more={"by_demand": off, "groups": groups},
    )


def _off(jobs: Sequence[Job], tenant: str, share: float) -> float:
    """Return by how many per cent a tenant's share of *jobs* differs from *share*."""
    actual_share = Counter(job.tenant_id for job in jobs)[tenant] / len(jobs)
    return round((actual_share / share - 1) * 100, 2)
