"""Calls through the whole client: what they cost beside bare ones, and beside the same work glued by hand.

All sides call the same server (`bench.call_server`, a process of its own) in interleaved rounds, each from
one fresh process, 100 at once for 100 tenants. Every limit is so large that nothing is refused; a refusal
fails the run. Ours does all of it: token, one full admission (breaker, slot, two buckets) and its end in the
embedded Valkey, classification, the event of each attempt.

    call.bare      calls/s over those of bare aiohttp, which asks nobody and minds nothing
    call.httpx2    over the same work by hand (`bench.peers.glued`) on httpx2
    call.aiohttp   over the same on aiohttp
    call.added     calls that arrive evenly at 30 % of our throughput: the p99 of ours over that of bare ones

CPU is that of the calling process; what the Valkey of both uses beside it is not in it, though it shares the
machine's cores, as the API does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bench.databases import servers
from bench.report import Row
from bench.sides import Contender, SideFailed, Skipped, ask, started
from bench.valkey import settle

PROGRAM = "bench.gate_child"
"""It measures whatever is done for the key of a number."""
LIMIT_S = 120.0
LOAD = 0.3
"""Of our throughput, in the open loop."""


@dataclass(frozen=True, slots=True)
class Size:
    """How much a round does."""

    for_s: float
    warm_s: float
    tasks: int
    keys: int
    arrive_s: float


FULL = Size(3.0, 1.0, 100, 100, 5.0)
SMALL = Size(0.3, 0.2, 10, 10, 0.5)


async def run(*, rounds: int, quick: bool, peers: bool = True) -> list[Row]:
    """All rows."""
    size = SMALL if quick else FULL
    ours, bare = Contender("fairlead", "bench.our_call"), Contender("aiohttp", "bench.limits.bare_aiohttp")
    glued = [
        Contender(f"glued_{client}", "bench.peers.glued", {"client": client})
        for client in ("httpx2", "aiohttp")
        if peers
    ]
    async with started("api", "serve", "", program="bench.call_server") as server:
        api_url = (await server.line())["url"]
        with servers() as endpoints:
            field = _Field(endpoints.redis_url, size, api_url, endpoints.database_url)
            await _rounds(field, [ours, bare, *glued], rounds)
            for number in range(rounds):
                for contender in (ours, bare)[:: -1 if number % 2 else 1]:
                    rate = LOAD * ours.median("rate.per_s")
                    await field.measure(contender, "arrive", for_s=size.arrive_s, rate=rate)
    return [
        _bare_row(ours, bare, glued, rounds),
        *_glued_rows(ours, glued, rounds),
        _added(ours, bare, rounds),
    ]


@dataclass(frozen=True, slots=True)
class _Field:
    """Where everybody is measured."""

    redis_url: str
    size: Size
    api_url: str
    database_url: str

    async def measure(self, contender: Contender, act: str, **further: Any) -> None:
        """What *contender* does, noted as figures of *act*."""
        await settle(self.redis_url)
        size = self.size
        options: Mapping[str, Any] = {
            "tasks": size.tasks, "keys": size.keys, "warm_s": size.warm_s, "for_s": size.for_s,
            "api_url": self.api_url, "database_url": self.database_url,
            **contender.options, **further,
        }  # fmt: skip
        told = await ask(contender.module, act, self.redis_url, LIMIT_S, program=PROGRAM, **options)
        contender.version = told.pop("version", contender.version)
        contender.settings = told.pop("settings", contender.settings)
        contender.note(**{f"{act}.{name}": value for name, value in told.items()})


async def _rounds(field: _Field, contenders: Sequence[Contender], rounds: int) -> None:
    """Each begins a round in turn. What is glued and fails is left out from then on, and said."""
    for number in range(rounds):
        turn = number % len(contenders)
        for contender in [*contenders[turn:], *contenders[:turn]]:
            if contender.skipped is not None:
                continue
            try:
                await field.measure(contender, "rate")
            except (Skipped, SideFailed) as error:
                if not contender.name.startswith("glued"):
                    raise
                contender.skipped = str(error)


# ---- rows --------------------------------------------------------------------------------------


def _bare_row(ours: Contender, bare: Contender, glued: Sequence[Contender], rounds: int) -> Row:
    everyone = [ours, bare, *glued]
    present = [each for each in everyone if each.skipped is None]
    return Row(
        bench="call.bare",
        ours=ours.median("rate.per_s"),
        unit="calls/s",
        n=rounds,
        limit=bare.median("rate.per_s"),
        goal={"ratio_limit": 0.5},
        aim={"ratio_limit": 0.65},
        more={
            "cpu_us": {each.name: round(each.median("rate.cpu_us"), 1) for each in present},
            "versions": {each.name: each.version for each in present if each.version},
            "settings": {each.name: dict(each.settings) for each in present},
            "skipped": {each.name: each.skipped for each in everyone if each.skipped is not None},
        },
    )


def _glued_rows(ours: Contender, glued: Sequence[Contender], rounds: int) -> list[Row]:
    """One each; with a side that could not run, its goal is missed."""
    goals = {"glued_httpx2": 4.0, "glued_aiohttp": 1.5}
    return [
        Row(
            bench=f"call.{each.name.removeprefix('glued_')}",
            ours=ours.median("rate.per_s"),
            unit="calls/s",
            n=rounds,
            peers={} if each.skipped is not None else {each.name: each.median("rate.per_s")},
            goal={"ratio_best_peer": goals[each.name]},
        )
        for each in glued
    ]


def _added(ours: Contender, bare: Contender, rounds: int) -> Row:
    parts = ("p50_ms", "p95_ms", "p99_ms")
    added = {part: ours.median(f"arrive.{part}") - bare.median(f"arrive.{part}") for part in parts}
    return Row(
        bench="call.added",
        ours=added["p99_ms"],
        unit="ms",
        n=rounds,
        goal={"ours": 5.0},
        at_most=True,
        more={
            "rate": round(LOAD * ours.median("rate.per_s")),
            "added_ms": {part: round(value, 3) for part, value in added.items()},
            "ours_ms": {part: round(ours.median(f"arrive.{part}"), 3) for part in parts},
            "bare_ms": {part: round(bare.median(f"arrive.{part}"), 3) for part in parts},
        },
    )
