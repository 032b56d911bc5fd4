"""E35: vendors that cannot prove who they are, or cannot be found (S03, C10, P11).

Nothing is sent to them, not the key and not a byte of HTTP, whatever is wrong; and a name server that hangs
holds up neither the loop nor the threads that others use, nor calls to anybody else.
"""

from __future__ import annotations

import asyncio
import datetime
import socket
import ssl
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest

from fairlead.adapters.embedded import Endpoints
from fairlead.adapters.http.resolver import CheckedResolver
from fairlead.adapters.http.session import TransportSettings
from fairlead.adapters.postgres.session import DatabaseSettings
from fairlead.app.client import Response
from fairlead.errors import CallFailed, FairleadError, NotSent
from fairlead.testing.api.raw import OK, RawConnection, RawServer, answer_all
from tests.contract.raw_server import tls_contexts
from tests.faults.support.calls import Callers, calling, settings_of, watched
from tests.faults.support.report import Figures, quantiles, sized

pytestmark = pytest.mark.slow

TIMES = sized(3, 50)
METHODS = ("GET", "POST", "DELETE")
FAULTS = ("self-signed", "expired", "wrong name", "stalled handshake", "no TLS", "plain http")
DEADLINE_S = 3.0
STALLED_S = 0.3
LOOKUPS = sized(20, 400)
HANGS_S = 1.0
HELD_UP_S = 0.8
"""Whoever is held up by the name server is so for HANGS_S; a busy machine is no violation."""


async def _stall(connection: RawConnection) -> None:
    while await connection.more():
        pass


async def _speak(connection: RawConnection) -> None:
    await connection.say(OK)
    await _stall(connection)


@asynccontextmanager
async def _vendor(fault: str, folder: Path) -> AsyncIterator[tuple[str, RawServer, ssl.SSLContext | None]]:
    """Its address, itself, and what is trusted beside it."""
    host = "other.example" if fault == "wrong name" else "localhost"
    valid_for = datetime.timedelta(days=-1 if fault == "expired" else 1)
    theirs, trusted = tls_contexts(folder, host, valid_for=valid_for)
    script = {"stalled handshake": _stall, "no TLS": _speak}.get(fault, answer_all)
    bare = fault in ("stalled handshake", "no TLS", "plain http")
    async with RawServer(script, None if bare else theirs) as server:
        scheme = "http" if fault == "plain http" else "https"
        url = f"{scheme}://localhost:{server.port}/items"
        yield url, server, None if fault == "self-signed" else trusted


@asynccontextmanager
async def _callers(settings: dict[str, Any], tls: ssl.SSLContext | None = None) -> AsyncIterator[Callers]:
    async with calling(settings) as callers:
        transport = callers.fl.runtime.wires.calls
        transport._tls = tls
        transport._settings = TransportSettings(connect_timeout_s=STALLED_S)
        await callers.connect("acme")
        yield callers


async def _faults(figures: Figures, callers: Callers, url: str, server: RawServer) -> None:
    told: Counter[str] = Counter()
    for number in range(TIMES):
        tenant = f"tenant-{number}"  # with a breaker of its own
        await callers.connect(tenant)
        for method in METHODS:
            came = await callers.call(tenant, url, method, deadline_s=DEADLINE_S)
            told[
                came.reason if isinstance(came, CallFailed | NotSent) and came.reason else repr(came)[:100]
            ] += 1
    heard = b"".join(bytes(connection.received) for connection in server.connections)
    figures.note(n=sum(told.values()), told=dict(told))
    figures.zero(requests_there=len(server.arrivals), unverified_sends=heard.count(b"HTTP/1.1\r\n"))
    figures.zero(unnamed=sum(count for name, count in told.items() if name not in NAMED))


NAMED = {"tls", "connect", "timeout", "refused_address", "dns", "reset"}


@pytest.mark.parametrize("fault", FAULTS)
async def test_E35_tls(
    fault: str, servers: Endpoints, database_settings: DatabaseSettings, tmp_path: Path
) -> None:
    figures = Figures("E35")
    figures.note(fault=fault)
    settings = settings_of(servers, database_settings, tmp_path, private=fault != "plain http")
    async with _vendor(fault, tmp_path) as (url, server, tls), _callers(settings, tls) as callers:
        await _faults(figures, callers, url, server)
    figures.conclude()


