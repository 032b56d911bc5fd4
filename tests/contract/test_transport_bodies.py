"""Answers too large, too slow, cut off, or no HTTP: each ends in a bounded, named way (V6, V7, P11)."""

from __future__ import annotations

import asyncio
import gzip
import random
import tracemalloc
import zlib
from collections.abc import AsyncIterator, Callable

import pytest

from fairlead.adapters.http import AiohttpTransport
from fairlead.adapters.http.body import PIECE_BYTES
from fairlead.assembly.settings import Settings
from fairlead.assembly.settings_mapping import call_transport
from fairlead.engine.ports import HttpRequest, HttpResponse, NoResponse, StreamBrokenError
from tests.contract.calls import MIB, PRIVATE, answer_of, request_of
from tests.contract.raw_server import BODY, OK, RawConnection, RawServer, send_once
from tests.support.standstill import ran_s

MOST = 256 << 10


async def sent(transport: AiohttpTransport, request: HttpRequest) -> HttpResponse | NoResponse:
    return await transport.send(request)


async def streamed(transport: AiohttpTransport, request: HttpRequest) -> HttpResponse | NoResponse:
    """The same answer, taken piece by piece."""
    async with transport.stream(request) as stream:
        if isinstance(stream, NoResponse):
            return stream
        try:
            body = b"".join([chunk async for chunk in stream])
        except StreamBrokenError as broken:
            return broken.no_response
        return HttpResponse(stream.status, stream.headers, body, 0.0)


Send = Callable[[AiohttpTransport, HttpRequest], "asyncio.Future[HttpResponse | NoResponse]"]


@pytest.fixture(params=[sent, streamed])
def send(request: pytest.FixtureRequest) -> Send:
    """An answer is bounded alike whether it is taken whole or as it comes."""
    param: Send = request.param
    return param


@pytest.fixture
async def transport() -> AsyncIterator[AiohttpTransport]:
    async with AiohttpTransport(policy=PRIVATE) as transport:
        yield transport


async def fetch(transport: AiohttpTransport, send: Send, data: bytes) -> HttpResponse | NoResponse:
    async with RawServer(send_once(data)) as server:
        answer = await send(transport, request_of(server.url, max_body_bytes=MOST))
        assert len(server.arrivals) == 1
        return answer


# ---- encodings


@pytest.mark.parametrize(
    ("body", "encoding"),
    [
        (gzip.compress(BODY), "gzip"),
        (gzip.compress(BODY[:5]) + gzip.compress(BODY[5:]), "x-gzip"),
        (zlib.compress(BODY), "deflate"),
        (zlib.compress(BODY)[2:-4], "Deflate"),
        (BODY, "identity"),
        (BODY, "utf-8"),
    ],
    ids=["gzip", "two members", "deflate", "bare deflate", "identity", "no encoding"],
)
async def test_an_encoded_answer_is_decoded(
    transport: AiohttpTransport, send: Send, body: bytes, encoding: str
) -> None:
    answer = await fetch(transport, send, answer_of(body, f"Content-Encoding: {encoding}"))
    assert isinstance(answer, HttpResponse)
    assert answer.body == BODY


@pytest.mark.parametrize("status", ["204 No Content", "304 Not Modified", "200 OK"])
async def test_empty_answer_needs_no_encoding(transport: AiohttpTransport, send: Send, status: str) -> None:
    answer = await fetch(transport, send, answer_of(b"", "Content-Encoding: gzip", status=status))
    assert isinstance(answer, HttpResponse)
    assert answer.body == b""


@pytest.mark.parametrize(
    ("body", "encodings"),
    [
        (gzip.compress(BODY)[:-3], ["gzip"]),
        (BODY, ["gzip"]),
        (BODY, ["deflate"]),
        (gzip.compress(BODY) + b"more", ["gzip"]),
        (gzip.compress(b"x") * 10_000, ["gzip"]),
        (gzip.compress(gzip.compress(BODY)), ["gzip, gzip"]),
        (gzip.compress(gzip.compress(BODY)), ["gzip", "gzip"]),
        (BODY, ["br"]),
    ],
    ids=["truncated", "none", "no deflate", "more behind", "10,000 members", "twice", "two lines", "unasked"],
)
async def test_body_that_does_not_decode_is_malformed_with_its_status(
    transport: AiohttpTransport, send: Send, body: bytes, encodings: list[str]
) -> None:
    lines = [f"Content-Encoding: {encoding}" for encoding in encodings]
    answer = await fetch(transport, send, answer_of(body, *lines, status="503 No"))
    assert isinstance(answer, NoResponse)
    assert (answer.sent, answer.kind, answer.status) == (True, "malformed", 503)


