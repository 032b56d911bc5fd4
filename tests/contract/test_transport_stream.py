"""An answer taken as it comes: its connection is given back at the end, and dropped before it (C1)."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import AsyncIterator, Callable

import pytest

from fairlead.adapters.http import AiohttpTransport
from fairlead.engine.ports import HttpResponse, HttpStream, NoResponse, StreamBrokenError
from tests.contract.calls import PRIVATE, request_of
from tests.contract.raw_server import RawConnection, RawServer

CHUNKED = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n"


@pytest.fixture
async def transport() -> AsyncIterator[AiohttpTransport]:
    async with AiohttpTransport(policy=PRIVATE) as transport:
        yield transport


def chunk_of(data: bytes) -> bytes:
    return f"{len(data):x}\r\n".encode() + data + b"\r\n"


def opened(stream: HttpStream | NoResponse) -> HttpStream:
    assert not isinstance(stream, NoResponse)
    return stream


async def read(
    transport: AiohttpTransport, server: RawServer, *, on_chunk: Callable[[bytes], object]
) -> None:
    async with transport.stream(request_of(server.url)) as stream:
        async for chunk in opened(stream):
            on_chunk(chunk)


@pytest.mark.parametrize("encoding", ["", "gzip"])
async def test_each_chunk_is_handed_on_when_it_comes(transport: AiohttpTransport, encoding: str) -> None:
    go_on = asyncio.Event()
    compressor = zlib.compressobj(wbits=31)

    def encoded(data: bytes) -> bytes:
        return compressor.compress(data) + compressor.flush(zlib.Z_SYNC_FLUSH) if encoding else data

    async def script(connection: RawConnection) -> None:
        await connection.request()
        head = b"Content-Encoding: gzip\r\n\r\n" if encoding else b"\r\n"
        await connection.send(CHUNKED + head + chunk_of(encoded(b"data: 1\n\n")))
        await go_on.wait()
        await connection.send(chunk_of(encoded(b"data: 2\n\n")))
        await connection.send((chunk_of(compressor.flush()) if encoding else b"") + b"0\r\n\r\n")

    async with RawServer(script) as server, transport.stream(request_of(server.url)) as answer_stream:
        stream = opened(answer_stream)
        assert (stream.status, stream.headers["content-type"]) == (200, ("text/event-stream",))
        chunks = []
        async for chunk in stream:
            chunks.append(chunk)
            go_on.set()
        assert chunks == [b"data: 1\n\n", b"data: 2\n\n"]


async def test_the_connection_is_kept_after_the_end_and_dropped_before_it(
    transport: AiohttpTransport,
) -> None:
    async def script(connection: RawConnection) -> None:
        while await connection.request() is not None:
            await connection.send(CHUNKED + b"\r\n" + chunk_of(b"first") + b"0\r\n\r\n")

    async def endless(connection: RawConnection) -> None:
        await connection.request()
        await connection.send(CHUNKED + b"\r\n" + chunk_of(b"first"))

    async with RawServer(script) as server:
        for _ in range(3):
            async with transport.stream(request_of(server.url)) as stream:
                assert [chunk async for chunk in opened(stream)] == [b"first"]
        assert [len(connection.arrivals) for connection in server.connections] == [3]
    async with RawServer(endless) as server:
        async with transport.stream(request_of(server.url)) as stream:
            async for chunk in opened(stream):
                assert chunk == b"first"
                break
        async with transport.stream(request_of(server.url)):
            pass  # not a byte of it was taken
        await server.quiet()  # both connections are closed, though the transport is not
        assert len(server.connections) == 2


async def test_error_within_a_stream_is_raised_and_drops_the_connection(transport: AiohttpTransport) -> None:
    async def endless(connection: RawConnection) -> None:
        await connection.request()
        await connection.send(CHUNKED + b"\r\n" + chunk_of(b"first"))

    def fail(_chunk: bytes) -> None:
        raise LookupError

    async with RawServer(endless) as server:
        with pytest.raises(LookupError):
            await read(transport, server, on_chunk=fail)
        await server.quiet()


async def test_request_that_never_left_yields_no_answer_instead_of_a_stream(
    transport: AiohttpTransport,
) -> None:
    async with RawServer() as server:
        pass
    async with transport.stream(request_of(server.url)) as stream:
        assert stream == NoResponse(sent=False, kind="connect", why="connect failed (ECONNREFUSED)")


async def test_a_stream_that_breaks_says_so_once_its_good_part_was_given(transport: AiohttpTransport) -> None:
    async def script(connection: RawConnection) -> None:
        await connection.request()
        await connection.send(CHUNKED + b"\r\n" + chunk_of(b"good"))
        await connection.more()

    async with RawServer(script) as server:
        chunks = []

        def hang_up(chunk: bytes) -> None:
            chunks.append(chunk)
            server.connections[0].hang_up()

        with pytest.raises(StreamBrokenError) as broken:
            await read(transport, server, on_chunk=hang_up)
        assert chunks == [b"good"]
        cut = NoResponse(sent=True, kind="reset", why="response cut off", status=200)
        assert broken.value.no_response == cut


async def test_the_deadline_holds_for_a_reader_that_dawdles(transport: AiohttpTransport) -> None:
    """Data is always there, so nothing ever waits: the time is looked at all the same."""

    async def flood(connection: RawConnection) -> None:
        await connection.request()
        await connection.send(CHUNKED + b"\r\n")
        while not connection.is_closed:
            await connection.send(chunk_of(b"x" * 1000))

    async def dawdle(url: str) -> None:
        async with transport.stream(request_of(url, deadline_s=0.2, max_body_bytes=1 << 40)) as stream:
            async for _ in opened(stream):
                await asyncio.sleep(0.01)

    async with RawServer(flood) as server:
        with pytest.raises(StreamBrokenError) as broken:
            await dawdle(server.url)
        assert broken.value.no_response.kind == "timeout"


async def test_a_cancelled_reader_drops_the_connection(transport: AiohttpTransport) -> None:
    reading = asyncio.Event()

    async def endless(connection: RawConnection) -> None:
        await connection.request()
        await connection.send(CHUNKED + b"\r\n" + chunk_of(b"first"))

    async with RawServer(endless) as server:
        task = asyncio.create_task(read(transport, server, on_chunk=lambda _: reading.set()))
        await reading.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await server.quiet()


async def test_rest_of_a_stream_is_no_response_to_the_next_call(transport: AiohttpTransport) -> None:
    async def script(connection: RawConnection) -> None:
        while (request := await connection.request()) is not None:
            path = request.split(b" ", 2)[1]
            await connection.send(CHUNKED + b"\r\n" + chunk_of(path))
            await asyncio.sleep(0)
            await connection.send(chunk_of(b"!") + b"0\r\n\r\n")

    async with RawServer(script) as server:
        for number in range(20):
            async with transport.stream(request_of(f"{server.url}/{number}")) as stream:
                async for _chunk in opened(stream):
                    break
            answer = await transport.send(request_of(f"{server.url}/next-{number}"))
            assert isinstance(answer, HttpResponse)
            assert answer.body == f"/oauth/token/next-{number}!".encode()
