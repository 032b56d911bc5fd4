"""How much of a limit is used without ever passing it: eight processes against a Shopify that counts.

One shop: 2 REST calls a second (40 at once) and 100 points a second (1,000 at once). All processes have more
work than that all the time: half of their tasks call REST, half send queries that cost 10 to 50 points, of
which some are given back. The gate begins with 50 points a second, the usual first guess, and learns the rest
from answers. Judged by the API's own ledger, over the time after the first 20 s.

    utilisation.throttles   calls that the API refused, from the first one on
    utilisation.rest        units that came back in vain, while the API's bucket was full: share of all
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
from fairlead.engine.limits.admitter import AdmissionRequest
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
    """All rows of one run; *rounds* plays no part: it is as long as it says."""
    seconds = 6.0 if quick else 120.0
    warm_s = 3.0 if quick else WARM_S
    async with ShopifyApi(LIMITS) as api:
        with servers() as endpoints:
            before, after, told = await _measured(api, endpoints.redis_url, warm_s, seconds)
    refused = sum(after[kind]["refused"] for kind in after)
    calls = sum(one["calls"] for one in told)
    return [
        Row("utilisation.throttles", refused, "calls", int(calls), goal={"ours": 0.0}, at_most=True,
            more={"3/n": round(3 / max(1, calls), 6), "seconds": seconds, "processes": PROCESSES}),
        _row("rest", before, after, LIMITS.calls_per_s, seconds - warm_s),
        _row("graphql", before, after, LIMITS.points_per_s, seconds - warm_s),
    ]  # fmt: skip


def _row(kind: str, before: Ledger, after: Ledger, per_s: float, seconds: float) -> Row:
    wasted = after[kind]["wasted"] - before[kind]["wasted"]
    used = after[kind]["units"] - before[kind]["units"]
    came_back = per_s * seconds
    more = {"used": round(used / came_back, 4), "calls": after[kind]["served"], "level": after[kind]["level"]}
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
    before = api.limits(SHOP)
    await asyncio.sleep(seconds - warm_s)
    after = api.limits(SHOP)
    outs = await asyncio.gather(*(child.communicate() for child in children))
    if any(child.returncode for child in children):
        raise RuntimeError("a process failed; its error stands above")
    return before, after, [json.loads(out) for out, _ in outs]


class _Caller:
    """One process: as many calls as it is let make, until told to stop."""

    def __init__(self, house: GateCore, session: aiohttp.ClientSession, api_url: str, stop_s: float) -> None:
        self.house, self.session, self.url = house, session, f"{api_url}/{SHOP}/admin/api"
        self.stop_s = stop_s
        self.chance = Random(os.getpid())
        self.calls = 0

    async def loop(self, act: Any) -> None:
        clock = asyncio.get_running_loop().time
        while clock() < self.stop_s:
            await act()
            self.calls += 1

    async def rest(self) -> None:
        async with self.house.admissions.enter(self._entry(REST)) as admission:
            async with self.session.get(f"{self.url}/rest.json") as response:
                reply = await _reply(response)
            told = observations_for(REST, parse_limits("shopify", reply, now_epoch_s=None))
            admission.record_health(DestinationHealth.HEALTHY, told.observed)
            admission.actual_cost.update(told.actual)

    async def graphql(self) -> None:
        cost = self.chance.randint(10, 50)
        variables = {"cost": cost, "actual": round(cost * self.chance.uniform(0.5, 1))}
        entry = self._entry(GRAPHQL, cost)
        async with self.house.admissions.enter(entry) as admission:
            body = {"query": "{ shop }", "variables": variables}
            async with self.session.post(f"{self.url}/graphql.json", json=body) as response:
                reply = await _reply(response)
            told = observations_for(GRAPHQL, parse_limits("shopify", reply, now_epoch_s=None))
            admission.record_health(DestinationHealth.HEALTHY, told.observed)
            admission.actual_cost.update(told.actual)

    @staticmethod
    def _entry(plan: Plan, *costs: float) -> AdmissionRequest:
        return AdmissionRequest(plan, "acme", "shopify", costs=costs, wait_s=300)


async def _reply(response: aiohttp.ClientResponse) -> RawResponse:
    headers = {name.lower(): response.headers.getall(name) for name in response.headers}
    return RawResponse(response.status, headers, await response.json())


async def _child(url: str, api_url: str, seconds: float) -> None:
    house = GateCore(
        Secret(url), process=str(os.getpid()), clock=SystemClock(), draw=draw, ids=SystemIds(),
        emit=lambda event: None, settings=GateSettings(new=True),
    )  # fmt: skip
    await house.open()
    services = [asyncio.create_task(service.run()) for service in house.services()]
    async with aiohttp.ClientSession() as session:
        caller = _Caller(house, session, api_url, asyncio.get_running_loop().time() + seconds + 1)
        loops = [
            asyncio.create_task(caller.loop(act))
            for act in (caller.rest, caller.graphql)
            for _ in range(TASKS)
        ]
        await asyncio.wait(loops, timeout=seconds + 1)
        for one in (*loops, *services):  # who still waits for a turn gives it back
            one.cancel()
        done = await asyncio.gather(*loops, *services, return_exceptions=True)
    await house.close()
    for error in done:
        if isinstance(error, Exception):
            raise error
    print(json.dumps({"calls": caller.calls}))


if __name__ == "__main__":
    asyncio.run(_child(sys.argv[1], sys.argv[2], float(sys.argv[3])))
