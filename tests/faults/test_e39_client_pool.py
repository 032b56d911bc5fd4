"""E39: thousands of calls are cancelled at any moment (F1): neither pool nor slots leak. The calls are made
through the client, and through the transports for other HTTP libraries.

The connections are few, and so are the slots. Afterwards every slot and connection can be had, and at no
time did an answer come to who had not asked for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import httpx
import httpx2
import pytest

import fairlead.httpx
import fairlead.httpx2
from fairlead.adapters.embedded import Endpoints
from fairlead.adapters.http.client_session import TransportSettings
from fairlead.adapters.postgres.connection_setup import DatabaseSettings
from fairlead.app.client.forwarding import ForwardedResponse
from fairlead.engine.limits.admitter import Admitter
from fairlead.engine.limits.lease_renewer import LeaseRenewer
from fairlead.errors import FairleadError
from fairlead.testing.api.raw import RawConnection, RawServer
from tests.faults.support.calls import PROVIDER, Callers, calling, echo, settings_of, slots_taken
from tests.faults.support.report import Figures, sized

pytestmark = pytest.mark.slow

CLIENTS = {"client": sized(600, 6000), "httpx": sized(200, 6000), "httpx2": sized(200, 6000)}
"""How the calls are made, and how many of them are cancelled."""
ABLATION_CANCELS = 100
TASKS, CONNECTIONS, SLOTS = 20, 10, 12
DEADLINE_S = 20.0
LONGEST_S = 0.08
PROBES = 30


async def _server(connection: RawConnection) -> None:
    while (request := await connection.request()) is not None:
        await asyncio.sleep(0.001)
        await echo(connection, request)


Ask = Callable[[str, str, bytes | None], Awaitable[bytes | FairleadError]]
"""Makes one call: its address, method and body; the body of its answer."""


@asynccontextmanager
async def _asking(callers: Callers, client_name: str) -> AsyncIterator[Ask]:
    if client_name == "client":
        yield partial(_ask_client, callers)
        return
    http_client: Any
    if client_name == "httpx":
        transport = fairlead.httpx.Transport(callers.fl, "acme", PROVIDER, deadline_s=DEADLINE_S)
        http_client = httpx.AsyncClient(transport=transport, trust_env=False)
    else:
        transport2 = fairlead.httpx2.Transport(callers.fl, "acme", PROVIDER, deadline_s=DEADLINE_S)
        http_client = httpx2.AsyncClient(transport=transport2, trust_env=False)
    async with http_client as client:
        yield partial(_ask_library, client)


async def _ask_client(callers: Callers, url: str, method: str, body: bytes | None) -> bytes | FairleadError:
    options: dict[str, Any] = {} if body is None else {"content": body}
    outcome = await callers.call("acme", url, method, deadline_s=DEADLINE_S, **options)
    return outcome if isinstance(outcome, FairleadError) else outcome.content


async def _ask_library(client: Any, url: str, method: str, body: bytes | None) -> bytes | FairleadError:
    try:
        content: bytes = (await client.request(method, url, content=body)).content
    except FairleadError as error:
        return error
    return content


class _Churn:
    def __init__(self, callers: Callers, ask: Ask, url: str, draw: Random) -> None:
        self.callers, self.ask, self.url, self.draw = callers, ask, url, draw
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
        task = asyncio.ensure_future(self.ask(self.url + path, method, body))
        timer = asyncio.get_running_loop().call_later(self.draw.uniform(0.0, LONGEST_S), task.cancel)
        await asyncio.wait([task])
        timer.cancel()
        self.calls += 1
        if task.cancelled():
            self.cancelled += 1
        else:
            self._came(task.result(), path)

    def _came(self, body: bytes | FairleadError, path: str) -> None:
        if isinstance(body, FairleadError):
            self.failed.append(repr(body)[:200])
        else:
            self.mixed += body != path.encode()

    async def probes(self) -> int:
        """How many of some calls, all at once, do not get their answer."""
        paths = [f"/probe-{number}" for number in range(PROBES)]
        answers = await asyncio.gather(*(self.ask(self.url + path, "GET", None) for path in paths))
        return sum(body != path.encode() for body, path in zip(answers, paths, strict=True))


@asynccontextmanager
async def _churn(
    servers: Endpoints, database: DatabaseSettings, folder: Path, draw: Random, client_name: str = "client"
) -> AsyncIterator[_Churn]:
    async with RawServer(_server) as server, calling(settings_of(servers, database, folder)) as callers:
        few = TransportSettings(max_connections=CONNECTIONS, max_per_host=CONNECTIONS, connect_timeout_s=20.0)
        callers.fl.runtime.http.calls._settings = few
        await callers.connect("acme", concurrency_limit=SLOTS)
        async with _asking(callers, client_name) as ask:
            yield _Churn(callers, ask, server.url, draw)


async def _experiment(churn: _Churn, figures: Figures, cancels: int) -> None:
    await churn.run(cancels)
    figures.note(n=churn.calls, cancelled=churn.cancelled)
    figures.zero(mixed_answers=churn.mixed, failed=len(churn.failed))
    figures.zero(probes_failed=await churn.probes(), connections_taken=slots_taken(churn.callers))
    figures.zero(slots_stuck=await churn.callers.stuck("acme", SLOTS))
    figures.holds(churn.cancelled >= cancels, "too few were cancelled")


@pytest.mark.parametrize("client_name", CLIENTS)
async def test_E39_client_pool(
    client_name: str, servers: Endpoints, database_settings: DatabaseSettings, tmp_path: Path
) -> None:
    figures = Figures("E39")
    figures.note(way=client_name)
    async with _churn(servers, database_settings, tmp_path, figures.draw, client_name) as churn:
        await _experiment(churn, figures, CLIENTS[client_name])
    figures.conclude()


@pytest.mark.parametrize("client_name", [client_name for client_name in CLIENTS if client_name != "client"])
async def test_E39_ablation_what_a_library_drops_goes_on(
    client_name: str,
    servers: Endpoints,
    database_settings: DatabaseSettings,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A call of another library that is cancelled is not ended."""
    figures = Figures("E39", ablation="not_dropped", sees="slots_stuck")
    figures.note(way=client_name)

    async def aclose(forwarded: ForwardedResponse) -> None:
        pass

    monkeypatch.setattr(ForwardedResponse, "aclose", aclose)
    async with _churn(servers, database_settings, tmp_path, figures.draw, client_name) as churn:
        await churn.run(ABLATION_CANCELS)
        figures.note(n=churn.calls, cancelled=churn.cancelled)
        figures.zero(slots_stuck=await churn.callers.stuck("acme", SLOTS, wait_s=1.0))
    figures.conclude()


