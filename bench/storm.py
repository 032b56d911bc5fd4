"""An API loses nine tenths of its capacity for a while and has it back: do its callers let it recover (E38)?

Calls arrive in an open loop at 80 % of what the API can do; each has a deadline. One side calls through
fairlead, the other as programs often do: a timeout for each try, three retries with backoff, nothing else.
Two kinds of API:

    queues   what it cannot do at once stands in line inside it, also what nobody waits for any more
    sheds    what it cannot do at once gets a 429

    storm.amplification, storm.shed_amplification   requests that came while it was ill for each call, by the
                                                    API's own ledger
    storm.recovery, storm.shed_recovery             seconds from the end of the trigger until 95 % of the
                                                    calls do well again

*retries_only* is the other side; a recovery of null did not happen in the time that it was watched.
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
from fairlead.testing.api.process import ApiProcess

TENANT = "acme"
LOAD = 0.8
"""The share of what the API can do that is asked for."""
WORKERS = 10
LEFT = 0.1
GOOD, FOR_S = 0.95, 5
"""Recovered: this share of the calls of so many seconds in a row did well."""
SLIP_S = 0.1
"""Calls that this machine makes so late move all later ones: a burst of its own is no load of the API's."""
TRIES = 4
"""What the other side does: so many tries."""
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
"""Makes the call of this number; whether it did well."""


@dataclass(frozen=True, slots=True)
class Size:
    """How long it is well, ill, and watched afterwards. *open_s*: the first opening of the breaker. *per_s*:
    calls that the API can do. *try_s*, *patience_s*: how long a call waits that stands in line there, and one
    that is refused."""

    before_s: int
    trigger_s: int
    after_s: int
    open_s: float
    per_s: int = 200
    try_s: float = 2.0
    patience_s: float = 30.0

    def deadline_s(self, kind: str) -> float:
        """Of a call."""
        return self.try_s if kind == "queues" else self.patience_s


FULL = Size(10, 30, 90, 60.0)
SMALL = Size(3, 8, 16, 0.25, per_s=40, try_s=1.2, patience_s=12.0)
TINY = Size(1, 3, 6, 0.5, per_s=40, try_s=1.0, patience_s=8.0)


@dataclass
class Told:
    """What one side did: calls and good ones by the second in which they began, and what the API counted."""

    size: Size
    calls: Counter[int] = field(default_factory=Counter)
    good: Counter[int] = field(default_factory=Counter)
    requests: int = 0
    sent: int = 0
    """Calls of which the first request arrived meanwhile."""
    ill_s: tuple[float, float] = (0.0, 0.0)
    """When the trigger began and ended, as the API's clock has it."""
    slipped_s: float = 0.0
    """By how much this machine was late in all."""

    @property
    def amplification(self) -> float:
        """Requests that came while the API was ill, for each call that was sent first meanwhile."""
        return self.requests / max(1, self.sent)

    @property
    def recovery_s(self) -> int | None:
        """Seconds after the trigger; None: not in the time."""
        end = self.size.before_s + self.size.trigger_s
        for second in range(end, end + self.size.after_s - FOR_S + 1):
            if self.share(second, second + FOR_S) >= GOOD:
                return second - end
        return None

    def share(self, since: int, until: int) -> float:
        """Of the calls that began in these seconds, those that did well."""
        seconds = range(since, until)
        return sum(self.good[each] for each in seconds) / sum(self.calls[each] for each in seconds)


async def storm(api: ApiProcess, size: Size, call: CallIt) -> Told:
    """One storm; *call* gets numbers that the API sees as the parameter ``n``."""
    told, tasks = Told(size), set[asyncio.Task[None]]()
    rate = size.per_s * LOAD
    weather = {
        round(size.before_s * rate): _ill(api, told),
        round((size.before_s + size.trigger_s) * rate): _well(api, told),
    }

    async def one(number: int) -> None:
        second = int(number / rate)
        told.calls[second] += 1
        did_well = await call(number)
        told.good[second] += did_well

    began_s = time.monotonic()
    for number in range(round((size.before_s + size.trigger_s + size.after_s) * rate)):
        left_s = began_s + number / rate - time.monotonic()
        await asyncio.sleep(max(0.0, left_s))
        if left_s < -SLIP_S:
            began_s -= left_s
            told.slipped_s -= left_s
        for work in (one(number), *(weather.pop(each) for each in list(weather) if each == number)):
            task = asyncio.create_task(work)
            tasks.add(task)
            task.add_done_callback(tasks.discard)
    await asyncio.gather(*tasks)
    await _count(api, told)
    return told


