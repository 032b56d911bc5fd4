"""The same work by hand: what a careful team assembles from good libraries around its HTTP client.

A token read from Redis, two rate limits of `limits` and a semaphore in Redis, retries by tenacity, a breaker
by purgatory. ``options["client"]`` is httpx2 or aiohttp. Each part is the cheapest that does it: fixed
windows, a semaphore of two round trips, a breaker in the process (ours is shared by all of them).
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any

import aiohttp
import httpx2
from limits import RateLimitItemPerSecond
from limits.aio.storage import RedisStorage
from limits.aio.strategies import FixedWindowRateLimiter
from purgatory import AsyncCircuitBreakerFactory
from redis.asyncio import Redis
from tenacity import AsyncRetrying, retry_if_exception_type, stop_after_attempt, wait_random_exponential

from bench.gate_sides import PLENTY, Decide, must

PACKAGE = None
SETTINGS: Mapping[str, Any] = {
    "parts": "redis-py, limits (fixed window), a semaphore in Lua, tenacity, purgatory",
    "connections": "as many as tasks, to Redis and to the API",
}
TRANSIENT = frozenset({429, 500, 502, 503, 504})
SLOTS = 1_000
LEASE_S = 60.0
ACQUIRE = Path(__file__).with_name("semaphore.lua").read_text()

Send = Callable[[str], Awaitable[tuple[int, Any]]]
"""Sends a request with a token and returns the status and the JSON."""


class TransientStatusError(Exception):
    """A response that a retry may improve."""


@asynccontextmanager
async def opened(url: str, options: Mapping[str, Any]) -> AsyncIterator[Decide]:
    """Connect all parts, store a token for each key, and yield a function that calls."""
    redis = Redis.from_url(url, max_connections=options["tasks"])
    scheme, address = url.split("://")
    kind = {"unix": "redis+unix"}.get(scheme, scheme)
    storage = RedisStorage(
        f"async+{kind}://{address}", implementation="redispy", max_connections=options["tasks"]
    )
    for number in range(options["keys"]):
        await redis.set(f"token:tenant-{number}", f"key-{number}")
    async with _CLIENTS[options["client"]](f"{options['api_url']}/v1/orders.json", options["tasks"]) as send:
        yield _Glue(redis, storage, send, options["client"]).decide
    await redis.aclose()


class _Glue:
    """One caller for all tenants."""

    def __init__(self, redis: Any, storage: RedisStorage, send: Send, name: str) -> None:
        self._redis = redis
        self._limiter = FixedWindowRateLimiter(storage)
        self._limits = [RateLimitItemPerSecond(PLENTY, namespace=name) for name in ("requests", "points")]
        self._acquire = redis.register_script(ACQUIRE)
        self._breakers = AsyncCircuitBreakerFactory(default_threshold=10, default_ttl=60)
        self._numbers = count()
        self._send = send
        self._name = name

    async def decide(self, number: int) -> float:
        tenant = f"tenant-{number}"
        async for attempt in AsyncRetrying(
            stop=stop_after_attempt(4),
            wait=wait_random_exponential(max=30),
            retry=retry_if_exception_type(TransientStatusError),
            reraise=True,
        ):
            with attempt:
                body = await self._once(tenant)
        answered = time.perf_counter()
        must(len(body["orders"]) == 3, self._name)
        return answered

    async def _once(self, tenant: str) -> Any:
        async with await self._breakers.get_breaker(tenant):
            token = (await self._redis.get(f"token:{tenant}")).decode()
            for limit in self._limits:
                must(await self._limiter.hit(limit, tenant), "limits")
            async with self._slot(tenant):
                status, body = await self._send(token)
            if status in TRANSIENT:
                raise TransientStatusError(status)
        must(status == 200, self._name)
        return body

    @asynccontextmanager
    async def _slot(self, tenant: str) -> AsyncIterator[None]:
        key, mine, now = f"slots:{tenant}", next(self._numbers), time.time()
        acquired = await self._acquire(keys=[key], args=[now, SLOTS, now + LEASE_S, mine])
        must(bool(acquired), "the semaphore")
        try:
            yield
        finally:
            await self._redis.zrem(key, mine)


@asynccontextmanager
async def _aiohttp(address: str, tasks: int) -> AsyncIterator[Send]:
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=tasks)) as session:

        async def send(token: str) -> tuple[int, Any]:
            headers = {"Authorization": f"Bearer {token}"}
            async with session.get(address, params={"limit": 50}, headers=headers) as response:
                return response.status, await response.json()

        yield send


@asynccontextmanager
async def _httpx2(address: str, tasks: int) -> AsyncIterator[Send]:
    limits = httpx2.Limits(max_connections=tasks, max_keepalive_connections=tasks)
    async with httpx2.AsyncClient(limits=limits) as client:

        async def send(token: str) -> tuple[int, Any]:
            headers = {"Authorization": f"Bearer {token}"}
            response = await client.get(address, params={"limit": 50}, headers=headers)
            return response.status_code, response.json()

        yield send


_CLIENTS = {"aiohttp": _aiohttp, "httpx2": _httpx2}
