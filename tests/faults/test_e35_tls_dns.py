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
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest

from fairlead.adapters.embedded import Endpoints
from fairlead.adapters.http import resolver
from fairlead.adapters.http.client_session import TransportSettings
from fairlead.adapters.http.resolver import AddressPolicy, CheckedResolver
from fairlead.adapters.postgres.connection_setup import DatabaseSettings
from fairlead.app.client import Response
from fairlead.errors import CallFailedError, FairleadError, InvalidInputError, NotSentError
from fairlead.testing.api.raw import OK, RawConnection, RawServer, answer_all
from tests.contract.raw_server import tls_contexts
from tests.faults.support.calls import Callers, calling, settings_of, watched
from tests.faults.support.report import Figures, quantiles, sized
from tests.support.standstill import ran_s

pytestmark = pytest.mark.slow

TIMES = sized(3, 50)
METHODS = ("GET", "POST", "DELETE")
EXPECTED_REASONS = {
    "self-signed": {"tls"},
    "expired": {"tls"},
    "wrong name": {"tls"},
    "stalled handshake": {"connect", "timeout"},
    "no TLS": {"tls"},
    "plain http": {"foreign_host"},
    "public plain http": {"refused_address"},
}
"""Each fault, and by which reasons the error may name it."""
TOLD_OF_SLOW, TOLD_OF_NONE = {"connect", "timeout"}, {"dns"}
"""The same of names that nobody answers for a while, and of those that do not exist."""
DEADLINE_S = 3.0
STALLED_S = 0.3
LOOKUPS = sized(20, 400)
A_FEW = 8
"""Look-ups begun in one turn of the loop: to begin them all would keep it busy, whoever answers."""
HANGS_S = 1.0
HELD_UP_S = 0.8
"""Whoever is held up by the name server is so for HANGS_S; a busy machine is no violation."""
STALL_S = 0.05
"""So long the loop may stand still (P11)."""


async def _stall(connection: RawConnection) -> None:
    while await connection.more():
        pass


async def _speak(connection: RawConnection) -> None:
    await connection.send(OK)
    await _stall(connection)


@asynccontextmanager
async def _vendor(fault: str, folder: Path) -> AsyncIterator[tuple[str, RawServer, ssl.SSLContext | None]]:
    """Its address, itself, and what is trusted beside it."""
    host = "other.example" if fault == "wrong name" else "localhost"
    valid_for = datetime.timedelta(days=-1 if fault == "expired" else 1)
    theirs, trusted = tls_contexts(folder, host, valid_for=valid_for)
    script = {"stalled handshake": _stall, "no TLS": _speak}.get(fault, answer_all)
    plain = fault.endswith("plain http")
    bare = plain or fault in ("stalled handshake", "no TLS")
    async with RawServer(script, None if bare else theirs) as server:
        scheme = "http" if plain else "https"
        url = f"{scheme}://localhost:{server.port}/items"
        yield url, server, None if fault == "self-signed" else trusted


@asynccontextmanager
async def _callers(settings: dict[str, Any], tls: ssl.SSLContext | None = None) -> AsyncIterator[Callers]:
    async with calling(settings) as callers:
        transport = callers.fl.runtime.http.calls
        transport._tls = tls
        transport._settings = TransportSettings(connect_timeout_s=STALLED_S)
        await callers.connect("acme")
        yield callers


async def _faults(
    figures: Figures,
    fault: str,
    settings: dict[str, Any],
    folder: Path,
    trusted: ssl.SSLContext | None = None,
) -> None:
    """Calls to a vendor with *fault*; *trusted*: what they trust instead of what is trusted beside it."""
    figures.note(fault=fault)
    counts: Counter[str] = Counter()
    async with _vendor(fault, folder) as (url, server, tls):
        settings["http"]["extra_ports"] = [server.port]
        async with _callers(settings, trusted or tls) as callers:
            for number in range(TIMES):
                tenant = f"tenant-{number}"  # with a breaker of its own
                await callers.connect(tenant, hosts=[f"localhost:{server.port}"])
                for method in METHODS:
                    outcome = await callers.call(tenant, url, method, deadline_s=DEADLINE_S)
                    counts[_reason(outcome)] += 1
    received = b"".join(bytes(connection.received) for connection in server.connections)
    figures.note(n=sum(counts.values()), told=dict(counts))
    figures.zero(requests_there=len(server.arrivals), unverified_sends=received.count(b"HTTP/1.1\r\n"))
    figures.zero(unnamed=sum(count for name, count in counts.items() if name not in EXPECTED_REASONS[fault]))


def _reason(outcome: Response | FairleadError) -> str:
    """Why nothing was sent, or all that is known of it."""
    if isinstance(outcome, CallFailedError | NotSentError | InvalidInputError) and outcome.reason:
        return outcome.reason
    return repr(outcome)[:100]


def _settings(
    fault: str,
    servers: Endpoints,
    database: DatabaseSettings,
    folder: Path,
    patch: pytest.MonkeyPatch,
    *,
    ruled: bool = True,
) -> dict[str, Any]:
    """Of a process to which all is right with the vendor but its *fault*: one rule alone refuses it.

    *ruled*: there is that rule, if it is about plain http (the profile's own, or that of public hosts).
    """
    if fault != "public plain http":
        return settings_of(servers, database, folder, allow_http=not ruled or fault != "plain http")
    patch.setattr(resolver, "kind_of", lambda _address: (None, False))  # as if this host were a public one
    if not ruled:
        patch.setattr(AddressPolicy, "scheme_refusal", lambda *_args: None)
    return settings_of(servers, database, folder, private=False)