# ---- sizes


@pytest.mark.parametrize("encoding", ["identity", "gzip"])
async def test_the_bound_is_exact(transport: AiohttpTransport, send: Send, encoding: str) -> None:
    for size, fits in ((MOST, True), (MOST + 1, False)):
        body = gzip.compress(bytes(size)) if encoding == "gzip" else bytes(size)
        answer = await fetch(transport, send, answer_of(body, f"Content-Encoding: {encoding}"))
        assert isinstance(answer, HttpResponse) == fits
        if isinstance(answer, NoResponse):
            assert answer == NoResponse(sent=True, kind="too_large", why="response too large", status=200)
    small = await fetch(transport, send, answer_of(BODY))
    assert isinstance(small, HttpResponse)


async def test_body_in_one_piece_may_be_too_large(transport: AiohttpTransport, send: Send) -> None:
    async with RawServer() as server:
        for most, fits in ((len(BODY), True), (len(BODY) - 1, False), (0, False)):
            answer = await send(transport, request_of(server.url, max_body_bytes=most))
            assert isinstance(answer, HttpResponse) == fits


@pytest.mark.slow
@pytest.mark.parametrize("size", [MIB - 1, MIB, MIB + 1, 4 * MIB, 4 * MIB + 1, 5 * MIB])
@pytest.mark.parametrize("most", [5 * MIB, 64 * MIB])
async def test_a_large_body_comes_byte_for_byte(transport: AiohttpTransport, size: int, most: int) -> None:
    body = random.Random(size).randbytes(size)
    async with RawServer(send_once(answer_of(body))) as server:
        answer = await transport.send(request_of(server.url, max_body_bytes=most))
    assert isinstance(answer, HttpResponse)
    assert answer.body == body


@pytest.mark.slow
async def test_an_answer_is_held_once_and_not_twice(transport: AiohttpTransport) -> None:
    packed = answer_of(gzip.compress(bytes(16 * MIB)), "Content-Encoding: gzip")
    async with RawServer(send_once(packed)) as server:
        tracemalloc.start()
        try:
            answer = await transport.send(request_of(server.url, max_body_bytes=16 * MIB))
            assert isinstance(answer, HttpResponse)
            assert len(answer.body) == 16 * MIB
            assert tracemalloc.get_traced_memory()[1] < 24 * MIB
        finally:
            tracemalloc.stop()


@pytest.mark.slow
async def test_a_bomb_costs_no_memory(transport: AiohttpTransport, send: Send) -> None:
    compressor = zlib.compressobj(9, wbits=31)
    bomb = b"".join(compressor.compress(bytes(MIB)) for _ in range(200)) + compressor.flush()
    tracemalloc.start()
    try:
        answer = await fetch(transport, send, answer_of(bomb, "Content-Encoding: gzip"))
        assert isinstance(answer, NoResponse)
        assert answer.kind == "too_large"
        assert tracemalloc.get_traced_memory()[1] < 16 * MIB
    finally:
        tracemalloc.stop()


@pytest.mark.slow
async def test_others_run_while_a_large_answer_is_decoded(transport: AiohttpTransport) -> None:
    """64 MiB out of 64 KiB: few chunks from the socket, hundreds of pieces, and a turn between any two."""
    plain = bytes(64 * MIB)
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    bomb = answer_of(gzip.compress(plain), "Content-Encoding: gzip")
    async with (
        RawServer(send_once(bomb)) as server,
        transport.stream(request_of(server.url, max_body_bytes=len(plain))) as stream,
    ):
        assert not isinstance(stream, NoResponse)
        task = asyncio.create_task(others())
        progress = [(turns, len(chunk)) async for chunk in stream]
        task.cancel()
    assert sum(size for _, size in progress) == len(plain)
    assert max(size for _, size in progress) <= PIECE_BYTES
    assert len({turn for turn, _ in progress}) >= len(progress) - 10


