"""Decisions of the gate: ours beside rate limiters for Python, and what the server itself gives.

All sides ask the same server (the embedded Valkey, its default settings, append-only file on) over the same
socket, each from one fresh process, in interleaved rounds; before each of them the server is emptied. It has
one core to itself and the sides have the others (not so on the cluster, which has three servers). Every
side's limits are so large that nothing is refused, and a refusal fails the run. Peers have the number of
concurrent tasks, of 10, 100 and 1,000, that is best for each; ours has 1,000.

    gate.bucket_1, _1000   one bucket, of one tenant or of 1,000: decisions of one process a second
    gate.full_1, _1000     breaker, quota, slot and two buckets admitted, over the best single bucket of a
                           peer; what was admitted ends between the laps, in no time that counts
    gate.pair_1, _1000     the same, and each ends at once: admission and end count as one
    gate.serial            the answer to one full admission, one after the other, over an INCRBY
    gate.herd, _bucket     1,000 asks at once: their answers' p95 over what throughput would make of them
    gate.open_loop         full admissions that arrive evenly at half of throughput: the answer's p95
    gate.flat              the server's time in the script for one operation, by how many tenants it knows
    gate.cluster_*         the same throughputs on a cluster of three, on the same cores

The limit of the throughput rows is our script alone (`bench.limits.gate_script`), asked in batches as large
as ours; ``beside`` tells of it without batches, and of INCRBY through redis-py, which decides nothing. What
a network costs is not measured.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bench.cluster import cluster
from bench.databases import servers
from bench.gate_rows import rows
from bench.gate_sides import Field
from bench.report import Row
from bench.sides import Contender, SideFailed, Skipped, ask
from bench.valkey import apart, settle

PROGRAM = "bench.gate_child"
LIMIT_S = 120.0
BATCH = 128
"""Items of one call of ours under load."""
PLANS = ("bucket", "full", "pair")
"""What ours is measured with; see bench.our_gate."""


@dataclass(frozen=True, slots=True)
class Size:
    """How much a round does."""

    for_s: float
    warm_s: float
    tasks: int
    tries: Sequence[int]
    serial: int
    herds: int
    tenants: Sequence[int]
    sample: int


FULL = Size(1.5, 0.5, 1_000, (10, 100, 1_000), 2_000, 20, (10, 1_000, 100_000), 20_000)
SMALL = Size(0.2, 0.1, 100, (10,), 100, 2, (10, 100), 100)


@dataclass(frozen=True, slots=True)
class Step:
    """One measurement: what *contender* does, and the name of its figures."""

    contender: Contender
    figure: str
    act: str
    options: Mapping[str, Any]


def contenders(*, peers: bool) -> Field:
    """Who takes part."""
    strategies, clients = ("moving", "sliding", "fixed"), {"": "redispy", "_coredis": "coredis"}
    everyone = [
        *(
            Contender(f"limits_{each}{name}", "bench.peers.limits_", {"strategy": each, "client": client})
            for name, client in clients.items()
            for each in strategies
        ),
        *(
            Contender(f"throttled_{each}", "bench.peers.throttled", {"using": each})
            for each in ("token_bucket", "gcra")
        ),
        *(Contender(f"pyrate_{each}", "bench.peers.pyrate", {"bucket": each}) for each in ("log", "state")),
    ]
    return Field(
        ours=Contender("fairlead", "bench.our_gate"),
        script=Contender("script", "bench.limits.gate_script"),
        incrby=Contender("incrby", "bench.limits.incrby"),
        peers=everyone if peers else [],
    )


async def run(*, rounds: int, quick: bool, peers: bool = True) -> list[Row]:
    """All rows."""
    size, taking_part = SMALL if quick else FULL, contenders(peers=peers)
    with servers() as endpoints:
        url = endpoints.redis_url
        async with apart(url):
            await _single(url, taking_part, size, rounds)
    with cluster() as urls:
        for _ in range(rounds):
            for step in _cluster_steps(taking_part.ours, size):
                for each in urls[1:]:
                    await settle(each)
                await _guarded(urls[0], taking_part, step)
    return rows(taking_part, tenants=size.tenants, tasks=size.tasks, rounds=rounds)


async def _single(url: str, taking_part: Field, size: Size, rounds: int) -> None:
    for contender in (taking_part.incrby, *taking_part.peers):
        await _find_tasks(url, contender, size)
    steps = _steps(taking_part, size)
    for number in range(rounds):
        turn = number * 7 % len(steps)
        for step in steps[turn:] + steps[:turn]:
            await _guarded(url, taking_part, step)
        await _guarded(url, taking_part, _arrivals(taking_part.ours, size))


async def _find_tasks(url: str, contender: Contender, size: Size) -> None:
    """Each number is tried once on one key; files and caches are warm afterwards, too."""
    tried = {}
    for tasks in size.tries:
        options = _rate(size, keys=1) | contender.options | {"tasks": tasks}
        try:
            tried[tasks] = (await _ask(url, contender, "rate", options))["per_s"]
        except (Skipped, SideFailed) as error:
            contender.skipped = str(error)
            return
    contender.options = {**contender.options, "tasks": max(tried, key=lambda tasks: tried[tasks])}


async def _guarded(url: str, taking_part: Field, step: Step) -> None:
    """A peer that fails is told as such and left out from then on; the others may not fail."""
    contender = step.contender
    if contender.skipped is not None:
        return
    try:
        told = await _ask(url, contender, step.act, {**step.options, **contender.options})
    except (Skipped, SideFailed) as error:
        if contender not in taking_part.peers:
            raise
        contender.skipped = str(error)
        return
    contender.version = told.pop("version", contender.version)
    contender.settings = told.pop("settings", contender.settings)
    contender.note(**{f"{step.figure}.{name}": value for name, value in told.items()})


async def _ask(url: str, contender: Contender, act: str, options: Mapping[str, Any]) -> dict[str, Any]:
    await settle(url)
    return await ask(contender.module, act, url, LIMIT_S, program=PROGRAM, **options)


# ---- one round ---------------------------------------------------------------------------------


def _steps(taking_part: Field, size: Size) -> list[Step]:
    ours, incrby = taking_part.ours, taking_part.incrby
    steps = []
    for keys in (1, 1_000):
        steps += [
            Step(each, f"bucket_{keys}", "rate", _rate(size, keys=keys))
            for each in (incrby, *taking_part.peers)
        ]
        for plan in PLANS:
            steps.append(Step(ours, f"{plan}_{keys}", "rate", _rate(size, keys=keys) | {"plan": plan}))
        for plan in ("bucket", "pair"):
            steps += _floods(taking_part.script, size, plan, keys)
    for plan in ("bucket", "pair"):
        shape = {"plan": plan, "keys": 1, "tasks": size.tasks, "warm_s": size.warm_s}
        steps.append(Step(ours, f"herd_{plan}", "herd", shape | {"herds": size.herds}))
        steps.append(Step(ours, f"serial_{plan}", "serial", shape | {"count": size.serial}))
        for count in size.tenants:
            options = {"plan": plan, "keys": count, "sample": min(count, size.sample), "for_s": size.for_s}
            steps.append(Step(taking_part.script, f"flat_{plan}_{count}", "flood", options | {"batch": 1}))
    steps.append(Step(incrby, "serial", "serial", {"keys": 1, "count": size.serial}))
    return steps


def _cluster_steps(ours: Contender, size: Size) -> list[Step]:
    return [
        Step(ours, f"cluster_{plan}_{keys}", "rate", _rate(size, keys=keys) | {"plan": plan})
        for keys in (1, 1_000)
        for plan in PLANS
    ]


def _rate(size: Size, *, keys: int) -> dict[str, Any]:
    return {"tasks": size.tasks, "keys": keys, "warm_s": size.warm_s, "for_s": size.for_s}


def _floods(script: Contender, size: Size, plan: str, keys: int) -> list[Step]:
    options = {"plan": plan, "keys": keys, "sample": keys, "for_s": size.for_s}
    batches = {"": BATCH // 2 if plan == "pair" else BATCH, "_single": 1}
    return [
        Step(script, f"{plan}_{keys}{name}", "flood", options | {"batch": batch})
        for name, batch in batches.items()
    ]


def _arrivals(ours: Contender, size: Size) -> Step:
    """At half of what was measured so far."""
    rate = ours.median("pair_1000.per_s") / 2
    return Step(ours, "open_loop", "arrive", _rate(size, keys=1_000) | {"plan": "pair", "rate": rate})