@pytest.mark.parametrize("fault", EXPECTED_REASONS)
async def test_E35_tls(
    fault: str,
    servers: Endpoints,
    database_settings: DatabaseSettings,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    figures = Figures("E35")
    settings = _settings(fault, servers, database_settings, tmp_path, monkeypatch)
    await _faults(figures, fault, settings, tmp_path)
    figures.conclude()


@pytest.mark.parametrize("fault", ["self-signed", "expired", "wrong name"])
async def test_E35_ablation_certificates_are_not_looked_at(
    fault: str, servers: Endpoints, database_settings: DatabaseSettings, tmp_path: Path
) -> None:
    figures = Figures("E35", ablation="unverified", sees="unverified_sends")
    blind = ssl._create_unverified_context()  # what this must never be
    settings = settings_of(servers, database_settings, tmp_path)
    await _faults(figures, fault, settings, tmp_path, blind)
    figures.conclude()


@pytest.mark.parametrize("fault", ["plain http", "public plain http"])
async def test_E35_ablation_plain_http_is_allowed(
    fault: str,
    servers: Endpoints,
    database_settings: DatabaseSettings,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The profile says allow_http, or public hosts may be met by any scheme; all else is the same."""
    figures = Figures("E35", ablation="plaintext", sees="unverified_sends")
    settings = _settings(fault, servers, database_settings, tmp_path, monkeypatch, ruled=False)
    await _faults(figures, fault, settings, tmp_path)
    figures.conclude()


# ---- names


@contextmanager
def _name_server_hangs(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Names that begin with "slow" are not answered for a while, those with "none" do not exist."""
    ask, let_go = socket.getaddrinfo, threading.Event()

    def recording_lookup(host: Any, *rest: Any, **named: Any) -> Any:
        if str(host).startswith("slow"):
            let_go.wait(HANGS_S)
            host = "127.0.0.1"
        if str(host).startswith("none"):
            raise socket.gaierror(socket.EAI_NONAME, "unknown")
        return ask(host, *rest, **named)

    with monkeypatch.context() as patch:
        patch.setattr(socket, "getaddrinfo", recording_lookup)
        yield let_go
        let_go.set()


async def _names(figures: Figures, settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    async with RawServer() as server, _callers(settings) as callers:
        port = server.port
        await callers.call("acme", server.url)
        with _name_server_hangs(monkeypatch) as let_go:
            async with watched() as watch:
                slow = asyncio.create_task(_look_up(callers, port))
                await asyncio.sleep(0)
                others_s = [await _timed(callers.call("acme", server.url)) for _ in range(20)]
                threads_s = [await _timed(asyncio.to_thread(int)) for _ in range(20)]
                outcomes = await slow
                let_go.set()
                none = [
                    await callers.call("acme", f"http://none{at}.names.test:{port}/") for at in range(TIMES)
                ]
        counts = Counter(map(_reason, (*outcomes, *none)))
        unnamed = sum(_reason(outcome) not in TOLD_OF_SLOW for outcome in outcomes)
        unnamed += sum(_reason(outcome) not in TOLD_OF_NONE for outcome in none)
        figures.note(n=LOOKUPS + TIMES, told=dict(counts))
        figures.note(others_ms=quantiles(others_s, 1000), threads_ms=quantiles(threads_s, 1000))
        figures.note(max_stall_ms=round(watch.stall_s * 1000, 1))
        figures.zero(unnamed=unnamed)
        answered = sum(isinstance(outcome, Response) for outcome in none)
        figures.holds(not answered, f"{answered} answers of who does not exist")
        figures.holds(watch.stall_s <= STALL_S, f"the loop stood still for {watch.stall_s:.2f} s")
        figures.holds(max(others_s) <= HELD_UP_S, f"another call took {max(others_s):.2f} s")
        figures.holds(max(threads_s) <= HELD_UP_S, f"a thread was had after {max(threads_s):.2f} s")


async def _look_up(callers: Callers, port: int) -> list[Response | FairleadError]:
    """Calls to many names of the slow server, begun a few at a time and all on their way together."""
    lookups = []
    for number in range(LOOKUPS):
        url = f"http://slow{number}.names.test:{port}/"
        lookups.append(asyncio.create_task(callers.call("acme", url, deadline_s=DEADLINE_S)))
        if number % A_FEW == 0:
            await asyncio.sleep(0)
    return await asyncio.gather(*lookups)


async def _timed(awaited: Any) -> float:
    began_s = time.monotonic()
    await awaited
    return ran_s(began_s)


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
    figures = Figures("E35", ablation="shared_threads", sees="a thread was had")
    original_init = CheckedResolver.__init__

    def shared(resolver: CheckedResolver, *args: Any, **named: Any) -> None:
        original_init(resolver, *args, **named)
        resolver._of_found = resolver._of_others = None  # type: ignore[assignment]

    async def close(_resolver: CheckedResolver) -> None:
        return None

    monkeypatch.setattr(CheckedResolver, "__init__", shared)
    monkeypatch.setattr(CheckedResolver, "close", close)
    await _names(figures, settings_of(servers, database_settings, tmp_path), monkeypatch)
    figures.conclude()


class _AtOnce(ThreadPoolExecutor):
    """No threads: whoever asks does it."""

    def submit(self, do: Any, /, *args: Any, **named: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(do(*args, **named))
        except OSError as error:
            future.set_exception(error)
        return future


async def test_E35_ablation_names_are_looked_up_on_the_loop(
    servers: Endpoints, database_settings: DatabaseSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    figures = Figures("E35", ablation="no_threads", sees="the loop stood still")
    monkeypatch.setattr("fairlead.adapters.http.resolver.ThreadPoolExecutor", _AtOnce)
    monkeypatch.setattr("tests.faults.test_e35_tls_dns.LOOKUPS", 3)  # each takes its second alone
    await _names(figures, settings_of(servers, database_settings, tmp_path), monkeypatch)
    figures.conclude()
