"""E39: thousands of calls through the client are cancelled at any moment (F1): neither pool nor slots leak.

The connections are few, and so are the slots. Afterwards every slot and connection can be had, and at no
time did an answer come to who had not asked for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any

import pytest

from fairlead.adapters.embedded import Endpoints
from fairlead.adapters.http.session import TransportSettings
from fairlead.adapters.postgres.session import DatabaseSettings
from fairlead.app.client import Response
from fairlead.engine.gate.admission import Admissions
from fairlead.engine.gate.keeper import Keeper
from fairlead.errors import FairleadError
from fairlead.testing.api.raw import RawConnection, RawServer
from tests.faults.support.calls import Callers, calling, echo, echoed, settings_of, taken
from tests.faults.support.report import Figures, sized

pytestmark = pytest.mark.slow

CANCELS = sized(600, 6000)
ABLATION_CANCELS = 100
TASKS, CONNECTIONS, SLOTS = 20, 10, 12
LONGEST_S = 0.08
PROBES = 30


async def _server(connection: RawConnection) -> None:
    while (request := await connection.request()) is not None:
        await asyncio.sleep(0.001)
        await echo(connection, request)


class _Churn:
    def __init__(self, callers: Callers, url: str, draw: Random) -> None:
        self.callers, self.url, self.draw = callers, url, draw
        self.cancelled = self.calls = self.mixed = 0
        self.failed: list[str] = []

    async def run(self, cancels: int) -> None:
        async def churn(number: int) -> None:
            step = 0
            while self.cancelled < cancels and len(self.failed) < cancels:
                await self._once(f"/{number}-{step}")
                step += 1

        await asyncio.gather(*(churn(number) for number in range(TASKS)))

    async def _once(self, path: str) -> None:
        body = self.draw.choice((None, b"x", bytes(300_000)))
        method = "GET" if body is None else "PUT"
        options: dict[str, Any] = {} if body is None else {"content": body}
        call = self.callers.call("acme", self.url + path, method, deadline_s=20.0, **options)
        task = asyncio.create_task(call)
        timer = asyncio.get_running_loop().call_later(self.draw.uniform(0.0, LONGEST_S), task.cancel)
        await asyncio.wait([task])
        timer.cancel()
        self.calls += 1
        if task.cancelled():
            self.cancelled += 1
        else:
            self._came(task.result(), path)

    def _came(self, came: Response | FairleadError, path: str) -> None:
        self.mixed += isinstance(came, Response) and not echoed(came, path)
        if isinstance(came, FairleadError):
            self.failed.append(repr(came)[:200])

    async def probes(self) -> int:
        """How many of some calls, all at once, do not get their answer."""
        paths = [f"/probe-{number}" for number in range(PROBES)]
        calls = (self.callers.call("acme", self.url + path, deadline_s=5.0) for path in paths)
        answers = await asyncio.gather(*calls)
        return sum(not echoed(came, path) for came, path in zip(answers, paths, strict=True))


@asynccontextmanager
async def _churn(
    servers: Endpoints, database: DatabaseSettings, folder: Path, draw: Random
) -> AsyncIterator[_Churn]:
    async with RawServer(_server) as server, calling(settings_of(servers, database, folder)) as callers:
        few = TransportSettings(max_connections=CONNECTIONS, max_per_host=CONNECTIONS, connect_timeout_s=20.0)
        callers.fl.runtime.wires.calls._settings = few
        await callers.connect("acme", concurrency_limit=SLOTS)
        yield _Churn(callers, server.url, draw)


async def _experiment(churn: _Churn, figures: Figures, cancels: int) -> None:
    await churn.run(cancels)
    figures.note(n=churn.calls, cancelled=churn.cancelled)
    figures.zero(mixed_answers=churn.mixed, failed=len(churn.failed))
    figures.zero(probes_failed=await churn.probes(), connections_taken=taken(churn.callers))
    figures.zero(slots_stuck=await churn.callers.stuck("acme", SLOTS))
    figures.holds(churn.cancelled >= cancels, "too few were cancelled")


async def test_E39_client_pool(
    servers: Endpoints, database_settings: DatabaseSettings, tmp_path: Path
) -> None:
    figures = Figures("E39")
    async with _churn(servers, database_settings, tmp_path, figures.draw) as churn:
        await _experiment(churn, figures, CANCELS)
    figures.conclude()


async def test_E39_ablation_the_cancelled_keep_their_slots(
    servers: Endpoints, database_settings: DatabaseSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a cancelled call still has to give back is not seen through."""
    figures = Figures("E39", ablation="not_seen_through")
    given, given_end = Keeper.through, Admissions.end

    def end(admissions: Admissions, inside: Any) -> None:
        task = asyncio.current_task()
        if task is None or not task.cancelling():
            given_end(admissions, inside)

    async def through(keeper: Keeper, ending: Awaitable[Any]) -> Any:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            asyncio.ensure_future(ending).cancel()
            return None
        return await given(keeper, ending)

    monkeypatch.setattr(Keeper, "through", through)
    monkeypatch.setattr(Admissions, "end", end)
    async with _churn(servers, database_settings, tmp_path, figures.draw) as churn:
        await churn.run(ABLATION_CANCELS)
        figures.note(n=churn.calls, cancelled=churn.cancelled)
        figures.zero(slots_stuck=await churn.callers.stuck("acme", SLOTS))
    figures.conclude()
