"""E34: answers that lead elsewhere (P12, C8, C10, S02): a redirect is an answer, and the key stays here.

The key is in a header of its own: HTTP libraries that follow redirects take only Authorization off.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urljoin

import pytest

from fairlead.adapters.embedded import Endpoints
from fairlead.adapters.http import transport as transport_module
from fairlead.adapters.postgres.connection_setup import DatabaseSettings
from fairlead.engine.ports import NoResponse
from fairlead.errors import CallFailedError
from fairlead.policy.providers import pagination as page_module
from fairlead.testing.api.malformed import answer
from fairlead.testing.api.raw import RawConnection, RawServer
from tests.faults.support.calls import KEY, Callers, calling, settings_of
from tests.faults.support.report import Figures, sized

pytestmark = pytest.mark.slow

STATUSES = (300, 301, 302, 303, 307, 308)
METHODS = sized(("GET", "POST"), ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"))
ROUNDS = sized(1, 20)
HERE, FOREIGN, PLAIN = "127.0.0.1", "127.0.0.2", "127.0.0.3"


class _Ground:
    def __init__(self, callers: Callers, foreign: list[RawServer]) -> None:
        self.callers, self.foreign = callers, foreign
        self.leads: list[str] = []
        self.here: RawServer
        self.calls = self.followed = self.unnamed = 0

    async def answers(self, connection: RawConnection) -> None:
        """``/redirect/STATUS/N`` leads to place N; ``/link/N`` and ``/next/N`` are pages followed by it."""
        while (request := await connection.request()) is not None:
            method, path, _ = request.split(b" ", 2)
            _, verb, *rest = path.decode().split("/")
            location = self.leads[int(rest[-1])] if rest else ""
            items = {"items": [1], "next": location if verb == "next" else None}
            data = b"" if method == b"HEAD" else json.dumps(items).encode()
            match verb:
                case "redirect":
                    await connection.send(answer(b"", f"Location: {location}", status=f"{rest[0]} Moved"))
                case "link":
                    await connection.send(answer(data, f'Link: <{location}>; rel="next"'))
                case _:
                    await connection.send(answer(data))

    async def redirects(self) -> None:
        """Every status, by every method, to every place."""
        for status in STATUSES:
            for index in range(len(self.leads)):
                for method in METHODS:
                    await self._redirect(method, f"/redirect/{status}/{index}")

    async def _redirect(self, method: str, path: str) -> None:
        arrivals_before = len(self.here.arrivals)
        outcome = await self.callers.call("acme", self.here.url + path, method, deadline_s=5.0)
        self.calls += 1
        self.followed += len(self.here.arrivals) - arrivals_before - 1
        named = isinstance(outcome, CallFailedError) and outcome.category == "permanent_request"
        self.unnamed += not named

    async def lists(self) -> None:
        """The page after is said to be elsewhere, in the header and in the body."""
        paginations: dict[str, dict[str, Any]] = {
            "link": {"kind": "link"},
            "next": {"kind": "link", "next": "next"},
        }
        for verb, pagination in paginations.items():
            for index in range(len(self.leads)):
                async with self.callers.fl.client("acme", "rude") as api:
                    listing = api.paginate(
                        f"{self.here.url}/{verb}/{index}", pages={**pagination, "items": "items"}
                    )
                    self.calls += 1
                    async for _ in listing.pages():
                        if self.told:
                            break

    @property
    def told(self) -> int:
        """Keys that a foreign host has been told."""
        received = (
            bytes(connection.received) for server in self.foreign for connection in server.connections
        )
        return sum(data.count(KEY.encode()) for data in received)

    def note(self, figures: Figures) -> None:
        connection_count = sum(len(server.connections) for server in self.foreign)
        figures.note(n=self.calls, places=len(self.leads))
        figures.zero(
            keys_at_foreign_hosts=self.told, foreign_hosts_met=connection_count, followed=self.followed
        )
        figures.zero(unnamed=self.unnamed)


@asynccontextmanager
async def _ground(servers: Endpoints, database: DatabaseSettings, folder: Path) -> AsyncIterator[_Ground]:
    async def foreign(connection: RawConnection) -> None:
        while await connection.request() is not None:
            await connection.send(answer(b'{"items": [2]}'))

    async with AsyncExitStack() as stack:
        enter = stack.enter_async_context
        elsewhere = [await enter(RawServer(foreign, host=host)) for host in (HERE, FOREIGN, PLAIN)]
        callers = await enter(calling(settings_of(servers, database, folder)))
        ground = _Ground(callers, elsewhere)
        ground.here = await enter(RawServer(ground.answers))
        other_port, other_host, plain = (server.url for server in elsewhere)
        ground.leads = [
            f"{ground.here.url}/redirect/302/0",  # a circle
            other_port,
            other_host,
            f"//{FOREIGN}:{elsewhere[1].port}/x",
            f"http://{HERE}@{FOREIGN}:{elsewhere[1].port}/",
            plain.replace("http:", "https:"),
            "http://169.254.169.254/latest/",
            "file:///etc/passwd",
        ]
        await callers.connect("acme")
        yield ground


async def _all(ground: _Ground) -> None:
    for _ in range(ROUNDS):
        await ground.redirects()
        await ground.lists()


async def test_E34_redirects(servers: Endpoints, database_settings: DatabaseSettings, tmp_path: Path) -> None:
    figures = Figures("E34")
    async with _ground(servers, database_settings, tmp_path) as ground:
        ground.leads = ground.leads[1:]  # a list that leads in a circle says so; see test_pages
        await _all(ground)
        ground.note(figures)
    figures.conclude()


async def test_E34_circle(servers: Endpoints, database_settings: DatabaseSettings, tmp_path: Path) -> None:
    figures = Figures("E34")
    figures.note(part="circle")
    async with _ground(servers, database_settings, tmp_path) as ground:
        ground.leads = ground.leads[:1]
        await ground.redirects()
        ground.note(figures)
    figures.conclude()


async def test_E34_ablation_redirects_are_followed(
    servers: Endpoints, database_settings: DatabaseSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As HTTP libraries follow them."""
    figures = Figures("E34", ablation="redirects_followed", sees="keys_at_foreign_hosts")

    original = transport_module.AiohttpTransport._begin

    async def follows(transport: Any, request: Any, flight: Any) -> Any:
        pending = await original(transport, request, flight)
        for _ in range(10):
            if isinstance(pending, NoResponse) or "Location" not in pending.headers:
                break
            pending.close()
            request = replace(request, url=urljoin(request.url, pending.headers["Location"]))
            pending = await original(transport, request, transport_module._in_flight_of(request))
        return pending

    monkeypatch.setattr(transport_module.AiohttpTransport, "_begin", follows)
    async with _ground(servers, database_settings, tmp_path) as ground:
        ground.leads = ground.leads[1:4]
        await ground.redirects()
        ground.note(figures)
    figures.conclude()


async def test_E34_ablation_next_pages_are_anywhere(
    servers: Endpoints, database_settings: DatabaseSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The address of a next page is believed."""
    figures = Figures("E34", ablation="next_page_anywhere", sees="keys_at_foreign_hosts")
    monkeypatch.setattr(page_module, "origin_of", lambda _url: None)
    async with _ground(servers, database_settings, tmp_path) as ground:
        ground.leads = ground.leads[1:3]
        await ground.lists()
        ground.note(figures)
    figures.conclude()
