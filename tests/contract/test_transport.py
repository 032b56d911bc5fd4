"""The verdict on a call against the server's ledger: what left, what did not, and nothing twice (D7, C10).

These tests pin behaviour of aiohttp that the transport rests on.
"""

from __future__ import annotations

import asyncio
import datetime
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from fairlead.adapters.http import AiohttpTransport
from fairlead.adapters.http.client_session import TransportSettings
from fairlead.engine.ports import HttpResponse, NoResponse
from tests.contract.calls import MIB, PRIVATE, answer_of, request_of
from tests.contract.raw_server import BODY, OK, RawConnection, RawServer, send_once, tls_contexts

METHODS = ("GET", "HEAD", "OPTIONS", "PUT", "DELETE", "POST", "PATCH")


@pytest.fixture
async def transport() -> AsyncIterator[AiohttpTransport]:
    async with AiohttpTransport(policy=PRIVATE) as transport:
        yield transport


# ---- what arrives


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    "body", [None, b"", b'{"a": 1}', bytes(3 * MIB)], ids=["none", "empty", "json", "3 MiB"]
)
async def test_method_and_body_arrive_as_asked(
    transport: AiohttpTransport, method: str, body: bytes | None
) -> None:
    async def script(connection: RawConnection) -> None:
        while await connection.request() is not None:
            await connection.send(OK if method != "HEAD" else OK.removesuffix(BODY))

    async with RawServer(script) as server:
        for _ in range(2):  # the second on the kept connection
            answer = await transport.send(request_of(server.url, method, body))
            assert isinstance(answer, HttpResponse)
            assert (answer.status, answer.body) == (200, b"" if method == "HEAD" else BODY)
            assert answer.headers["content-type"] == ("application/json",)
        assert [len(connection.arrivals) for connection in server.connections] == [2]
        for arrival in server.arrivals:
            head, _, content = arrival.partition(b"\r\n\r\n")
            assert head.startswith(f"{method} /oauth/token HTTP/1.1\r\n".encode())
            assert content == (body or b"")


async def test_the_headers_are_the_callers_and_few_of_ours(transport: AiohttpTransport) -> None:
    async with RawServer() as server:
        await transport.send(request_of(server.url, "POST", b"<a/>"))
        headers = {"accept": "text/xml", "User-Agent": "theirs", "X-Case": "as given"}
        await transport.send(request_of(server.url, "POST", b"<a/>", headers=headers))
        ours, theirs = (
            sorted(arrival.partition(b"\r\n\r\n")[0].decode().split("\r\n")[1:])
            for arrival in server.arrivals
        )
        assert ours == [
            "Accept-Encoding: gzip, deflate",
            "Accept: */*",
            "Authorization: Bearer access-token-canary",
            "Content-Length: 4",
            f"Host: 127.0.0.1:{server.port}",
            "User-Agent: fairlead",
        ]
        assert [line for line in theirs if line.lower().startswith(("accept:", "user-", "x-"))] == [
            "User-Agent: theirs",
            "X-Case: as given",
            "accept: text/xml",
        ]


# ---- nothing twice


@pytest.mark.parametrize("method", METHODS)
async def test_nothing_is_sent_again_on_a_connection_that_died(
    transport: AiohttpTransport, method: str
) -> None:
    """aiohttp repeats idempotent methods on a kept connection that turns out dead; nothing here may."""

    async def one_answer_then_silence(connection: RawConnection) -> None:
        await connection.request()
        await connection.send(OK)
        await connection.request()
        connection.hang_up(reset=connection.number % 2 == 0)

    async with RawServer(one_answer_then_silence) as server:
        for sent in (1, 3):
            assert isinstance(await transport.send(request_of(server.url)), HttpResponse)
            answer = await transport.send(request_of(server.url, method))
            assert isinstance(answer, NoResponse)
            assert (answer.sent, answer.kind) == (True, "reset")
            assert len(server.arrivals) == sent + 1


