"""An API loses nine tenths of its capacity for a while and has it back: do its callers let it recover?

Calls arrive in an open loop at 80 % of what the API can do; each has a deadline. One side calls through
fairlead, the other as programs often do: a timeout for each try, three retries with backoff, nothing else.
Two kinds of API:

    queues   excess requests wait inside it, even after their callers gave up
    sheds    excess requests receive a 429

    storm.amplification, storm.shed_amplification   requests for each call during the trigger, by the API's
                                                    own ledger
    storm.recovery, storm.shed_recovery             seconds from the end of the trigger until 95 % of the
                                                    calls succeed again

*retries_only* is the other side. A recovery of null did not happen while the API was watched. Spec: E38.
"""

from __future__ import annotations

import asyncio
import math
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from secrets import token_hex
from urllib.parse import parse_qs, urlsplit

import aiohttp

from bench.databases import fresh_database, servers
from bench.report import Row
from fairlead import Fairlead
from fairlead.adapters.postgres.connection_setup import DatabaseSettings
from fairlead.adapters.postgres.migrate import Migrator
from fairlead.assembly.config import load
from fairlead.errors import FairleadError
from fairlead.testing.api import ApiProcess

TENANT = "acme"
LOAD = 0.8
"""The rate of calls, as a share of the API's capacity."""
WORKERS = 10
REMAINING_CAPACITY = 0.1
GOOD, FOR_S = 0.95, 5
"""Recovered: this share of the calls succeeded, for this many seconds in a row."""
SLIP_S = 0.1
"""A call that this machine starts later than this delays all later ones, so that no burst follows."""
TRIES = 4
"""Attempts of the other side for each call."""
MOST_AMPLIFIED, MOST_RECOVERY_S = 1.2, 60.0
KINDS = ("queues", "sheds")

SETTINGS = """
home = "{home}"
redis.prefix = "{prefix}"
http.allow_private_addresses = true

[providers.stripe.overlay]
allow_http = true
apis.rest.url = "{url}/{tenant}/v1"
"""

CallIt = Callable[[int], Awaitable[bool]]
"""Makes the call of this number and returns whether it succeeded."""


@dataclass(frozen=True, slots=True)
class Size:
    """The phases of a storm, and the capacity of the API.

    Attributes:
        before_s, trigger_s, after_s: Seconds before, during and after the loss of capacity.
        open_s: The first opening of the breaker.
        per_s: Calls per second that the API can serve.
        try_s, patience_s: The deadline of a call to an API that queues, and to one that sheds.
    """

    before_s: int
    trigger_s: int
    after_s: int
    open_s: float
    per_s: int = 200
    try_s: float = 2.0
    patience_s: float = 30.0

    def deadline_s(self, kind: str) -> float:
        """Return the deadline of a call."""
        return self.try_s if kind == "queues" else self.patience_s


FULL = Size(10, 30, 90, 60.0)
SMALL = Size(3, 8, 16, 0.25, per_s=40, try_s=1.2, patience_s=12.0)
TINY = Size(1, 3, 6, 0.5, per_s=40, try_s=1.0, patience_s=8.0)


@dataclass
class StormResult:
    """The result of one side: calls and successes by the second of their start, and the API's counts."""

    size: Size
    calls: Counter[int] = field(default_factory=Counter)
    good: Counter[int] = field(default_factory=Counter)
    requests: int = 0
    sent: int = 0
    """Calls with a first request that arrived during the trigger."""
    ill_mono: tuple[float, float] = (0.0, 0.0)
    """Start and end of the trigger, on the monotonic clock."""
    slipped_s: float = 0.0
    """Seconds by which this machine delayed calls."""

    @property
    def amplification(self) -> float:
        """Requests during the trigger, for each call that was first sent during it."""
        return self.requests / max(1, self.sent)

    @property
    def recovery_s(self) -> int | None:
        """Seconds after the trigger; None if the calls did not recover in time."""
        end = self.size.before_s + self.size.trigger_s
        for second in range(end, end + self.size.after_s - FOR_S + 1):
            if self.share(second, second + FOR_S) >= GOOD:
                return second - end
        return None

    def share(self, since: int, until: int) -> float:
        """Return the share of successes among the calls that started in these seconds."""
        seconds = range(since, until)
        return sum(self.good[second] for second in seconds) / sum(self.calls[second] for second in seconds)


async def storm(api: ApiProcess, size: Size, call: CallIt) -> StormResult:
    """Run one storm. *call* receives numbers, which the API sees as the parameter ``n``."""
    result, tasks = StormResult(size), set[asyncio.Task[None]]()
    rate = size.per_s * LOAD
    weather = {
        round(size.before_s * rate): _ill(api, result),
        round((size.before_s + size.trigger_s) * rate): _well(api, result),
    }

    async def call_once(number: int) -> None:
        second = int(number / rate)
        result.calls[second] += 1
        did_well = await call(number)
        result.good[second] += did_well

    start_mono = time.monotonic()
    for number in range(round((size.before_s + size.trigger_s + size.after_s) * rate)):
        left_s = start_mono + number / rate - time.monotonic()
        await asyncio.sleep(max(0.0, left_s))
        if left_s < -SLIP_S:
            start_mono -= left_s
            result.slipped_s -= left_s
        for work in (call_once(number), *(weather.pop(at) for at in list(weather) if at == number)):
            task = asyncio.create_task(work)
            tasks.add(task)
            task.add_done_callback(tasks.discard)
    await asyncio.gather(*tasks)
    await _count(api, result)
    return result


async def _ill(api: ApiProcess, result: StormResult) -> None:
    await api.control("switch", capacity=REMAINING_CAPACITY)
    result.ill_mono = (time.monotonic(), math.inf)


