"""E32: a liar on kept connections, honest calls beside it and after it (V6, V7, P3).

Whatever it says, a call gives an answer or ends in a named error, and no byte of a lie is ever taken for the
answer to another call.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest
from aiohttp.client_proto import ResponseHandler

from fairlead.adapters.embedded import Endpoints
from fairlead.adapters.http import connector as connector_module
from fairlead.adapters.http.connector import InFlightRequest
from fairlead.adapters.postgres.connection_setup import DatabaseSettings
from fairlead.app.client import Response
from fairlead.errors import CallFailedError, FairleadError, ResponseDecodingError
from fairlead.testing.api import MALFORMED_RESPONSES
from fairlead.testing.api.raw import RawConnection, RawServer
from tests.faults.support.calls import KEY, Callers, calling, echo, echoed, settings_of, slots_taken
from tests.faults.support.report import Figures, sized

pytestmark = pytest.mark.slow

TIMES, HUGE_TIMES = sized((4, 1), (50, 13))
"""By each caller."""
AT_ONCE = 4
SLOW = {"slow_head", "slow_body", "silent"}
HUGE = {"gzip_bomb", "wide", "endless", "early_hints", "many_headers", "gzip_members"}
"""They cost the liar, who is in the same process."""
SLOW_S, DEADLINE_S = 0.2, 4.0
"""Too short for another try, so each lie is told once."""
MOST_BYTES = 256 << 10


async def _liar(connection: RawConnection) -> None:
    """Lies under ``/liar/NAME``; else each answer says which request it is the answer to."""
    while (request := await connection.request()) is not None and not connection.is_closed:
        target = urlsplit(request.split(b" ", 2)[1].decode())
        folder_path, _, name = target.path.rpartition("/")
        if folder_path.endswith("/liar"):
            await MALFORMED_RESPONSES[name](connection, dict(parse_qsl(target.query)))
        else:
            await echo(connection, request)


class _Ground:
    def __init__(self, callers: Callers, server: RawServer) -> None:
        self.callers, self.server = callers, server
        self.told: Counter[str] = Counter()
        self.unnamed: list[str] = []
        self.mixed = self.spoilt = self.crashes = self.calls = 0

    async def lies(self, name: str, times: int) -> None:
        """*times* the lie, and two honest calls behind each."""

        async def caller(number: int) -> None:
            for step in range(times):
                await self._lie(name)
                for which in ("a", "b"):
                    await self._honest(f"/{name}-{number}-{step}-{which}")

        await asyncio.gather(*(caller(number) for number in range(AT_ONCE)))

    async def _lie(self, name: str) -> None:
        self.calls += 1
        url = f"{self.server.url}/liar/{name}?pace_s=0.05&value=soon"
        deadline_s = SLOW_S if name in SLOW else DEADLINE_S
        try:
            outcome = await self.callers.call("acme", url, deadline_s=deadline_s, max_body_bytes=MOST_BYTES)
            self.told[f"{name}: {_read(outcome)}"] += 1
        except Exception as error:  # what users would see and could not have expected
            self.crashes += 1
            self.told[f"{name}: {error!r:.100}"] += 1
            return
        if isinstance(outcome, FairleadError) and not (
            isinstance(outcome, CallFailedError) and outcome.reason
        ):
            self.unnamed.append(f"{name}: {outcome!r:.100}")

    async def _honest(self, path: str) -> None:
        self.calls += 1
        outcome = await self.callers.call("acme", self.server.url + path, deadline_s=DEADLINE_S)
        self.mixed += isinstance(outcome, Response) and not echoed(outcome, path)
        self.spoilt += isinstance(outcome, FairleadError)

    def note(self, figures: Figures) -> None:
        figures.note(n=self.calls, lies=len(MALFORMED_RESPONSES), outcomes=dict(sorted(self.told.items())))
        figures.zero(mixed_answers=self.mixed, honest_failed=self.spoilt, crashes=self.crashes)
        figures.zero(unnamed=len(self.unnamed))
        received = b"".join(bytes(connection.received) for connection in self.server.connections)
        per_connection = len(self.server.arrivals) / max(1, len(self.server.connections))
        figures.note(calls_per_connection=round(per_connection, 2))
        figures.holds(received.count(KEY.encode()) == len(self.server.arrivals), "a request without its key")


def _read(outcome: Response | FairleadError) -> str:
    """What a caller makes of it; all that can be asked of an answer is asked."""
    if isinstance(outcome, FairleadError):
        return f"{outcome.category} {outcome.reason}"
    assert isinstance(outcome.text, str)
    assert outcome.headers is not None
    try:
        outcome.json()
    except ResponseDecodingError:
        return f"{outcome.status_code} text"
    return f"{outcome.status_code} json"


@asynccontextmanager
async def _ground(servers: Endpoints, database: DatabaseSettings, folder: Path) -> AsyncIterator[_Ground]:
    async with RawServer(_liar) as server, calling(settings_of(servers, database, folder)) as callers:
        limits: dict[str, Any] = {"concurrency_limit": AT_ONCE}
        await callers.connect("acme", **limits)
        yield _Ground(callers, server)


async def test_E32_liar(servers: Endpoints, database_settings: DatabaseSettings, tmp_path: Path) -> None:
    figures = Figures("E32")
    async with _ground(servers, database_settings, tmp_path) as ground:
        for name in MALFORMED_RESPONSES:
            await ground.lies(name, HUGE_TIMES if name in HUGE else TIMES)
        figures.zero(slots_stuck=await ground.callers.stuck("acme", AT_ONCE))
        figures.zero(connections_taken=slots_taken(ground.callers))
        ground.note(figures)
    figures.conclude()


async def test_E32_ablation_any_connection_will_do(
    servers: Endpoints, database_settings: DatabaseSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kept connection is used again whatever it has said meanwhile."""
    figures = Figures("E32", ablation="careless_connections", sees="mixed_answers")
    monkeypatch.setattr(connector_module, "_is_silent", lambda _protocol: True)
    monkeypatch.setattr(InFlightRequest, "check", lambda _flight: None)
    monkeypatch.setattr(ResponseHandler, "should_close", property(lambda _handler: False))
    async with _ground(servers, database_settings, tmp_path) as ground:
        await ground.lies("leftover", 5)
        figures.note(n=ground.calls)
        figures.zero(mixed_answers=ground.mixed)
    figures.conclude()
