"""Kept connections under liars and cancellation: no answer is taken for another's, the pool stays sound.

E32, E39 and F1 in small. Each good answer names the request that it answers.
"""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp.client_proto import ResponseHandler

from fairlead.adapters.http import AiohttpTransport
from fairlead.adapters.http.client_session import TransportSettings
from fairlead.adapters.http.connector import CheckedConnector
from fairlead.engine.ports import HttpRequest, HttpResponse, NoResponse
from tests.contract.calls import MIB, PRIVATE, answer_of, request_of
from tests.contract.raw_server import OK, RawConnection, RawServer

STALE = answer_of(b"somebody else's")

LIES: dict[str, bytes] = {
    "two answers": STALE + STALE,
    "a byte too many": STALE + b"x",
    "too short": b"HTTP/1.1 200 OK\r\nContent-Length: 15\r\n\r\nshort",
    "too long": b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n" + STALE,
    "negative": b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n" + STALE,
    "two lengths": b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nxy",
    "chunks without end": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nshort\r\n",
    "bad chunk": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n" + STALE,
    "body of a 204": b"HTTP/1.1 204 No\r\nContent-Length: 0\r\n\r\n" + STALE,
    "body of a 304": b"HTTP/1.1 304 No\r\n\r\n" + STALE,
    "hints, then nothing": b"HTTP/1.1 103 Early Hints\r\n\r\n",
    "another protocol": b"HTTP/1.1 101 Switching\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\n" + STALE,
    "no HTTP": b"<html></html>\r\n\r\n",
    "truncated gzip": answer_of(gzip.compress(b"x" * 100)[:-3], "Content-Encoding: gzip"),
    "wrong encoding": answer_of(b"plain", "Content-Encoding: gzip"),
    "too large": answer_of(bytes(2 * MIB)),
    "bad header": b"HTTP/1.1 200 OK\r\nX: a\0b\r\n\r\n" + STALE,
    "silence": b"",
}


@pytest.fixture
async def transport() -> AsyncIterator[AiohttpTransport]:
    async with AiohttpTransport(policy=PRIVATE) as transport:
        yield transport


async def echo_or_lie(connection: RawConnection) -> None:
    """A path /echo/... is answered with itself, one of /lie/NAME with that lie."""
    while (request := await connection.request()) is not None:
        path = request.split(b" ", 2)[1].decode()
        _, verb, rest = path.split("/", 2)
        await connection.send(answer_of(path.encode()) if verb == "echo" else LIES[rest.replace("_", " ")])


def echo_of(server: RawServer, name: object, body: bytes | None = None) -> HttpRequest:
    method = "GET" if body is None else "POST"
    return request_of(f"http://127.0.0.1:{server.port}/echo/{name}", method, body)


@pytest.mark.slow
@pytest.mark.parametrize("lie", LIES)
async def test_e32_no_lie_leaks_into_the_next_call(transport: AiohttpTransport, lie: str) -> None:
    """A kept connection, the lie on it, and the next call at once: 50 times, by several callers."""

    async def caller(server: RawServer, number: int) -> None:
        url = f"http://127.0.0.1:{server.port}/lie/{lie.replace(' ', '_')}"
        for step in range(10):
            lied = await transport.send(request_of(url, deadline_s=0.05 if lie in SLOW else 5.0))
            if isinstance(lied, NoResponse):
                assert lied.sent
            for name in (f"{number}-{step}-a", f"{number}-{step}-b"):
                answer = await transport.send(echo_of(server, name))
                assert isinstance(answer, HttpResponse)
                assert answer.body == f"/echo/{name}".encode()

    async with RawServer(echo_or_lie) as server:
        async with asyncio.TaskGroup() as callers:
            for number in range(5):
                callers.create_task(caller(server, number))
        assert len(server.arrivals) == 5 * 10 * 3


SLOW = {"hints, then nothing", "silence", "too short", "chunks without end"}  # they end at the deadline


@pytest.mark.parametrize("pause_s", [0.0, 0.02], ids=["unread", "read"])
async def test_bytes_that_come_late_are_no_answer_to_the_next_call(
    transport: AiohttpTransport, pause_s: float
) -> None:
    closed = asyncio.Event()

    async def script(connection: RawConnection) -> None:
        while (request := await connection.request()) is not None:
            await connection.send(answer_of(request.split(b" ", 2)[1]))
            await asyncio.sleep(0.01)  # the answer is taken, the connection is idle
            await connection.send(STALE)
            closed.set()

    async with RawServer(script) as server:
        for number in range(5):
            closed.clear()
            answer = await transport.send(echo_of(server, number))
            assert isinstance(answer, HttpResponse)
            assert answer.body == f"/echo/{number}".encode()
            await closed.wait()
            await asyncio.sleep(pause_s)
        assert len(server.connections) == 5


async def test_after_a_101_the_connection_is_not_used_again(transport: AiohttpTransport) -> None:
    """It names no protocol, so HTTP goes on: the answer to this request would be the next one's."""

    async def script(connection: RawConnection) -> None:
        while (request := await connection.request()) is not None:
            path = request.split(b" ", 2)[1]
            is_first = path == b"/echo/first"
            await connection.send(b"HTTP/1.1 101 Switching\r\n\r\n" if is_first else answer_of(path))

    async with RawServer(script) as server:
        for body in (None, b"{}"):
            first = await transport.send(echo_of(server, "first", body))
            assert isinstance(first, NoResponse)
            assert (first.sent, first.status) == (True, 101)
        assert isinstance(await transport.send(echo_of(server, "second")), HttpResponse)
        assert len(server.connections) == 3


