"""Calls through the whole client: what they cost beside bare ones, and beside the same work glued by hand.

All sides call the same server (`bench.call_server`, a process of its own) in interleaved rounds, each from
one fresh process, 100 at once for 100 tenants. Every limit is so large that nothing is refused; a refusal
fails the run. Ours does all of it: token, one full admission (breaker, slot, two buckets) and its end in the
embedded Valkey, classification, the event of each attempt.

    call.bare      calls/s over those of bare aiohttp, without limits, retries or credentials
    call.httpx2    over the same work by hand (`bench.peers.glued`) on httpx2
    call.aiohttp   over the same on aiohttp
    call.added     calls that arrive evenly at 30 % of our throughput: the p99 of ours over that of bare ones

CPU is that of the calling process. It excludes Valkey and the API, which share the machine's cores.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bench.databases import servers
from bench.report import Row
from bench.sides import Contender, SideFailedError, SkippedError, ask, started
from bench.valkey import settle

PROGRAM = "bench.gate_child"
"""Measures any side that decides for the key of a number."""
LIMIT_S = 120.0
LOAD = 0.3
"""The rate of the open loop, as a share of our throughput."""


@dataclass(frozen=True, slots=True)
class Size:
    """The size of a round."""

    for_s: float
    warm_s: float
    tasks: int
    keys: int
    arrive_s: float


FULL = Size(3.0, 1.0, 100, 100, 5.0)
SMALL = Size(0.3, 0.2, 10, 10, 0.5)


async def run(*, rounds: int, quick: bool, peers: bool = True) -> list[Row]:
    """Measure all sides and return all rows."""
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
    """The servers on which all sides are measured."""

    redis_url: str
    size: Size
    api_url: str
    database_url: str

    async def measure(self, contender: Contender, act: str, **further: Any) -> None:
        """Measure *contender* and record the result as figures of *act*."""
        await settle(self.redis_url)
        size = self.size
        options: Mapping[str, Any] = {
            "tasks": size.tasks, "keys": size.keys, "warm_s": size.warm_s, "for_s": size.for_s,
            "api_url": self.api_url, "database_url": self.database_url,
            **contender.options, **further,
        }  # fmt: skip
        figures = await ask(contender.module, act, self.redis_url, LIMIT_S, program=PROGRAM, **options)
        contender.version = figures.pop("version", contender.version)
        contender.settings = figures.pop("settings", contender.settings)
        contender.note(**{f"{act}.{name}": value for name, value in figures.items()})


async def _rounds(field: _Field, contenders: Sequence[Contender], rounds: int) -> None:
    """Measure all contenders each round, in rotating order. A glued side that fails is skipped from then on."""
    for number in range(rounds):
        turn = number % len(contenders)
        for contender in [*contenders[turn:], *contenders[:turn]]:
            if contender.skipped is not None:
                continue
            try:
                await field.measure(contender, "rate")
            except (SkippedError, SideFailedError) as error:
                if not contender.name.startswith("glued"):
                    raise
                contender.skipped = str(error)


# ---- rows --------------------------------------------------------------------------------------


def _bare_row(ours: Contender, bare: Contender, glued: Sequence[Contender], rounds: int) -> Row:
    everyone = [ours, bare, *glued]
    present = [contender for contender in everyone if contender.skipped is None]
    return Row(
        bench="call.bare",
        ours=ours.median("rate.per_s"),
        unit="calls/s",
        n=rounds,
        limit=bare.median("rate.per_s"),
        goal={"ratio_limit": 0.5},
        aim={"ratio_limit": 0.65},
        more={
            "cpu_us": {contender.name: round(contender.median("rate.cpu_us"), 1) for contender in present},
            "versions": {contender.name: contender.version for contender in present if contender.version},
            "settings": {contender.name: dict(contender.settings) for contender in present},
            "skipped": {
                contender.name: contender.skipped for contender in everyone if contender.skipped is not None
            },
        },
    )


def _glued_rows(ours: Contender, glued: Sequence[Contender], rounds: int) -> list[Row]:
    """Return a row for each glued side. The goal is missed for a side that could not run."""
    goals = {"glued_httpx2": 4.0, "glued_aiohttp": 1.5}
    return [
        Row(
            bench=f"call.{contender.name.removeprefix('glued_')}",
            ours=ours.median("rate.per_s"),
            unit="calls/s",
            n=rounds,
            peers={} if contender.skipped is not None else {contender.name: contender.median("rate.per_s")},
            goal={"ratio_best_peer": goals[contender.name]},
        )
        for contender in glued
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
