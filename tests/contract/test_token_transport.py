"""The transport's verdict against the server's ledger: what left, what did not, and nothing twice.

These tests pin behaviour of aiohttp that the refresh of single-use tokens rests on (D7, R6, E39, E43).
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest

from fairlead.adapters.http import AiohttpTokenTransport
from fairlead.adapters.http.client_session import TransportSettings
from fairlead.engine.ports import HttpResponse, NoResponse
from tests.contract.raw_server import BODY, OK, RawConnection, RawServer, send_once, tls_contexts
from tests.contract.token_calls import PRIVATE, SECRET, call_of, let_it_go


@pytest.fixture
async def transport() -> AsyncIterator[AiohttpTokenTransport]:
    async with AiohttpTokenTransport(policy=PRIVATE) as transport:
        yield transport


# ---- the hook


async def test_the_hook_runs_after_connect_and_before_the_first_byte(
    transport: AiohttpTokenTransport,
) -> None:
    async with RawServer() as server:
        sizes: list[int] = []

        async def before_sent() -> None:
            await server.connected.wait()
            await asyncio.sleep(0.02)  # time for any byte that were on its way
            sizes.append(server.received)

        answer = await transport.send(call_of(server.url), before_sent)
        assert isinstance(answer, HttpResponse)
        assert (answer.status, answer.body) == (200, BODY)
        assert answer.headers["content-type"] == ("application/json",)
        assert sizes == [0]
        assert server.arrivals[0].endswith(f"grant_type=refresh_token&refresh_token={SECRET}".encode())


@pytest.mark.parametrize(
    "error",
    [
        LookupError("not ours any more"),
        ConnectionRefusedError(111, "the database is away"),
        TimeoutError("the database is slow"),
        aiohttp.ServerDisconnectedError(),
    ],
    ids=lambda error: type(error).__name__,
)
async def test_error_of_the_hook_is_raised_and_nothing_is_sent(error: Exception) -> None:
    async with RawServer() as server, AiohttpTokenTransport(policy=PRIVATE) as transport:

        async def before_sent() -> None:
            await server.connected.wait()
            raise error

        for reuse in (True, False):
            with pytest.raises(type(error)) as raised:
                await transport.send(call_of(server.url, reuse=reuse), before_sent)
            assert raised.value is error
        assert isinstance(
            await transport.send(call_of(server.url), let_it_go), HttpResponse
        )  # the pool is sound
        await transport.close()
        await server.quiet()
        assert len(server.arrivals) == 1
        assert server.received == len(server.arrivals[0])


async def test_a_deadline_within_the_hook_is_not_sent(transport: AiohttpTokenTransport) -> None:
    async with RawServer() as server:
        answer = await transport.send(call_of(server.url, deadline_s=0.1), asyncio.Event().wait)  # type: ignore[arg-type]
        assert answer == NoResponse(sent=False, kind="timeout", why="not connected before the deadline")
        await transport.close()
        await server.quiet()
        assert server.received == 0


async def test_a_cancelled_hook_sends_nothing(transport: AiohttpTokenTransport) -> None:
    async with RawServer() as server:
        requested = asyncio.Event()

        async def before_sent() -> None:
            requested.set()
            await asyncio.Event().wait()

        task = asyncio.create_task(transport.send(call_of(server.url), before_sent))
        await requested.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await transport.close()
        await server.quiet()
        assert server.received == 0


async def test_a_server_that_hangs_up_during_the_hook_got_nothing(transport: AiohttpTokenTransport) -> None:
    hung_up = asyncio.Event()

    async def script(connection: RawConnection) -> None:
        connection.hang_up()
        hung_up.set()

    async with RawServer(script) as server:

        async def before_sent() -> None:
            await hung_up.wait()
            await asyncio.sleep(0.05)

        answer = await transport.send(call_of(server.url), before_sent)
        assert answer == NoResponse(
            sent=False, kind="reset", why="connection lost before the request was written"
        )
        await server.quiet()
        assert server.received == 0


async def test_an_answer_that_comes_before_the_request_is_not_taken(transport: AiohttpTokenTransport) -> None:
    async def script(connection: RawConnection) -> None:
        await connection.send(OK)

    async with RawServer(script) as server:
        answer = await transport.send(call_of(server.url), lambda: asyncio.sleep(0.05))
        assert answer == NoResponse(
            sent=False, kind="reset", why="connection lost before the request was written"
        )
        await server.quiet()
        assert server.received == 0


# ---- what never left


async def test_refused_connections_and_unknown_names_are_not_sent(transport: AiohttpTokenTransport) -> None:
    async with RawServer() as server:
        closed_port = server.port
    hosts: list[str] = []

    async def before_sent() -> None:
        hosts.append("asked")

    refused = await transport.send(call_of(f"http://127.0.0.1:{closed_port}/t"), before_sent)
    unknown = await transport.send(call_of("http://nowhere.invalid/t"), before_sent)
    assert refused == NoResponse(sent=False, kind="connect", why="connect failed (ECONNREFUSED)")
    assert isinstance(unknown, NoResponse)
    assert (unknown.sent, unknown.why.split(" (")[0]) == (False, "name not resolved")
    assert hosts == []


async def test_a_certificate_that_is_not_trusted_stops_before_the_hook(tmp_path: Path) -> None:
    server_tls, _ = tls_contexts(tmp_path)
    async with RawServer(tls=server_tls) as server, AiohttpTokenTransport(policy=PRIVATE) as transport:

        async def before_sent() -> None:
            raise AssertionError("asked before the handshake was done")

        answer = await transport.send(call_of(server.url), before_sent)
        assert isinstance(answer, NoResponse)
        assert (answer.sent, answer.why) == (False, "TLS certificate not accepted")


async def test_tls_is_done_when_the_hook_is_asked(tmp_path: Path) -> None:
    server_tls, client_tls = tls_contexts(tmp_path)
    async with (
        RawServer(tls=server_tls) as server,
        AiohttpTokenTransport(policy=PRIVATE, tls=client_tls) as transport,
    ):

        async def before_sent() -> None:
            await server.connected.wait()  # asyncio reports a TLS connection once its handshake is done
            assert server.received == sum(map(len, server.arrivals))

        for _ in range(3):  # the second and third on the kept connection, session tickets and all
            assert isinstance(await transport.send(call_of(server.url), before_sent), HttpResponse)
        assert len(server.connections) == 1
        assert client_tls.verify_mode is ssl.CERT_REQUIRED


async def test_a_full_pool_is_not_sent() -> None:
    settings = TransportSettings(max_connections=1, connect_timeout_s=0.1)
    release = asyncio.Event()

    async def script(connection: RawConnection) -> None:
        await connection.request()
        await release.wait()
        await connection.send(OK)

    async with RawServer(script) as server, AiohttpTokenTransport(settings, policy=PRIVATE) as transport:
        first = asyncio.create_task(transport.send(call_of(server.url), let_it_go))
        await server.connected.wait()
        second = await transport.send(call_of(server.url), let_it_go)
        assert second == NoResponse(sent=False, kind="pool", why="no free connection in time")
        release.set()
        assert isinstance(await first, HttpResponse)
        assert len(server.arrivals) == 1


# ---- cut after it left


@pytest.mark.slow
async def test_an_answer_cut_at_each_byte_is_unknown(transport: AiohttpTokenTransport) -> None:
    for length in range(len(OK)):
        async with RawServer(send_once(OK[:length])) as server:
            answer = await transport.send(call_of(server.url, reuse=False), let_it_go)
            assert isinstance(answer, NoResponse), f"{length} of {len(OK)} bytes were taken for an answer"
            assert answer.sent
            assert len(server.arrivals) == 1


@pytest.mark.parametrize("bytes_read", [0, 1, 60])
async def test_a_request_cut_by_the_server_is_unknown(
    transport: AiohttpTokenTransport, bytes_read: int
) -> None:
    async def script(connection: RawConnection) -> None:
        while len(connection.received) < bytes_read:
            await connection.more()
        if bytes_read == 0:
            await asyncio.sleep(0.05)
        connection.hang_up(reset=True)

    async with RawServer(script) as server:
        answer = await transport.send(call_of(server.url), let_it_go)
        assert isinstance(answer, NoResponse)
        assert answer.sent


async def test_an_error_is_an_answer_and_a_redirect_is_not_followed(transport: AiohttpTokenTransport) -> None:
    async with RawServer() as elsewhere:
        moved = f"HTTP/1.1 307 Moved\r\nLocation: {elsewhere.url}\r\nContent-Length: 0\r\n\r\n".encode()
        for data, status in ((moved, 307), (b"HTTP/1.1 503 No\r\nContent-Length: 0\r\n\r\n", 503)):
            async with RawServer(send_once(data)) as server:
                answer = await transport.send(call_of(server.url), let_it_go)
                assert isinstance(answer, HttpResponse)
                assert answer.status == status
        assert elsewhere.connections == []