async def _ill(api: ApiProcess, told: Told) -> None:
    await api.control("switch", capacity=LEFT)
    told.ill_s = (time.monotonic(), math.inf)


async def _well(api: ApiProcess, told: Told) -> None:
    told.ill_s = (told.ill_s[0], time.monotonic())
    await api.control("calm")


async def _count(api: ApiProcess, told: Told) -> None:
    """What arrived while it was ill."""
    arrivals = (await api.control("ledger", account=TENANT, arrivals=True))["arrivals"]
    began_s, ended_s = told.ill_s
    ill = [_number(one["target"]) for one in arrivals if began_s <= one["begun_s"] < ended_s]
    before = {_number(one["target"]) for one in arrivals if one["begun_s"] < began_s}
    told.requests, told.sent = len(ill), len(set(ill) - before)


def _number(target: str) -> int:
    return int(parse_qs(urlsplit(target).query)["n"][0])


# ---- the sides


@asynccontextmanager
async def through_fairlead(fl: Fairlead, size: Size, kind: str) -> AsyncIterator[CallIt]:
    """Through one connection, with a rate limit as the API's and an opening of the breaker as *size* has it
    (at full size the one that ships); all else as it ships: a call waits for its turn until its deadline."""
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
    """aiohttp, a timeout for each try, and exponential backoff with full jitter."""
    draw = Random(seed).uniform
    timeout = aiohttp.ClientTimeout(total=size.try_s)
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(timeout=timeout, connector=connector) as session:

        async def tried(number: int) -> bool:
            try:
                params = {"limit": 1, "n": number}
                async with session.get(f"{url}/{TENANT}/v1/charges", params=params) as answer:
                    await answer.read()
                    return answer.status == 200
            except (aiohttp.ClientError, TimeoutError):
                return False

        async def call(number: int) -> bool:
            for attempt in range(TRIES):
                if await tried(number):
                    return True
                if attempt + 1 < TRIES:
                    await asyncio.sleep(draw(0, 2.0**attempt))
            return False

        yield call


def house(folder: Path, api_url: str, environ: dict[str, str]) -> Fairlead:
    """A fairlead whose Stripe is *api_url*; *environ* names its stores."""
    file = folder / "fairlead.toml"
    file.write_text(
        SETTINGS.format(home=folder / "home", url=api_url, tenant=TENANT, prefix=f"storm-{token_hex(6)}")
    )
    return Fairlead(load({**environ, "FAIRLEAD_MASTER_KEY": "k1:" + "0123456789abcdef" * 4}, file))


def stripe(kind: str, size: Size) -> ApiProcess:
    """An API of this kind, with no limit besides."""
    most = {"workers": WORKERS} if kind == "queues" else {"concurrency": 2 * WORKERS}
    return ApiProcess("stripe", per_s=1e6, endpoint_per_s=1e6, takes_s=WORKERS / size.per_s, **most)


# ---- the benchmark


async def run(*, rounds: int, quick: bool) -> list[Row]:
    """All rows of one run; *rounds* plays no part: it is as long as it says."""
    size = TINY if quick else FULL
    storms = [side(kind, size) for kind in KINDS for side in (_ours, _other)]
    told = await asyncio.gather(*storms) if quick else [await each for each in storms]
    return [row for place, kind in enumerate(KINDS) for row in _rows(kind, *told[2 * place : 2 * place + 2])]


async def _ours(kind: str, size: Size) -> Told:
    with servers() as endpoints, tempfile.TemporaryDirectory(prefix="fl-storm-", dir="/tmp") as folder:
        async with fresh_database(endpoints.database_url, "storm") as url, stripe(kind, size) as api:
            await Migrator(DatabaseSettings(dsn=url)).apply()
            environ = {"DATABASE_URL": url, "REDIS_URL": endpoints.redis_url}
            async with (
                house(Path(folder), api.url, environ) as fl,
                through_fairlead(fl, size, kind) as call,
            ):
                return await storm(api, size, call)


async def _other(kind: str, size: Size) -> Told:
    async with stripe(kind, size) as api, with_retries_only(api.url, size, seed=1) as call:
        return await storm(api, size, call)


def _rows(kind: str, ours: Told, other: Told) -> list[Row]:
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
