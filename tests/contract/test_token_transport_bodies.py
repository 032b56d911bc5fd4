"""Answers that are too large, too slow to decode, or no HTTP: each ends in a bounded, named way (V6, E33)."""

from __future__ import annotations

import asyncio
import gzip
import time
import tracemalloc
import zlib
from collections.abc import AsyncIterator

import pytest

from fairlead.adapters.http import AddressPolicy, AiohttpTokenTransport
from fairlead.engine.ports import HttpResponse, NoResponse
from tests.contract.raw_server import BODY, OK, RawConnection, RawServer, send_once
from tests.contract.token_calls import call_of, let_it_go
from tests.support.standstill import ran_s

TOO_LARGE = NoResponse(sent=True, kind="too_large", why="response too large")
CUT = NoResponse(sent=True, kind="reset", why="response cut off")
MIB = 1 << 20


@pytest.fixture
async def transport() -> AsyncIterator[AiohttpTokenTransport]:
    async with AiohttpTokenTransport(policy=AddressPolicy(allow_private=True)) as transport:
        yield transport


def answer_of(body: bytes, *headers: str) -> bytes:
    lines = ["HTTP/1.1 200 OK", f"Content-Length: {len(body)}", *headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


async def fetch(
    transport: AiohttpTokenTransport, data: bytes, deadline_s: float = 5.0
) -> HttpResponse | NoResponse:
    async with RawServer(send_once(data)) as server:
        answer = await transport.send(call_of(server.url, deadline_s=deadline_s), let_it_go)
        assert len(server.arrivals) == 1
        return answer


@pytest.mark.parametrize(
    ("body", "encoding"),
    [
        (gzip.compress(BODY), "gzip"),
        (gzip.compress(BODY[:5]) + gzip.compress(BODY[5:]), "x-gzip"),
        (zlib.compress(BODY), "deflate"),
        (zlib.compress(BODY)[2:-4], "Deflate"),
        (BODY, "identity"),
    ],
    ids=["gzip", "two members", "deflate", "bare deflate", "identity"],
)
async def test_a_compressed_answer_is_decoded(
    transport: AiohttpTokenTransport, body: bytes, encoding: str
) -> None:
    answer = await fetch(transport, answer_of(body, f"Content-Encoding: {encoding}"))
    assert isinstance(answer, HttpResponse)
    assert answer.body == BODY


@pytest.mark.parametrize(
    ("body", "encoding"),
    [
        (gzip.compress(BODY)[:-3], "gzip"),
        (BODY, "gzip"),
        (gzip.compress(BODY) + b"more", "gzip"),
        (gzip.compress(b"x") * 10_000, "gzip"),
        (gzip.compress(gzip.compress(BODY)), "gzip, gzip"),
        (BODY, "br"),
        (b"", "gzip"),
    ],
    ids=["truncated", "none", "more behind", "10,000 members", "twice", "unknown", "empty"],
)
async def test_body_that_does_not_decode_is_kept_as_received(
    transport: AiohttpTokenTransport, body: bytes, encoding: str
) -> None:
    answer = await fetch(transport, answer_of(body, f"Content-Encoding: {encoding}"))
    assert isinstance(answer, HttpResponse)
    assert answer.body == body
    assert answer.headers["content-encoding"] == (encoding,)


@pytest.mark.slow
async def test_a_bomb_costs_neither_memory_nor_time(transport: AiohttpTokenTransport) -> None:
    compressor = zlib.compressobj(9, wbits=31)
    bomb = b"".join(compressor.compress(bytes(MIB)) for _ in range(200)) + compressor.flush()
    tracemalloc.start()
    try:
        began_s = time.monotonic()
        assert await fetch(transport, answer_of(bomb, "Content-Encoding: gzip")) == TOO_LARGE
        assert ran_s(began_s) < 1.0
        assert tracemalloc.get_traced_memory()[1] < 16 * MIB
    finally:
        tracemalloc.stop()


async def test_a_large_body_is_refused(transport: AiohttpTokenTransport) -> None:
    assert await fetch(transport, answer_of(bytes(256 * 1024 + 1))) == TOO_LARGE
    assert isinstance(await fetch(transport, answer_of(bytes(256 * 1024))), HttpResponse)


@pytest.mark.slow
async def test_chunks_without_end_are_refused(transport: AiohttpTokenTransport) -> None:
    async def script(connection: RawConnection) -> None:
        await connection.request()
        await connection.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        while not connection.is_closed:
            await connection.send(b"1000\r\n" + bytes(4096) + b"\r\n")

    async with RawServer(script) as server:
        assert await transport.send(call_of(server.url), let_it_go) == TOO_LARGE


@pytest.mark.parametrize(
    "data",
    [
        b"HTTP/1.1 200 OK\r\nX: " + b"x" * MIB + b"\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 10_000 + b"\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nxy",
        b"HTTP/1.1 " + b"2" * 5000 + b" OK\r\n\r\n",
        b"<html>HTTP/0.9</html>\r\n\r\n",
        b"\x16\x03\x01\x00\x00\r\n\r\n",
    ],
    ids=["1 MiB header", "10,000 headers", "negative", "two lengths", "status", "HTTP/0.9", "TLS"],
)
async def test_response_that_is_no_http_is_unknown(transport: AiohttpTokenTransport, data: bytes) -> None:
    answer = await fetch(transport, data)
    assert isinstance(answer, NoResponse)
    assert answer.sent


async def test_lengths_that_lie(transport: AiohttpTokenTransport) -> None:
    assert await fetch(transport, b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\nshort") == CUT
    more_than_told = await fetch(transport, b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nlong")
    assert more_than_told == NoResponse(sent=True, kind="malformed", why="response is not HTTP")
    for data in (OK + b"\r\n", OK):  # a line end too many is an old habit of servers
        answer = await fetch(transport, data)
        assert isinstance(answer, HttpResponse)
        assert answer.body == BODY


async def test_early_hints_are_passed_over(transport: AiohttpTokenTransport) -> None:
    answer = await fetch(transport, b"HTTP/1.1 103 Early Hints\r\n\r\n" * 50 + OK)
    assert isinstance(answer, HttpResponse)
    assert answer.body == BODY


async def test_a_protocol_nobody_asked_for_ends_at_the_deadline(transport: AiohttpTokenTransport) -> None:
    async def script(connection: RawConnection) -> None:
        await connection.request()
        await connection.send(b"HTTP/1.1 101 Switching\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\nhello")

    async with RawServer(script) as server:
        answer = await asyncio.wait_for(transport.send(call_of(server.url, deadline_s=0.2), let_it_go), 1.0)
        if isinstance(answer, NoResponse):
            assert answer.sent
        else:
            assert answer.status == 101