@pytest.mark.parametrize("pause_s", [0.0, 0.05], ids=["unnoticed", "noticed"])
async def test_a_connection_that_died_while_idle_is_not_used(
    transport: AiohttpTransport, pause_s: float
) -> None:
    async def script(connection: RawConnection) -> None:
        await connection.request()
        await connection.send(OK)
        connection.hang_up()

    async with RawServer(script) as server:
        for _ in range(20):
            assert isinstance(await transport.send(request_of(server.url, "POST", b"x")), HttpResponse)
            if pause_s:
                await asyncio.sleep(pause_s)
        assert len(server.arrivals) == 20


async def test_an_answer_to_half_a_request_ends_its_connection(transport: AiohttpTransport) -> None:
    """The rest of the body would be read as the next request."""

    async def script(connection: RawConnection) -> None:
        if connection.number == 1:
            while b"\r\n\r\n" not in connection.received:
                await connection.more()
            await connection.send(answer_of(b"no", status="413 Too Large"))
        else:
            await connection.request()
            await connection.send(OK)

    async with RawServer(script) as server:
        early = await transport.send(request_of(server.url, "POST", bytes(32 * MIB)))
        assert isinstance(early, HttpResponse)
        assert early.status == 413
        later = await transport.send(request_of(server.url))
        assert isinstance(later, HttpResponse)
        assert later.body == BODY
        assert len(server.connections) == 2


async def test_redirects_are_answers(transport: AiohttpTransport) -> None:
    async with RawServer() as elsewhere:
        for status in (301, 302, 303, 307, 308):
            moved = answer_of(b"", f"Location: {elsewhere.url}", status=f"{status} Moved")
            async with RawServer(send_once(moved)) as server:
                answer = await transport.send(request_of(server.url))
                assert isinstance(answer, HttpResponse)
                assert (answer.status, answer.headers["location"]) == (status, (elsewhere.url,))
        assert elsewhere.connections == []


async def test_no_cookie_is_kept(transport: AiohttpTransport) -> None:
    async def script(connection: RawConnection) -> None:
        while await connection.request() is not None:
            await connection.send(answer_of(BODY, "Set-Cookie: a=1", "Set-Cookie: b=2"))

    async with RawServer(script) as server:
        for _ in range(2):
            answer = await transport.send(request_of(server.url.replace("127.0.0.1", "localhost")))
            assert isinstance(answer, HttpResponse)
            assert answer.headers["set-cookie"] == ("a=1", "b=2")
        assert len(server.arrivals) == 2
        assert not any(b"cookie" in arrival.lower() for arrival in server.arrivals)


# ---- what never left


async def test_refused_connections_and_unknown_names_are_not_sent(transport: AiohttpTransport) -> None:
    async with RawServer() as server:
        closed_port = server.port
    refused = await transport.send(request_of(f"http://127.0.0.1:{closed_port}/t"))
    unknown = await transport.send(request_of("http://nowhere.invalid/t"))
    assert refused == NoResponse(sent=False, kind="connect", why="connect failed (ECONNREFUSED)")
    assert isinstance(unknown, NoResponse)
    assert (unknown.sent, unknown.kind) == (False, "dns")


async def test_a_full_pool_says_so(transport: AiohttpTransport) -> None:
    """It says nothing of the destination, so no breaker may count it."""
    settings = TransportSettings(max_connections=1, connect_timeout_s=0.1)
    release = asyncio.Event()

    async def script(connection: RawConnection) -> None:
        while await connection.request() is not None:
            await release.wait()
            await connection.send(OK)

    full = NoResponse(sent=False, kind="pool", why="no free connection in time")
    async with RawServer(script) as server, AiohttpTransport(settings, policy=PRIVATE) as transport:
        first = asyncio.create_task(transport.send(request_of(server.url)))
        await server.connected.wait()
        assert await transport.send(request_of(server.url)) == full
        assert await transport.send(request_of(server.url, deadline_s=0.05)) == full
        release.set()
        assert isinstance(await first, HttpResponse)
        assert isinstance(await transport.send(request_of(server.url)), HttpResponse)
        assert len(server.arrivals) == 2


