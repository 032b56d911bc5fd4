"""How much of a limit is used without exceeding it: eight processes against a fake Shopify.

One shop: 2 REST calls a second (40 at once) and 100 points a second (1,000 at once). All processes have more
work than that all the time: half of their tasks call REST, half send queries that cost 10 to 50 points, of
which some are refunded. The gate starts with 50 points a second, the usual first guess, and adjusts to the
responses. The figures come from the API's own ledger, after the first 20 s.

    utilisation.throttles   calls that the API refused, from the first one on
    utilisation.rest        units that were refilled while the API's bucket was full: share of all
    utilisation.graphql     the same of points
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Mapping
from random import Random
from typing import Any

import aiohttp

from bench.databases import servers
from bench.report import Row
from fairlead._core.secret import Secret
from fairlead.adapters.local.system import SystemClock, SystemIds, draw
from fairlead.assembly.gate import GateCore, GateSettings
from fairlead.engine.limits.admission import AdmissionRequest
from fairlead.engine.limits.observations import observations_for
from fairlead.policy.limits.breaker import DestinationHealth
from fairlead.policy.limits.feedback.dialect import parse_limits
from fairlead.policy.limits.feedback.raw_response import RawResponse
from fairlead.policy.limits.limit import BucketLimit, Domain, Plan
from fairlead.testing.api import ShopifyApi, ShopLimits

PROCESSES = 8
TASKS = 6
SHOP = "my-shop"
LIMITS = ShopLimits()
WARM_S = 20.0
DOMAIN = Domain(("tenant", "acme"))
REST = Plan(DOMAIN, buckets=(BucketLimit("shopify|my-shop|requests", 40, 2, name="requests"),))
GRAPHQL = Plan(DOMAIN, buckets=(BucketLimit("shopify|my-shop|points", 1000, 50, name="points"),))

Ledger = Mapping[str, Mapping[str, float]]


async def run(*, rounds: int, quick: bool) -> list[Row]:
    """Return all rows of one run. *rounds* is ignored."""
    seconds = 6.0 if quick else 120.0
    warm_s = 3.0 if quick else WARM_S
    async with ShopifyApi(LIMITS) as api:
        with servers() as endpoints:
            at_start, at_end, reports = await _measured(api, endpoints.redis_url, warm_s, seconds)
    refused = sum(at_end[kind]["refused"] for kind in at_end)
    calls = sum(report["calls"] for report in reports)
    return [
        Row("utilisation.throttles", refused, "calls", int(calls), goal={"ours": 0.0}, at_most=True,
            more={"3/n": round(3 / max(1, calls), 6), "seconds": seconds, "processes": PROCESSES}),
        _row("rest", at_start, at_end, LIMITS.calls_per_s, seconds - warm_s),
        _row("graphql", at_start, at_end, LIMITS.points_per_s, seconds - warm_s),
    ]  # fmt: skip


def _row(kind: str, at_start: Ledger, at_end: Ledger, per_s: float, seconds: float) -> Row:
    wasted = at_end[kind]["wasted"] - at_start[kind]["wasted"]
    used = at_end[kind]["units"] - at_start[kind]["units"]
    came_back = per_s * seconds
    more = {
        "used": round(used / came_back, 4),
        "calls": at_end[kind]["served"],
        "level": at_end[kind]["level"],
    }
    name = f"utilisation.{kind}"
    return Row(name, wasted / came_back * 100, "% wasted", 1, goal={"ours": 2.0}, at_most=True, more=more)


async def _measured(
    api: ShopifyApi, url: str, warm_s: float, seconds: float
) -> tuple[Ledger, Ledger, list[dict[str, Any]]]:
    command = (sys.executable, "-m", "bench.utilisation", url, api.url, str(seconds))
    children = [
        await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
        for _ in range(PROCESSES)
    ]
    while api.limits(SHOP)["rest"]["served"] == 0:
        await asyncio.sleep(0.05)
    await asyncio.sleep(warm_s)
    at_start = api.limits(SHOP)
    await asyncio.sleep(seconds - warm_s)
    at_end = api.limits(SHOP)
    outs = await asyncio.gather(*(child.communicate() for child in children))
    if any(child.returncode for child in children):
        raise RuntimeError("a process failed; its error is above")
    return at_start, at_end, [json.loads(out) for out, _ in outs]


class _Caller:
    """One process, which makes as many calls as are admitted until *stop_at*."""

    def __init__(self, gate: GateCore, session: aiohttp.ClientSession, api_url: str, stop_at: float) -> None:
        self.gate, self.session, self.url = gate, session, f"{api_url}/{SHOP}/admin/api"
        self.stop_at = stop_at
        self.chance = Random(os.getpid())
        self.calls = 0

    async def loop(self, act: Any) -> None:
        clock = asyncio.get_running_loop().time
        while clock() < self.stop_at:
            await act()
            self.calls += 1

    async def rest(self) -> None:
        async with self.gate.admitter.enter(self._entry(REST)) as admission:
            async with self.session.get(f"{self.url}/rest.json") as response:
                reply = await _reply(response)
            observation = observations_for(REST, parse_limits("shopify", reply, now_epoch_s=None))
            admission.record_health(DestinationHealth.HEALTHY, observation.observed)
            admission.actual_cost.update(observation.actual)

    async def graphql(self) -> None:
        cost = self.chance.randint(10, 50)
        variables = {"cost": cost, "actual": round(cost * self.chance.uniform(0.5, 1))}
        entry = self._entry(GRAPHQL, cost)
        async with self.gate.admitter.enter(entry) as admission:
            body = {"query": "{ shop }", "variables": variables}
            async with self.session.post(f"{self.url}/graphql.json", json=body) as response:
                reply = await _reply(response)
            observation = observations_for(GRAPHQL, parse_limits("shopify", reply, now_epoch_s=None))
            admission.record_health(DestinationHealth.HEALTHY, observation.observed)
            admission.actual_cost.update(observation.actual)

    @staticmethod
    def _entry(plan: Plan, *costs: float) -> AdmissionRequest:
        return AdmissionRequest(plan, "acme", "shopify", costs=costs, wait_s=300)


async def _reply(response: aiohttp.ClientResponse) -> RawResponse:
    headers = {name.lower(): response.headers.getall(name) for name in response.headers}
    return RawResponse(response.status, headers, await response.json())


async def _child(url: str, api_url: str, seconds: float) -> None:
    gate = GateCore(
        Secret(url), process=str(os.getpid()), clock=SystemClock(), draw=draw, ids=SystemIds(),
        emit=lambda event: None, settings=GateSettings(new=True),
    )  # fmt: skip
    await gate.open()
    services = [asyncio.create_task(service.run()) for service in gate.services()]
    async with aiohttp.ClientSession() as session:
        caller = _Caller(gate, session, api_url, asyncio.get_running_loop().time() + seconds + 1)
        loops = [
            asyncio.create_task(caller.loop(act))
            for act in (caller.rest, caller.graphql)
            for _ in range(TASKS)
        ]
        await asyncio.wait(loops, timeout=seconds + 1)
        for task in (*loops, *services):  # a call that still waits releases its reservation
            task.cancel()
        done = await asyncio.gather(*loops, *services, return_exceptions=True)
    await gate.close()
    for error in done:
        if isinstance(error, Exception):
            raise error
    print(json.dumps({"calls": caller.calls}))


if __name__ == "__main__":
    asyncio.run(_child(sys.argv[1], sys.argv[2], float(sys.argv[3])))
