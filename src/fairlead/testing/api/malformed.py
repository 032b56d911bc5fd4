"""Malformed responses, each as a script for one request.

Bombs are generated while they are sent, so they cost the server next to nothing.
Spec: V1, V2, V6, V7.
"""

from __future__ import annotations

import asyncio
import gzip
import struct
import zlib
from collections.abc import Awaitable, Callable, Mapping
from types import MappingProxyType

from fairlead.testing.api.raw import OK, RawConnection

Parameters = Mapping[str, str]
MalformedResponse = Callable[[RawConnection, Parameters], Awaitable[None]]
"""Answers one request on a connection, with the parameters of its query."""

_BODY = b'{"ok":true}'
_MIB = 1 << 20
_AT_ONCE = 1000
_GZIP_HEAD = b"\x1f\x8b\x08" + bytes(6) + b"\xff"


def answer(body: bytes, *headers: str, status: str = "200 OK", kind: str = "application/json") -> bytes:
    """Return a complete response with a correct Content-Length."""
    lines = [f"HTTP/1.1 {status}", f"Content-Type: {kind}", f"Content-Length: {len(body)}", *headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def _says(data: bytes, *, hangs_up: bool = False) -> MalformedResponse:
    async def respond(connection: RawConnection, parameters: Parameters) -> None:
        await connection.send(data)
        if hangs_up:
            connection.hang_up()

    return respond


def _json(text: str) -> MalformedResponse:
    return _says(answer(text.encode()))


def _zipped(body: bytes, *headers: str) -> MalformedResponse:
    return _says(answer(body, *(headers or ("Content-Encoding: gzip",))))


def _number(parameters: Parameters, name: str, default: float) -> float:
    try:
        return float(parameters.get(name, default))
    except ValueError:
        return default


async def _drip(connection: RawConnection, data: bytes, parameters: Parameters) -> None:
    """Send *data* byte by byte, ``pace_s`` (default 1) apart, until the client leaves."""
    for index in range(len(data)):
        if connection.is_closed:
            return
        await connection.send(data[index : index + 1])
        await asyncio.sleep(_number(parameters, "pace_s", 1.0))


async def slow_head(connection: RawConnection, parameters: Parameters) -> None:
    """Send the head at one byte a second."""
    await _drip(connection, OK, parameters)


async def slow_body(connection: RawConnection, parameters: Parameters) -> None:
    """Send the head at once, and the body at one byte a second."""
    await connection.send(OK[: -len(_BODY)])
    await _drip(connection, _BODY, parameters)


async def silent(connection: RawConnection, parameters: Parameters) -> None:
    """Send nothing until the client leaves."""
    while await connection.more():
        pass


async def reset(connection: RawConnection, parameters: Parameters) -> None:
    """Reset the connection."""
    connection.hang_up(reset=True)


def _bomb(block: bytes, begin: bytes = b"", end: bytes = b"") -> MalformedResponse:
    """Return a response of ``mib`` MiB of *block* (default 10), compressed to a few thousandths of that."""

    async def respond(connection: RawConnection, parameters: Parameters) -> None:
        packer = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS)
        first, packed = (packer.compress(part) + packer.flush(zlib.Z_FULL_FLUSH) for part in (begin, block))
        checksum, count = zlib.crc32(begin), int(_number(parameters, "mib", 10))
        await connection.send(_HEAD_CHUNKED_GZIP)
        await _chunk(connection, _GZIP_HEAD + first)
        for _ in range(count):
            if connection.is_closed:
                return
            checksum = zlib.crc32(block, checksum)
            await _chunk(connection, packed)
        size = len(begin) + count * len(block) + len(end) & 0xFFFFFFFF
        last = packer.compress(end) + packer.flush() + struct.pack("<II", zlib.crc32(end, checksum), size)
        await _chunk(connection, last)
        await connection.send(b"0\r\n\r\n")

    return respond


async def endless(connection: RawConnection, parameters: Parameters) -> None:
    """Send chunks until the client leaves."""
    await connection.send(_HEAD_CHUNKED)
    while not connection.is_closed:
        await _chunk(connection, b"x" * 65_536)


async def early_hints(connection: RawConnection, parameters: Parameters) -> None:
    """Send ``count`` responses 103 (default 10,000), and then the final one."""
    for _ in range(int(_number(parameters, "count", 10_000))):
        if connection.is_closed:
            return
        await connection.send(b"HTTP/1.1 103 Early Hints\r\nLink: </x.css>; rel=preload\r\n\r\n")
    await connection.send(OK)


async def retry_after(connection: RawConnection, parameters: Parameters) -> None:
    """Send a 429 with ``value`` in Retry-After, byte for byte; with ``twice``, two such headers."""
    header = f"Retry-After: {parameters.get('value', '')}"
    headers = (header, f"Retry-After: {parameters['twice']}") if "twice" in parameters else (header,)
    await connection.send(answer(b"{}", *headers, status=f"{parameters.get('status', '429')} Told"))


