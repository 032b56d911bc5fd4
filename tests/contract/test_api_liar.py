"""The liar sends what each lie promises, byte for byte; what a client makes of it is that client's suite."""

from __future__ import annotations

import asyncio
import gzip
import json
import zlib
from collections.abc import AsyncIterator

import pytest

from fairlead.testing.api import MALFORMED_RESPONSES, MalformedApi


class Line:
    """One connection to the liar."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    async def ask(self, lie: str) -> None:
        self._writer.write(
            f"GET /acme/liar/{lie} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer t\r\n\r\n".encode()
        )
        await self._writer.drain()

    async def all(self) -> bytes:
        """What comes until the liar hangs up."""
        return await self._reader.read()

    async def until(self, end: bytes) -> bytes:
        return await self._reader.readuntil(end)

    async def exactly(self, count: int) -> bytes:
        return await self._reader.readexactly(count)

    def close(self) -> None:
        self._writer.close()


@pytest.fixture
async def api() -> AsyncIterator[MalformedApi]:
    async with MalformedApi() as running:
        yield running


@pytest.fixture
async def line(api: MalformedApi) -> AsyncIterator[Line]:
    reader, writer = await asyncio.open_connection("127.0.0.1", api.port, limit=1 << 26)
    yield Line(reader, writer)
    writer.close()


async def whole_exchange(line: Line, lie: str) -> tuple[bytes, bytes]:
    """Head and body of an answer that is honest about its length."""
    await line.ask(lie)
    head = await line.until(b"\r\n\r\n")
    (length,) = (
        int(header.partition(b":")[2])
        for header in head.split(b"\r\n")
        if header.lower().startswith(b"content-length")
    )
    return head, await line.exactly(length)


async def chunks(line: Line) -> AsyncIterator[bytes]:
    while size := int(await line.until(b"\r\n"), 16):
        yield (await line.exactly(size + 2))[:-2]


HONEST = {
    "bad_utf8", "bom", "deep", "duplicate_keys", "empty", "gzip_in_gzip", "gzip_members", "gzip_trailing",
    "gzip_truncated", "html", "html_as_json", "huge_float", "json_as_text", "large_header", "lone_surrogate",
    "long_number", "many_headers", "nan", "nul", "obs_fold", "proto", "redirect", "retry_after",
    "unknown_encoding", "utf16", "wrong_encoding",
}  # fmt: skip
CUT = {
    "bad_chunk", "cut_body", "cut_head", "http_09", "length_long", "length_negative", "length_twice",
    "not_http", "reset",
}  # fmt: skip
OTHERS = {
    "early_hints", "endless", "gzip_bomb", "leftover", "length_and_chunks", "length_short", "silent",
    "slow_body", "slow_head", "switching", "wide",
}  # fmt: skip


def test_each_lie_is_looked_at_here() -> None:
    assert set(MALFORMED_RESPONSES) == HONEST | CUT | OTHERS


@pytest.mark.parametrize("lie", sorted(HONEST))
async def test_a_lie_in_an_honest_frame_leaves_the_line_usable(
    api: MalformedApi, line: Line, lie: str
) -> None:
    first = await whole_exchange(line, lie)
    assert await whole_exchange(line, lie) == first
    assert [arrival.authorization for arrival in api.ledger.arrivals] == ["Bearer t"] * 2


@pytest.mark.parametrize("lie", sorted(CUT))
async def test_a_lie_that_ends_the_line(line: Line, lie: str) -> None:
    await line.ask(lie)
    if lie == "reset":
        with pytest.raises(ConnectionResetError):
            await line.all()
        return
    raw = await line.all()
    head, _, body = raw.partition(b"\r\n\r\n")
    expected = {
        "bad_chunk": b"zz\r\n" in body,
        "cut_body": body == b'{"ok":true',
        "cut_head": not body,
        "http_09": raw == b'{"ok":true}',
        "length_long": b"Content-Length: 500" in head and len(body) == 11,
        "length_negative": b"Content-Length: -1" in head,
        "length_twice": head.count(b"Content-Length") == 2,
        "not_http": not raw.startswith(b"HTTP"),
    }
    assert expected[lie]


async def test_zips_are_what_they_say(line: Line) -> None:
    ok = b'{"ok":true}'
    _, members = await whole_exchange(line, "gzip_members")
    compressed = gzip.compress(b" ", mtime=0)
    assert (len(members) // len(compressed), members.count(compressed)) == (100_001, 100_000)
    assert gzip.decompress(members[99_999 * len(compressed) :]) == b" " + ok
    _, twice = await whole_exchange(line, "gzip_in_gzip")
    assert gzip.decompress(gzip.decompress(twice)) == ok
    _, torn = await whole_exchange(line, "gzip_truncated")
    with pytest.raises(EOFError):
        gzip.decompress(torn)
    head, plain = await whole_exchange(line, "wrong_encoding")
    assert (b"Content-Encoding: gzip" in head, plain) == (True, ok)


@pytest.mark.parametrize("mib", [1, 30])
async def test_a_bomb_is_a_sound_gzip_a_thousand_times_smaller(line: Line, mib: int) -> None:
    await line.ask(f"gzip_bomb?mib={mib}")
    head = await line.until(b"\r\n\r\n")
    assert b"Content-Encoding: gzip" in head
    packed = b"".join([chunk async for chunk in chunks(line)])
    assert len(packed) < mib * 2048
    unpacker = zlib.decompressobj(31)
    assert unpacker.decompress(packed) == bytes(mib << 20)
    assert unpacker.eof


async def test_a_wide_answer_is_sound_json(line: Line) -> None:
    await line.ask("wide?mib=1")
    await line.until(b"\r\n\r\n")
    packed = b"".join([chunk async for chunk in chunks(line)])
    assert len(packed) < 4096
    first, *rest = json.loads(gzip.decompress(packed))
    assert (first, len(rest), rest.count([])) == (0, (1 << 20) // 3, (1 << 20) // 3)


async def test_early_hints_come_before_the_answer(line: Line) -> None:
    await line.ask("early_hints?count=300")
    for _ in range(300):
        assert (await line.until(b"\r\n\r\n")).startswith(b"HTTP/1.1 103")
    assert (await line.until(b"\r\n\r\n")).startswith(b"HTTP/1.1 200")


async def test_bytes_of_another_answer_are_left_over(line: Line) -> None:
    await line.ask("leftover")
    await line.until(b'{"ok":true}')
    assert (await line.until(b'"}')).endswith(b'{"tenant":"another"}')


async def test_endless_goes_on_until_the_client_leaves(api: MalformedApi, line: Line) -> None:
    await line.ask("endless")
    await line.until(b"\r\n\r\n")
    assert len(await line.exactly(4 << 20)) == 4 << 20
    line.close()
    await api.quiet()


@pytest.mark.parametrize("lie", ["slow_head", "slow_body"])
async def test_slow_comes_byte_by_byte_and_ends_with_the_client(
    api: MalformedApi, line: Line, lie: str
) -> None:
    await line.ask(f"{lie}?pace_s=0")
    polite = await line.until(b'{"ok":true}')
    await line.ask(f"{lie}?pace_s=0.01")
    assert (await line.until(b"\r\n\r\n")) + b'{"ok":true}' == polite
    line.close()
    await api.quiet()


async def test_silence_ends_with_the_client(api: MalformedApi, line: Line) -> None:
    await line.ask("silent")
    await api.connected.wait()
    line.close()
    await api.quiet()
    assert api.ledger.arrived() == 1


async def test_a_length_too_short_leaves_the_rest_on_the_line(line: Line) -> None:
    await line.ask("length_short")
    assert await line.until(b"true}") == (
        b'HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 5\r\n\r\n{"ok":true}'
    )


async def test_length_and_chunks_at_once(line: Line) -> None:
    await line.ask("length_and_chunks")
    head = await line.until(b"\r\n\r\n")
    assert (b"Content-Length: 11" in head, b"chunked" in head) == (True, True)
    assert [chunk async for chunk in chunks(line)] == [b'{"ok":true}']


async def test_switching_unasked(line: Line) -> None:
    await line.ask("switching")
    assert (await line.until(b"\r\n\r\n")).startswith(b"HTTP/1.1 101")


async def test_hints_are_sent_as_asked(line: Line) -> None:
    head, _ = await whole_exchange(line, "retry_after?value=%205%20&twice=nan&status=503")
    assert head.startswith(b"HTTP/1.1 503")
    assert [header for header in head.split(b"\r\n") if header.startswith(b"Retry-After")] == [
        b"Retry-After:  5 ",
        b"Retry-After: nan",
    ]


@pytest.mark.parametrize("lie", ["deep", "long_number"])
async def test_bodies_that_break_parsers_do(line: Line, lie: str) -> None:
    _, body = await whole_exchange(line, lie)
    with pytest.raises((RecursionError, ValueError)):
        json.loads(body)


async def test_other_paths_are_answered_politely(line: Line) -> None:
    await line.ask("no_such_lie")
    assert (await line.until(b"}")).startswith(b"HTTP/1.1 404")