@pytest.mark.parametrize("fault", ["self-signed", "expired", "wrong name"])
async def test_E35_ablation_certificates_are_not_looked_at(
    fault: str, servers: Endpoints, database_settings: DatabaseSettings, tmp_path: Path
) -> None:
    figures = Figures("E35", ablation="unverified")
    figures.note(fault=fault)
    blind = ssl._create_unverified_context()  # what this must never be
    settings = settings_of(servers, database_settings, tmp_path)
    async with _vendor(fault, tmp_path) as (url, server, _), _callers(settings, blind) as callers:
        await _faults(figures, callers, url, server)
    figures.conclude()


async def test_E35_ablation_private_hosts_may_be_called(
    servers: Endpoints, database_settings: DatabaseSettings, tmp_path: Path
) -> None:
    """By an address policy for development the same call goes out in plain text."""
    figures = Figures("E35", ablation="plaintext")
    settings = settings_of(servers, database_settings, tmp_path)
    async with _vendor("plain http", tmp_path) as (url, server, tls), _callers(settings, tls) as callers:
        await _faults(figures, callers, url, server)
    figures.conclude()


# ---- names


@contextmanager
def _name_server_hangs(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Names that begin with "slow" are not answered for a while, those with "none" do not exist."""
    ask, let_go = socket.getaddrinfo, threading.Event()

    def asked(host: Any, *rest: Any, **named: Any) -> Any:
        if str(host).startswith("slow"):
            let_go.wait(HANGS_S)
            host = "127.0.0.1"
        if str(host).startswith("none"):
            raise socket.gaierror(socket.EAI_NONAME, "unknown")
        return ask(host, *rest, **named)

    with monkeypatch.context() as patch:
        patch.setattr(socket, "getaddrinfo", asked)
        yield let_go
        let_go.set()


async def _names(figures: Figures, settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    async with RawServer() as server, _callers(settings) as callers:
        port = server.port
        await callers.call("acme", server.url)
        with _name_server_hangs(monkeypatch) as let_go:
            async with watched() as watch:
                urls = [f"http://slow{number}.names.test:{port}/" for number in range(LOOKUPS)]
                slow = [asyncio.create_task(callers.call("acme", url, deadline_s=DEADLINE_S)) for url in urls]
                await asyncio.sleep(0)
                others_s = [await _timed(callers.call("acme", server.url)) for _ in range(20)]
                threads_s = [await _timed(asyncio.to_thread(int)) for _ in range(20)]
                came = await asyncio.gather(*slow)
                let_go.set()
                none = [await callers.call("acme", f"http://none.names.test:{port}/") for _ in range(TIMES)]
        reasons = Counter(each.reason for each in (*came, *none) if isinstance(each, CallFailed | NotSent))
        odd = [each for each in (*came, *none) if isinstance(each, FairleadError) and not each.reason]
        figures.note(n=LOOKUPS + TIMES, told={str(name): count for name, count in reasons.items()})
        figures.note(others_ms=quantiles(others_s, 1000), threads_ms=quantiles(threads_s, 1000))
        figures.note(max_stall_ms=round(watch.stall_s * 1000, 1))
        figures.zero(unnamed=len(odd), answered_unknown=sum(isinstance(each, Response) for each in none))
        figures.holds(watch.stall_s <= HELD_UP_S, f"the loop stood still for {watch.stall_s:.2f} s")
        figures.holds(max(others_s) <= HELD_UP_S, f"another call took {max(others_s):.2f} s")
        figures.holds(max(threads_s) <= HELD_UP_S, f"a thread was had after {max(threads_s):.2f} s")


async def _timed(awaited: Any) -> float:
    began_s = time.monotonic()
    await awaited
    return time.monotonic() - began_s


async def test_E35_names(
    servers: Endpoints, database_settings: DatabaseSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    figures = Figures("E35")
    figures.note(fault="names")
    await _names(figures, settings_of(servers, database_settings, tmp_path), monkeypatch)
    figures.conclude()


async def test_E35_ablation_names_take_everyones_threads(
    servers: Endpoints, database_settings: DatabaseSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Look-ups run on the loop's own threads, which are for all."""
    figures = Figures("E35", ablation="shared_threads")
    begun = CheckedResolver.__init__

    def shared(resolver: CheckedResolver, *given: Any, **named: Any) -> None:
        begun(resolver, *given, **named)
        resolver._threads = None  # type: ignore[assignment]

    async def close(_resolver: CheckedResolver) -> None:
        return None

    monkeypatch.setattr(CheckedResolver, "__init__", shared)
    monkeypatch.setattr(CheckedResolver, "close", close)
    await _names(figures, settings_of(servers, database_settings, tmp_path), monkeypatch)
    figures.conclude()
