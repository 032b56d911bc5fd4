"""Kept connections, deadlines and cancellation: nothing is sent twice, no answer is taken for another's."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from fairlead.adapters.http import AiohttpTokenTransport
from fairlead.adapters.http.client_session import TransportSettings
from fairlead.engine.ports import HttpResponse, NoResponse
from tests.contract.raw_server import BODY, OK, RawConnection, RawServer
from tests.contract.token_calls import PRIVATE, call_of, let_it_go


@pytest.fixture
async def transport() -> AsyncIterator[AiohttpTokenTransport]:
    async with AiohttpTokenTransport(policy=PRIVATE) as transport:
        yield transport


# ---- kept connections


async def test_connections_are_kept_only_where_that_is_allowed(transport: AiohttpTokenTransport) -> None:
    async with RawServer() as server:
        for reuse in (True, True, False, False, True):
            assert isinstance(await transport.send(call_of(server.url, reuse=reuse), let_it_go), HttpResponse)
        assert [len(connection.arrivals) for connection in server.connections] == [3, 1, 1]
        assert b"connection: close" in server.connections[1].arrivals[0].lower()


@pytest.mark.parametrize("pause_s", [0.0, 0.05], ids=["unnoticed", "noticed"])
async def test_a_connection_that_died_while_idle_is_not_used(
    transport: AiohttpTokenTransport, pause_s: float
) -> None:
    async def script(connection: RawConnection) -> None:
        await connection.request()
        await connection.send(OK)
        connection.hang_up()

    async with RawServer(script) as server:
        for _ in range(20):
            assert isinstance(await transport.send(call_of(server.url), let_it_go), HttpResponse)
            if pause_s:
                await asyncio.sleep(pause_s)
        assert len(server.arrivals) == 20


async def test_a_post_is_never_sent_again_by_itself(transport: AiohttpTokenTransport) -> None:
    """The server takes the second request on a kept connection and hangs up: aiohttp must not repeat it."""

    async def script(connection: RawConnection) -> None:
        await connection.request()
        await connection.send(OK)
        await connection.request()
        connection.hang_up(reset=True)

    async with RawServer(script) as server:
        assert isinstance(await transport.send(call_of(server.url), let_it_go), HttpResponse)
        hosts: list[str] = []

        async def before_sent() -> None:
            hosts.append("asked")

        answer = await transport.send(call_of(server.url), before_sent)
        assert isinstance(answer, NoResponse)
        assert answer.sent
        assert len(hosts) == 1
        assert [len(connection.arrivals) for connection in server.connections] == [2]


@pytest.mark.parametrize("pause_s", [0.0, 0.05], ids=["together", "later"])
async def test_bytes_left_over_are_no_answer_to_the_next_request(
    transport: AiohttpTokenTransport, pause_s: float
) -> None:
    stale = OK.replace(b"true", b"null")

    async def script(connection: RawConnection) -> None:
        while await connection.request() is not None:
            await connection.send(OK if pause_s else OK + stale)
            if pause_s:
                await asyncio.sleep(pause_s / 2)
                await connection.send(stale)

    async with RawServer(script) as server:
        for _ in range(3):
            answer = await transport.send(call_of(server.url), let_it_go)
            assert isinstance(answer, HttpResponse)
            assert answer.body == BODY
            await asyncio.sleep(pause_s)
        assert len(server.connections) == 3


async def test_no_cookie_is_kept(transport: AiohttpTokenTransport) -> None:
    async def script(connection: RawConnection) -> None:
        while await connection.request() is not None:
            await connection.send(OK.replace(b"\r\n\r\n", b"\r\nSet-Cookie: session=1\r\n\r\n"))

    async with RawServer(script) as server:
        for _ in range(2):
            await transport.send(call_of(server.url.replace("127.0.0.1", "localhost")), let_it_go)
        assert len(server.arrivals) == 2
        assert not any(b"cookie" in request.lower() for request in server.arrivals)


# ---- deadlines and cancellation


@pytest.mark.parametrize("part", ["head", "body"])
async def test_a_slow_answer_ends_at_the_deadline(transport: AiohttpTokenTransport, part: str) -> None:
    async def script(connection: RawConnection) -> None:
        await connection.request()
        sent = (
            b"HTTP/1.1 200 OK\r\nX: " if part == "head" else b"HTTP/1.1 200 OK\r\nContent-Length: 900\r\n\r\n"
        )
        await connection.send(sent)
        while True:
            await connection.send(b"x")
            await asyncio.sleep(0.02)

    async with RawServer(script) as server:
        started = asyncio.get_running_loop().time()
        answer = await transport.send(call_of(server.url, deadline_s=0.2), let_it_go)
        assert answer == NoResponse(sent=True, kind="timeout", why="no complete response before the deadline")
        assert asyncio.get_running_loop().time() - started < 0.7


@pytest.mark.slow
async def test_e39_the_pool_stays_sound_under_cancellation() -> None:
    """F1 in small: 20 tasks, 10 connections, thousands of cancels at random points."""

    async def script(connection: RawConnection) -> None:
        while await connection.request() is not None:
            await asyncio.sleep(0.001)
            await connection.send(OK)

    settings = TransportSettings(max_connections=10, max_per_host=10)
    async with RawServer(script) as server, AiohttpTokenTransport(settings, policy=PRIVATE) as transport:
        cancelled = 0

        async def churn(seed: int) -> None:
            nonlocal cancelled
            for step in range(100):
                task = asyncio.create_task(transport.send(call_of(server.url, reuse=step % 3 > 0), let_it_go))
                await asyncio.sleep((seed * 7 + step * 13) % 11 * 0.0004)
                cancelled += task.cancel()
                await asyncio.wait([task])

        await asyncio.gather(*(churn(seed) for seed in range(20)))
        assert cancelled > 500
        for reuse in (True, False):
            probes = [transport.send(call_of(server.url, reuse=reuse), let_it_go) for _ in range(20)]
            assert all(isinstance(answer, HttpResponse) for answer in await asyncio.gather(*probes))