async def test_an_answer_that_comes_before_the_request_is_not_taken(
    transport: AiohttpTransport, monkeypatch: pytest.MonkeyPatch
) -> None:
    connect = CheckedConnector._create_connection

    async def slow_to_wake(self: CheckedConnector, *args: Any) -> ResponseHandler:
        handler = await connect(self, *args)
        await asyncio.sleep(0.05)  # the loop is busy: the server speaks before the request is written
        return handler

    async def speak_first(connection: RawConnection) -> None:
        await connection.send(STALE)

    monkeypatch.setattr(CheckedConnector, "_create_connection", slow_to_wake)
    async with RawServer(speak_first) as server:
        answer = await transport.send(request_of(server.url))
        lost = "connection lost before the request was written"
        assert answer == NoResponse(sent=False, kind="reset", why=lost)
        await server.quiet()
        assert server.received == 0


@pytest.mark.slow
async def test_e39_the_pool_stays_sound_under_cancellation() -> None:
    """20 tasks, 10 connections, thousands of cancels at random points of calls with and without a body."""

    async def script(connection: RawConnection) -> None:
        while (request := await connection.request()) is not None:
            await asyncio.sleep(0.0005)
            await connection.send(answer_of(request.split(b" ", 2)[1]))

    settings = TransportSettings(max_connections=10, max_per_host=10, connect_timeout_s=30.0)
    async with RawServer(script) as server, AiohttpTransport(settings, policy=PRIVATE) as transport:
        cancelled = mixed = 0

        async def call(name: str, body: bytes | None, take_all: bool) -> bytes:
            if take_all:
                answer = await transport.send(echo_of(server, name, body))
                return answer.body if isinstance(answer, HttpResponse) else b""
            async with transport.stream(echo_of(server, name, body)) as stream:
                assert not isinstance(stream, NoResponse)
                return b"".join([chunk async for chunk in stream])

        async def churn(seed: int) -> None:
            nonlocal cancelled, mixed
            for step in range(200):
                name = f"{seed}-{step}"
                body = (None, b"x", bytes(300_000))[step % 3 if step % 7 else 0]
                task = asyncio.create_task(call(name, body, take_all=step % 2 == 0))
                await asyncio.sleep((seed * 7 + step * 13) % 17 * 0.0005)
                cancelled += task.cancel()
                await asyncio.wait([task])
                if not task.cancelled():
                    mixed += task.result() != f"/echo/{name}".encode()

        await asyncio.gather(*(churn(seed) for seed in range(20)))
        assert cancelled > 2000
        assert mixed == 0
        probes = [transport.send(echo_of(server, f"probe-{number}")) for number in range(30)]
        for number, answer in enumerate(await asyncio.gather(*probes)):
            assert isinstance(answer, HttpResponse)
            assert answer.body == f"/echo/probe-{number}".encode()
        assert sum(not connection.is_closed for connection in server.connections) <= 10


@pytest.mark.parametrize("steps", range(12))
async def test_a_cancel_at_any_step_leaves_nothing_behind(transport: AiohttpTransport, steps: int) -> None:
    """One turn of the loop later each time, from before the connection to after the answer."""
    async with RawServer(echo_or_lie) as server:
        await transport.send(echo_of(server, "first"))
        for number, body in enumerate((None, b"x", bytes(MIB))):
            task = asyncio.create_task(transport.send(echo_of(server, f"cancelled-{number}", body)))
            for _ in range(steps):
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.wait([task])
            answer = await transport.send(echo_of(server, f"next-{number}"))
            assert isinstance(answer, HttpResponse)
            assert answer.body == f"/echo/next-{number}".encode()


async def half_a_second_after(delay_s: float) -> None:
    """In fifty turns of the loop: where others have the processors, they take longer as all else does."""
    await asyncio.sleep(delay_s)
    for _ in range(50):
        await asyncio.sleep(0.01)


@pytest.mark.slow
async def test_e31_two_hundred_slow_answers_end_together(transport: AiohttpTransport) -> None:
    async def drip(connection: RawConnection) -> None:
        await connection.request()
        await connection.send(OK[:20])
        while not connection.is_closed:
            await connection.send(b"x")
            await asyncio.sleep(0.05)

    settings = TransportSettings(max_connections=200, max_per_host=200)
    async with RawServer(drip) as server, AiohttpTransport(settings, policy=PRIVATE) as transport:
        calls = [transport.send(request_of(server.url, deadline_s=1.0)) for _ in range(200)]
        ended, too_late = asyncio.gather(*calls), asyncio.create_task(half_a_second_after(1.0))
        await asyncio.wait([ended, too_late], return_when=asyncio.FIRST_COMPLETED)
        assert ended.done()
        too_late.cancel()
        answers = await ended
        assert {answer.kind for answer in answers if isinstance(answer, NoResponse)} == {"timeout"}
        assert not any(isinstance(answer, HttpResponse) for answer in answers)
        await server.quiet()  # no connection is left open
