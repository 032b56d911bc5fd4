"""PostgreSQL over TCP through a fault proxy, with a black hole in it.

In a black hole what is sent is not even acknowledged by the other end's system, as where a route is gone:
a socket filter drops it on arrival. That needs Linux and no privileges.
"""

from __future__ import annotations

import asyncio
import ctypes
import socket
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.faults.support.faultproxy import FaultProxy

_ATTACH_FILTER, _DETACH_FILTER = 26, 27  # asm-generic/socket.h
_ESTABLISHED = "01"  # in /proc/net/tcp


class _Filter(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_void_p))


_NOTHING = ctypes.create_string_buffer(struct.pack("HBBI", 0x06, 0, 0, 0))  # BPF: return 0, keep no byte
_DROP_ALL = bytes(_Filter(1, ctypes.addressof(_NOTHING)))


class TcpWire(FaultProxy):
    """Made by `postgres_over_tcp`."""

    def __init__(self, upstream: str) -> None:
        super().__init__(lambda: asyncio.open_unix_connection(upstream), sql=True)
        self._sockets: set[Any] = set()
        self.port = 0

    def listens(self, listener: Any) -> None:
        """Told once."""
        self._sockets.add(listener)
        self.port = listener.getsockname()[1]

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        ours = writer.get_extra_info("socket")
        self._sockets.add(ours)
        try:
            await super().serve(reader, writer)
        finally:
            self._sockets.discard(ours)

    def black_hole(self) -> None:
        """Swallow what comes, connection requests too, and say nothing, until `heal`."""
        self.stall()
        self._all(lambda sock: sock.setsockopt(socket.SOL_SOCKET, _ATTACH_FILTER, _DROP_ALL))

    def heal(self) -> None:
        self._all(lambda sock: sock.setsockopt(socket.SOL_SOCKET, _DETACH_FILTER, 0))
        super().heal()

    def _all(self, do: Callable[[Any], object]) -> None:
        for sock in self._sockets:
            try:
                do(sock)
            except OSError:  # it has none, or it is gone
                continue

    def standing(self) -> set[str]:
        """The clients' ends of connections to here, as far as their system holds them for established."""
        lines = [line.split()[1:4] for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
        here = f":{self.port:04X}"
        return {ours for ours, other, state in lines if other.endswith(here) and state == _ESTABLISHED}


@asynccontextmanager
async def postgres_over_tcp(url: str, host: str = "127.0.0.1") -> AsyncIterator[tuple[TcpWire, str]]:
    """A proxy before the server of *url* (on a Unix socket), and the URL that goes through it to *host*."""
    parts = urlsplit(url)
    where = {name: values[0] for name, values in parse_qs(parts.query).items()}
    wire = TcpWire(str(Path(where["host"]) / f".s.PGSQL.{where['port']}"))
    server = await asyncio.start_server(wire.serve, "127.0.0.1", 0)
    wire.listens(server.sockets[0])
    try:
        netloc = f"{parts.netloc.rpartition('@')[0]}@{host}:{wire.port}"
        yield wire, parts._replace(netloc=netloc, query="").geturl()
    finally:
        wire.heal()
        server.close()
        await wire.close()