@pytest.mark.slow
async def test_chunks_without_end_are_refused(transport: AiohttpTransport, send: Send) -> None:
    async def script(connection: RawConnection) -> None:
        await connection.request()
        await connection.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        while not connection.is_closed:
            await connection.send(b"1000\r\n" + bytes(4096) + b"\r\n")

    async with RawServer(script) as server:
        answer = await send(transport, request_of(server.url))
        assert isinstance(answer, NoResponse)
        assert answer.kind == "too_large"


ENDLESS = {
    "1xx answers": (b"", b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n"),
    "a chunk extension": (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5;", b"a"),
    "empty lines": (b"", b"\r\n"),
}


@pytest.mark.parametrize(("start", "piece"), ENDLESS.values(), ids=ENDLESS)
async def test_endless_bytes_between_head_and_body_are_cut_off(
    transport: AiohttpTransport, send: Send, start: bytes, piece: bytes
) -> None:
    async def script(connection: RawConnection) -> None:
        await connection.request()
        await connection.send(start)
        while not connection.is_closed:
            await connection.send(piece * (65536 // len(piece)))

    async with RawServer(script) as server:
        answer = await send(transport, request_of(server.url))
        assert isinstance(answer, NoResponse)
        assert (answer.sent, answer.kind) == (True, "malformed")


# ---- heads


@pytest.mark.parametrize(
    "data",
    [
        b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 100_000 + b"\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1_0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nxy",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"HTTP/1.1 " + b"2" * 5000 + b" OK\r\n\r\n",
        b"HTTP/1.1 99999 OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX: a\0b\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n: no name\r\n\r\n",
        b"<html>HTTP/0.9</html>\r\n\r\n",
        b"\x16\x03\x01\x00\x00\r\n\r\n",
    ],
    ids=["100,000 headers", "negative", "underscore", "two lengths", "length and chunks",
         "status", "long status", "NUL", "no name", "HTTP/0.9", "TLS"],
)  # fmt: skip
async def test_response_that_is_no_http_is_malformed(
    transport: AiohttpTransport, send: Send, data: bytes
) -> None:
    answer = await fetch(transport, send, data)
    assert isinstance(answer, NoResponse)
    assert (answer.sent, answer.kind) == (True, "malformed")


async def test_header_may_be_as_long_as_its_setting_says(transport: AiohttpTransport, send: Send) -> None:
    long = OK.replace(b"\r\n\r\n", b"\r\nX: " + b"x" * (40 << 10) + b"\r\n\r\n")
    answer = await fetch(transport, send, long)
    assert isinstance(answer, NoResponse)
    assert (answer.sent, answer.kind) == (True, "too_large")
    assert "http.max_header_bytes" in answer.why
    settings = call_transport(Settings.model_validate({"http": {"max_header_bytes": 64 << 10}}))
    async with AiohttpTransport(settings, policy=PRIVATE) as patient:
        answer = await fetch(patient, send, long)
    assert isinstance(answer, HttpResponse)
    assert len(answer.headers["x"][0]) == 40 << 10


@pytest.mark.parametrize(
    ("sent_bytes", "expected"),
    [
        (b"caf\xc3\xa9", "caf\u00e9"),
        (b"caf\xe9", "caf\u00e9"),
        (b"\xff\xfe", "\u00ff\u00fe"),
        (b"\xed\xa0\x80", "\u00ed\u00a0\u0080"),
    ],
    ids=["UTF-8", "Latin-1", "UTF-16", "lone surrogate"],
)
async def test_headers_are_text_that_can_be_stored(
    transport: AiohttpTransport, send: Send, sent_bytes: bytes, expected: str
) -> None:
    answer = await fetch(
        transport, send, OK.replace(b"\r\n\r\n", b"\r\nX-Word: " + sent_bytes + b"\r\nx-word: b\r\n\r\n")
    )
    assert isinstance(answer, HttpResponse)
    assert answer.headers["x-word"] == (expected, "b")
    "".join(value for values in answer.headers.values() for value in values).encode()


@pytest.mark.parametrize(
    "body", [b"\xff\xfe\x00", b"\xef\xbb\xbf{}", b'"\\ud800"', b"NaN", b"[" * 100_000, b"9" * 5000]
)
async def test_a_body_is_handed_on_as_bytes_whatever_it_says(
    transport: AiohttpTransport, send: Send, body: bytes
) -> None:
    answer = await fetch(transport, send, answer_of(body, "Content-Type: application/json; charset=nonsense"))
    assert isinstance(answer, HttpResponse)
    assert answer.body == body


async def test_early_hints_are_passed_over(transport: AiohttpTransport, send: Send) -> None:
    answer = await fetch(transport, send, b"HTTP/1.1 103 Early Hints\r\n\r\n" * 50 + OK)
    assert isinstance(answer, HttpResponse)
    assert answer.body == BODY


async def test_a_protocol_nobody_asked_for_is_malformed(transport: AiohttpTransport, send: Send) -> None:
    data = b"HTTP/1.1 101 Switching\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\nhello"
    answer = await fetch(transport, send, data)
    words = "the server changed the protocol"
    assert answer == NoResponse(sent=True, kind="malformed", why=words, status=101)


# ---- lengths and cuts


async def test_lengths_that_lie(transport: AiohttpTransport, send: Send) -> None:
    short = await fetch(transport, send, b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\nshort")
    assert short == NoResponse(sent=True, kind="reset", why="response cut off", status=200)
    unended = await fetch(
        transport, send, b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nshort\r\n"
    )
    assert unended == NoResponse(sent=True, kind="reset", why="response cut off", status=200)
    for data in (OK + b"\r\n", OK):  # a line end too many is an old habit of servers
        answer = await fetch(transport, send, data)
        assert isinstance(answer, HttpResponse)
        assert answer.body == BODY


@pytest.mark.slow
async def test_an_answer_cut_at_each_byte_is_unknown(transport: AiohttpTransport, send: Send) -> None:
    for length in range(len(OK)):
        answer = await fetch(transport, send, OK[:length])
        assert isinstance(answer, NoResponse), f"{length} of {len(OK)} bytes were taken for an answer"
        assert answer.sent
        head_is_whole = length >= len(OK) - len(BODY)
        assert answer.status == (200 if head_is_whole else None)


@pytest.mark.parametrize("bytes_read", [0, 1, 60])
async def test_a_request_cut_by_the_server_is_unknown(
    transport: AiohttpTransport, send: Send, bytes_read: int
) -> None:
    async def script(connection: RawConnection) -> None:
        while len(connection.received) < bytes_read:
            await connection.more()
        if bytes_read == 0:
            await asyncio.sleep(0.05)
        connection.hang_up(reset=True)

    async with RawServer(script) as server:
        answer = await send(transport, request_of(server.url))
        assert isinstance(answer, NoResponse)
        assert (answer.sent, answer.kind) == (True, "reset")


# ---- time (E31)


@pytest.mark.parametrize("part", ["head", "body", "chunks", "silence"])
async def test_a_slow_answer_ends_at_the_deadline(transport: AiohttpTransport, send: Send, part: str) -> None:
    starts = {
        "head": b"HTTP/1.1 200 OK\r\nX: ",
        "body": b"HTTP/1.1 200 OK\r\nContent-Length: 900\r\n\r\n",
        "chunks": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
        "silence": b"",
    }

    async def script(connection: RawConnection) -> None:
        await connection.request()
        await connection.send(starts[part])
        while part != "silence" and not connection.is_closed:
            await connection.send(b"1\r\nx\r\n" if part == "chunks" else b"x")
            await asyncio.sleep(0.02)

    async with RawServer(script) as server:
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        answer = await send(transport, request_of(server.url, deadline_s=0.2))
        assert isinstance(answer, NoResponse)
        assert (answer.sent, answer.kind) == (True, "timeout")
        assert answer.why == "no complete response before the deadline"
        assert answer.status == (200 if part in ("body", "chunks") else None)
        assert loop.time() - began_s + 0.01 >= 0.2
        assert ran_s(began_s) < 0.7