async def _well(api: ApiProcess, result: StormResult) -> None:
    result.ill_mono = (result.ill_mono[0], time.monotonic())
    await api.control("calm")


async def _count(api: ApiProcess, result: StormResult) -> None:
    """Count the requests that arrived during the trigger."""
    arrivals = (await api.control("ledger", account=TENANT, arrivals=True))["arrivals"]
    start_mono, end_mono = result.ill_mono
    ill = [
        _number(arrival["target"]) for arrival in arrivals if start_mono <= arrival["begun_mono"] < end_mono
    ]
    earlier = {_number(arrival["target"]) for arrival in arrivals if arrival["begun_mono"] < start_mono}
    result.requests, result.sent = len(ill), len(set(ill) - earlier)


def _number(target: str) -> int:
    return int(parse_qs(urlsplit(target).query)["n"][0])


# ---- the sides


@asynccontextmanager
async def through_fairlead(fl: Fairlead, size: Size, kind: str) -> AsyncIterator[CallIt]:
    """Yield a function that calls through one connection with the API's rate limit.

    The breaker opens for as long as *size* says, by default at full size. All other settings are defaults.
    """
    rate = {"requests": {"capacity": float(size.per_s), "per_s": float(size.per_s)}}
    settings = {"calls": rate, "breaker_open_s": size.open_s}
    await fl.connections.upsert(TENANT, "stripe", api_key="sk_test_1", settings=settings)
    deadline_s = size.deadline_s(kind)
    async with fl.client(TENANT, "stripe") as client:

        async def call(number: int) -> bool:
            try:
                params = {"limit": 1, "n": number}
                await client.get("/charges", params=params, deadline_s=deadline_s)
            except FairleadError:
                return False
            return True

        yield call


@asynccontextmanager
async def with_retries_only(url: str, size: Size, seed: int) -> AsyncIterator[CallIt]:
    """Yield a function that calls through aiohttp, with a timeout and exponential backoff with full jitter."""
    draw = Random(seed).uniform
    timeout = aiohttp.ClientTimeout(total=size.try_s)
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(timeout=timeout, connector=connector) as session:

        async def try_once(number: int) -> bool:
            try:
                params = {"limit": 1, "n": number}
                async with session.get(f"{url}/{TENANT}/v1/charges", params=params) as answer:
                    await answer.read()
                    return answer.status == 200
            except (aiohttp.ClientError, TimeoutError):
                return False

        async def call(number: int) -> bool:
            for attempt in range(TRIES):
                if await try_once(number):
                    return True
                if attempt + 1 < TRIES:
                    await asyncio.sleep(draw(0, 2.0**attempt))
            return False

        yield call


def house(folder: Path, api_url: str, environ: dict[str, str]) -> Fairlead:
    """Return a fairlead with Stripe at *api_url*. *environ* names its stores."""
    file = folder / "fairlead.toml"
    file.write_text(
        SETTINGS.format(home=folder / "home", url=api_url, tenant=TENANT, prefix=f"storm-{token_hex(6)}")
    )
    return Fairlead(load({**environ, "FAIRLEAD_MASTER_KEY": "k1:" + "0123456789abcdef" * 4}, file))


def stripe(kind: str, size: Size) -> ApiProcess:
    """Return an API of this kind, without further limits."""
    most = {"workers": WORKERS} if kind == "queues" else {"concurrency": 2 * WORKERS}
    return ApiProcess("stripe", per_s=1e6, endpoint_per_s=1e6, takes_s=WORKERS / size.per_s, **most)


# ---- the benchmark


async def run(*, rounds: int, quick: bool) -> list[Row]:
    """Return all rows of one run. *rounds* is ignored."""
    size = TINY if quick else FULL
    storms = [side(kind, size) for kind in KINDS for side in (_ours, _other)]
    results = await asyncio.gather(*storms) if quick else [await side for side in storms]
    return [
        row for index, kind in enumerate(KINDS) for row in _rows(kind, *results[2 * index : 2 * index + 2])
    ]


async def _ours(kind: str, size: Size) -> StormResult:
    with servers() as endpoints, tempfile.TemporaryDirectory(prefix="fl-storm-", dir="/tmp") as folder:
        async with fresh_database(endpoints.database_url, "storm") as url, stripe(kind, size) as api:
            await Migrator(DatabaseSettings(dsn=url)).apply()
            environ = {"DATABASE_URL": url, "REDIS_URL": endpoints.redis_url}
            async with (
                house(Path(folder), api.url, environ) as fl,
                through_fairlead(fl, size, kind) as call,
            ):
                return await storm(api, size, call)


async def _other(kind: str, size: Size) -> StormResult:
    async with stripe(kind, size) as api, with_retries_only(api.url, size, seed=1) as call:
        return await storm(api, size, call)


def _rows(kind: str, ours: StormResult, other: StormResult) -> list[Row]:
    prefix = "storm." if kind == "queues" else "storm.shed_"
    size = ours.size
    times = {"trigger_s": size.trigger_s, "watched_s": size.after_s, "slipped_s": round(ours.slipped_s, 1)}
    calls = {"calls": ours.sent, "requests": ours.requests}
    recovery_s = ours.recovery_s
    return [
        Row(f"{prefix}amplification", ours.amplification, "requests/call", ours.sent,
            goal={"ours": MOST_AMPLIFIED}, at_most=True,
            more={**calls, "retries_only": round(other.amplification, 3)}),
        Row(f"{prefix}recovery", float("inf") if recovery_s is None else recovery_s, "s", 1,
            goal={"ours": MOST_RECOVERY_S}, at_most=True,
            more={**times, "retries_only": other.recovery_s}),
    ]  # fmt: skip