async def _chunk(connection: RawConnection, data: bytes) -> None:
    await connection.send(f"{len(data):x}\r\n".encode() + data + b"\r\n")


_HEAD_CHUNKED = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
_HEAD_CHUNKED_GZIP = _HEAD_CHUNKED[:-2] + b"Content-Encoding: gzip\r\n\r\n"
_ZIPPED = gzip.compress(_BODY, mtime=0)


def _head(length: str, body: bytes = _BODY) -> bytes:
    return f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n{length}\r\n\r\n".encode() + body


def _headers(count: int, size: int) -> MalformedResponse:
    async def respond(connection: RawConnection, parameters: Parameters) -> None:
        await connection.send(b"HTTP/1.1 200 OK\r\nContent-Length: 11\r\n")
        for first in range(0, count, _AT_ONCE):
            if connection.is_closed:
                return
            names = range(first, min(count, first + _AT_ONCE))
            await connection.send(b"".join(b"X-%d: %b\r\n" % (name, b"x" * size) for name in names))
        await connection.send(b"\r\n" + _BODY)

    return respond


MALFORMED_RESPONSES: Mapping[str, MalformedResponse] = MappingProxyType(
    {
        # V6: bodies and framing
        "slow_head": slow_head,
        "slow_body": slow_body,
        "silent": silent,
        "reset": reset,
        "cut_head": _says(OK[:40], hangs_up=True),
        "cut_body": _says(OK[:-1], hangs_up=True),
        "gzip_bomb": _bomb(bytes(_MIB)),
        "wide": _bomb(b",[]" * (_MIB // 3), b"[0", b"]"),  # JSON, and twenty times as large once it is read
        "gzip_members": _zipped(gzip.compress(b" ", mtime=0) * 100_000 + _ZIPPED),
        "gzip_in_gzip": _zipped(gzip.compress(_ZIPPED, mtime=0), "Content-Encoding: gzip, gzip"),
        "gzip_truncated": _zipped(_ZIPPED[:-9]),
        "gzip_trailing": _zipped(_ZIPPED + b"garbage"),
        "wrong_encoding": _zipped(_BODY),
        "unknown_encoding": _zipped(_BODY, "Content-Encoding: x-secret"),
        "endless": endless,
        "bad_chunk": _says(_HEAD_CHUNKED + b"zz\r\n{}\r\n0\r\n\r\n", hangs_up=True),
        "length_long": _says(_head("Content-Length: 500"), hangs_up=True),
        "length_short": _says(_head("Content-Length: 5")),
        "length_negative": _says(_head("Content-Length: -1"), hangs_up=True),
        "length_twice": _says(_head("Content-Length: 11\r\nContent-Length: 5"), hangs_up=True),
        "length_and_chunks": _says(
            _head("Content-Length: 11\r\nTransfer-Encoding: chunked", b"b\r\n" + _BODY + b"\r\n0\r\n\r\n")
        ),
        "many_headers": _headers(100_000, 1),
        "large_header": _headers(1, _MIB),
        "early_hints": early_hints,
        "leftover": _says(OK + answer(b'{"tenant":"another"}')),
        "http_09": _says(_BODY, hangs_up=True),
        "not_http": _says(b"SSH-2.0-OpenSSH_9.9\r\n", hangs_up=True),
        "switching": _says(
            b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: h2c\r\nConnection: Upgrade\r\n\r\n"
        ),
        "redirect": _says(answer(b"", "Location: http://169.254.169.254/latest/", status="302 Found")),
        "obs_fold": _says(answer(_BODY, "X-A: b\r\n c: d")),
        # V7: text
        "bad_utf8": _says(answer(b'{"name":"\xff\xfe"}')),
        "utf16": _says(answer('{"name":"é"}'.encode("utf-16"))),
        "bom": _says(answer(b"\xef\xbb\xbf" + _BODY)),
        "lone_surrogate": _json('{"name":"\\ud800"}'),
        "nul": _json('{"name":"a\\u0000b"}'),
        "nan": _json('{"cost":NaN,"rate":Infinity,"level":-Infinity}'),
        "huge_float": _json('{"cost":1e400}'),
        "deep": _json("[" * 100_000 + "]" * 100_000),
        "long_number": _json('{"cost":' + "9" * 5000 + "}"),
        "proto": _json('{"__proto__":{"admin":true},"ok":true}'),
        "duplicate_keys": _json('{"ok":true,"ok":false}'),
        "html": _says(answer(b"<!doctype html><h1>Request blocked</h1>", kind="text/html")),
        "html_as_json": _says(answer(b"<!doctype html><h1>Request blocked</h1>")),
        "json_as_text": _says(answer(_BODY, kind="text/plain; charset=klingon")),
        "empty": _says(answer(b"")),
        # V1, V2: hints
        "retry_after": retry_after,
    }
)
"""All responses by name."""