async def test_E39_ablation_the_cancelled_keep_their_slots(
    servers: Endpoints, database_settings: DatabaseSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a cancelled call still has to give back is not seen through."""
    figures = Figures("E39", ablation="not_seen_through", sees="slots_stuck")
    original_run, given_end = LeaseRenewer.run_to_completion, Admitter.release_soon

    def end(admitter: Admitter, inside: Any) -> None:
        task = asyncio.current_task()
        if task is None or not task.cancelling():
            given_end(admitter, inside)

    async def run_to_completion(renewer: LeaseRenewer, ending: Awaitable[Any]) -> Any:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            asyncio.ensure_future(ending).cancel()
            return None
        return await original_run(renewer, ending)

    monkeypatch.setattr(LeaseRenewer, "run_to_completion", run_to_completion)
    monkeypatch.setattr(Admitter, "release_soon", end)
    async with _churn(servers, database_settings, tmp_path, figures.draw) as churn:
        stuck = 0
        for rounds in range(1, 11):  # at most; the first mostly does
            await churn.run(ABLATION_CANCELS * rounds)
            stuck = await churn.callers.stuck("acme", SLOTS, wait_s=1.0)
            if stuck:
                break
        figures.note(n=churn.calls, cancelled=churn.cancelled)
        figures.zero(slots_stuck=stuck)
    figures.conclude()