@pytest.mark.parametrize("deadline_s", [0.0, -1.0])
async def test_without_time_nothing_is_tried(transport: AiohttpTransport, deadline_s: float) -> None:
    async with RawServer() as server:
        answer = await transport.send(request_of(server.url, deadline_s=deadline_s))
        assert isinstance(answer, NoResponse)
        assert (answer.sent, answer.kind) == (False, "timeout")
        assert server.connections == []


@pytest.mark.slow
async def test_nothing_is_sent_by_a_process_that_stood_still(
    transport: AiohttpTransport, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its slot may be somebody else's by now (P8)."""
    from fairlead.adapters.http import connector

    def stand_still(_protocol: object) -> bool:
        time.sleep(0.3)  # nothing of this process runs, as after SIGSTOP
        return True

    async with RawServer() as server:
        assert isinstance(await transport.send(request_of(server.url)), HttpResponse)
        monkeypatch.setattr(connector, "_is_silent", stand_still)
        answer = await transport.send(request_of(server.url, deadline_s=0.2))
        late = NoResponse(sent=False, kind="timeout", why="deadline passed before the request was written")
        assert answer == late
        assert len(server.arrivals) == 1


# ---- TLS (E35)


async def test_a_trusted_certificate_is_taken(tmp_path: Path) -> None:
    server_tls, client_tls = tls_contexts(tmp_path)
    async with (
        RawServer(tls=server_tls) as server,
        AiohttpTransport(policy=PRIVATE, tls=client_tls) as transport,
    ):
        for _ in range(3):  # the second and third on the kept connection, session tickets and all
            assert isinstance(await transport.send(request_of(server.url)), HttpResponse)
        assert len(server.connections) == 1


@pytest.mark.parametrize("fault", ["self-signed", "expired", "wrong name"])
async def test_a_certificate_that_is_not_right_gets_nothing(tmp_path: Path, fault: str) -> None:
    host = "other.example" if fault == "wrong name" else "localhost"
    valid_for = datetime.timedelta(days=-1 if fault == "expired" else 1)
    server_tls, client_tls = tls_contexts(tmp_path, host, valid_for=valid_for)
    trusted = None if fault == "self-signed" else client_tls
    async with (
        RawServer(tls=server_tls) as server,
        AiohttpTransport(policy=PRIVATE, tls=trusted) as transport,
    ):
        answer = await transport.send(request_of(server.url))
        assert answer == NoResponse(sent=False, kind="tls", why="TLS certificate not accepted")
        assert server.received == 0


async def test_server_without_tls_gets_no_request(transport: AiohttpTransport) -> None:
    async with RawServer(send_once(OK)) as server:
        answer = await transport.send(request_of(server.url.replace("http:", "https:"), deadline_s=0.5))
        assert isinstance(answer, NoResponse)
        assert not answer.sent
        assert b"canary" not in b"".join(bytes(connection.received) for connection in server.connections)


async def test_a_handshake_that_stalls_ends_with_the_wait_for_a_connection() -> None:
    async def stall(connection: RawConnection) -> None:
        while await connection.more():
            pass

    settings = TransportSettings(connect_timeout_s=0.1)
    async with RawServer(stall) as server, AiohttpTransport(settings, policy=PRIVATE) as transport:
        url = server.url.replace("http:", "https:")
        stalled = NoResponse(sent=False, kind="connect", why="connect timed out")
        assert await transport.send(request_of(url)) == stalled
        late = NoResponse(sent=False, kind="timeout", why="not connected before the deadline")
        assert await transport.send(request_of(url, deadline_s=0.05)) == late
