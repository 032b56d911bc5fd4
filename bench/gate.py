"""Decisions of the gate: ours beside rate limiters for Python, and the limit of the server itself.

All sides use the same server (the embedded Valkey, its default settings, append-only file on) over the same
socket, each from one fresh process, in interleaved rounds; before each of them the server is emptied. It has
one core to itself and the sides have the others (not so on the cluster, which has three servers). Every
side's limits are so large that nothing is refused, and a refusal fails the run. Peers have the number of
concurrent tasks, of 10, 100 and 1,000, that is best for each; ours has 1,000.

    gate.bucket_1, _1000   one bucket, of one tenant or of 1,000: decisions of one process a second
    gate.full_1, _1000     breaker, quota, slot and two buckets admitted, over the best single bucket of a
                           peer; admissions end between the laps, outside of the measurement
    gate.pair_1, _1000     the same, and each ends at once: admission and end count as one decision
    gate.serial            one full admission after the other, over an INCRBY
    gate.herd, _bucket     1,000 requests at once: their p95 over the time that follows from throughput
    gate.open_loop         full admissions that arrive evenly at half of throughput: their p95
    gate.flat              the server's time in the script for one operation, by the number of tenants
    gate.cluster_*         the same throughputs on a cluster of three, on the same cores

The limit of the throughput rows is our script alone (`bench.limits.gate_script`), in batches as large as
ours. ``beside`` has it without batches, and INCRBY through redis-py, which decides nothing. The cost of a
network is not measured.
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
from bench.sides import Contender, SideFailedError, SkippedError, ask
from bench.valkey import pinned_cores, settle

PROGRAM = "bench.gate_child"
LIMIT_S = 120.0
BATCH = 128
"""Items of one call of ours under load."""
PLANS = ("bucket", "full", "pair")
"""The plans of our side; see bench.our_gate."""


@dataclass(frozen=True, slots=True)
class Size:
    """The size of a round."""

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
    """One measurement: the act of *contender*, and the name of its figures."""

    contender: Contender
    figure: str
    act: str
    options: Mapping[str, Any]


def contenders(*, peers: bool) -> Field:
    """Return all contenders."""
    strategies, clients = ("moving", "sliding", "fixed"), {"": "redispy", "_coredis": "coredis"}
    everyone = [
        *(
            Contender(
                f"limits_{variant}{name}", "bench.peers.limits_", {"strategy": variant, "client": client}
            )
            for name, client in clients.items()
            for variant in strategies
        ),
        *(
            Contender(f"throttled_{variant}", "bench.peers.throttled", {"using": variant})
            for variant in ("token_bucket", "gcra")
        ),
        *(
            Contender(f"pyrate_{variant}", "bench.peers.pyrate", {"bucket": variant})
            for variant in ("log", "state")
        ),
    ]
    return Field(
        ours=Contender("fairlead", "bench.our_gate"),
        script=Contender("script", "bench.limits.gate_script"),
        incrby=Contender("incrby", "bench.limits.incrby"),
        peers=everyone if peers else [],
    )


async def run(*, rounds: int, quick: bool, peers: bool = True) -> list[Row]:
    """Measure all sides and return all rows."""
    size, taking_part = SMALL if quick else FULL, contenders(peers=peers)
    with servers() as endpoints:
        url = endpoints.redis_url
        async with pinned_cores(url):
            await _single(url, taking_part, size, rounds)
    with cluster() as urls:
        for _ in range(rounds):
            for step in _cluster_steps(taking_part.ours, size):
                for url_of_primary in urls[1:]:
                    await settle(url_of_primary)
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
    """Choose the best number of tasks for *contender*, by one run of each on one key. This also warms caches."""
    rates = {}
    for tasks in size.tries:
        options = _rate(size, keys=1) | contender.options | {"tasks": tasks}
        try:
            rates[tasks] = (await _ask(url, contender, "rate", options))["per_s"]
        except (SkippedError, SideFailedError) as error:
            contender.skipped = str(error)
            return
    contender.options = {**contender.options, "tasks": max(rates, key=lambda tasks: rates[tasks])}


async def _guarded(url: str, taking_part: Field, step: Step) -> None:
    """Measure one step. A peer that fails is skipped from then on; a failure of the others is raised."""
    contender = step.contender
    if contender.skipped is not None:
        return
    try:
        figures = await _ask(url, contender, step.act, {**step.options, **contender.options})
    except (SkippedError, SideFailedError) as error:
        if contender not in taking_part.peers:
            raise
        contender.skipped = str(error)
        return
    contender.version = figures.pop("version", contender.version)
    contender.settings = figures.pop("settings", contender.settings)
    contender.note(**{f"{step.figure}.{name}": value for name, value in figures.items()})


async def _ask(url: str, contender: Contender, act: str, options: Mapping[str, Any]) -> dict[str, Any]:
    await settle(url)
    return await ask(contender.module, act, url, LIMIT_S, program=PROGRAM, **options)


# ---- one round ---------------------------------------------------------------------------------


def _steps(taking_part: Field, size: Size) -> list[Step]:
    ours, incrby = taking_part.ours, taking_part.incrby
    steps = []
    for keys in (1, 1_000):
        steps += [
            Step(contender, f"bucket_{keys}", "rate", _rate(size, keys=keys))
            for contender in (incrby, *taking_part.peers)
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
    """Return the open loop at half of the throughput measured so far."""
    rate = ours.median("pair_1000.per_s") / 2
    return Step(ours, "open_loop", "arrive", _rate(size, keys=1_000) | {"plan": "pair", "rate": rate})
