"""A Shopify that counts: REST calls and GraphQL points of each shop, as rude as the real one.

    async with ShopifyApi() as api:
        ...  # GET  {api.url}/{shop}/admin/api/rest.json
             # POST {api.url}/{shop}/admin/api/graphql.json, variables {"cost": 40, "actual": 31}
        assert api.ledger("my-shop")["rest"]["refused"] == 0

A query says itself what it is worth: *cost* is charged at first, *actual* in the end. Refusals look as
Shopify's do: 429 with Retry-After for REST, 200 with code THROTTLED for GraphQL.
Sources: shopify.dev docs/apps/build/apis/graphql-admin/rate-limits; docs/api/admin-rest/usage/rate-limits.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

from aiohttp import web

from fairlead.clock import Clock
from fairlead.testing.api.leaky import LeakyBucket
from fairlead.testing.clock import SystemClock


@dataclass(frozen=True, slots=True)
class ShopLimits:
    """What each shop may do: REST calls, and GraphQL points."""

    calls: float = 40
    calls_per_s: float = 2
    points: float = 1000
    points_per_s: float = 100


class _Shop:
    def __init__(self, limits: ShopLimits, clock: Clock) -> None:
        self.rest = LeakyBucket(limits.calls, limits.calls_per_s, clock.monotonic)
        self.graphql = LeakyBucket(limits.points, limits.points_per_s, clock.monotonic)


class ShopifyApi:
    """One running API on 127.0.0.1; every shop exists. *takes_s*: how long it thinks about a call."""

    def __init__(
        self, limits: ShopLimits | None = None, *, takes_s: float = 0.02, clock: Clock | None = None
    ) -> None:
        self._limits = limits or ShopLimits()
        self._takes_s = takes_s
        self._clock = clock or SystemClock()
        self._shops: dict[str, _Shop] = {}
        self.url = ""

    async def __aenter__(self) -> Self:
        app = web.Application()
        app.router.add_get("/{shop}/admin/api/rest.json", self._rest)
        app.router.add_post("/{shop}/admin/api/graphql.json", self._graphql)
        self._runner = web.AppRunner(app, access_log=None)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        host, port = self._runner.addresses[0][:2]
        self.url = f"http://{host}:{port}"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._runner.cleanup()

    def ledger(self, shop: str) -> Mapping[str, Mapping[str, float]]:
        """What came of the calls of *shop*: ``rest`` in calls, ``graphql`` in points."""
        found = self._shop(shop)
        return {"rest": found.rest.ledger(), "graphql": found.graphql.ledger()}

    def _shop(self, name: str) -> _Shop:
        if name not in self._shops:
            self._shops[name] = _Shop(self._limits, self._clock)
        return self._shops[name]

    async def _rest(self, request: web.Request) -> web.Response:
        bucket = self._shop(request.match_info["shop"]).rest
        allowed = bucket.take(1)
        headers = {"X-Shopify-Shop-Api-Call-Limit": f"{_used(bucket)}/{bucket.capacity:.0f}"}
        if not allowed:
            wait_s = (1 - bucket.level) / bucket.per_s
            return web.json_response(
                {"errors": "Exceeded 2 calls per second for api client."},
                status=429,
                headers=headers | {"Retry-After": f"{max(1.0, wait_s):.1f}"},
            )
        await asyncio.sleep(self._takes_s)
        return web.json_response({"shop": request.match_info["shop"]}, headers=headers)

    async def _graphql(self, request: web.Request) -> web.Response:
        bucket = self._shop(request.match_info["shop"]).graphql
        variables = (await request.json()).get("variables", {})
        cost = float(variables.get("cost", 10))
        actual = min(cost, float(variables.get("actual", cost)))
        if not bucket.take(cost):
            error = {"message": "Throttled", "extensions": {"code": "THROTTLED"}}
            return web.json_response({"errors": [error], "extensions": _cost(bucket, cost, None)})
        await asyncio.sleep(self._takes_s)
        bucket.refill()
        bucket.give_back(cost - actual)
        return web.json_response({"data": {}, "extensions": _cost(bucket, cost, actual)})


def _used(bucket: LeakyBucket) -> int:
    return math.ceil(bucket.capacity - bucket.level)


def _cost(bucket: LeakyBucket, requested: float, actual: float | None) -> dict[str, Any]:
    return {
        "cost": {
            "requestedQueryCost": requested,
            "actualQueryCost": actual,
            "throttleStatus": {
                "maximumAvailable": bucket.capacity,
                "currentlyAvailable": math.floor(bucket.level),
                "restoreRate": bucket.per_s,
            },
        }
    }
