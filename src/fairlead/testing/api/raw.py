"""A server without an HTTP library: a script reads and writes bytes, and all received bytes are recorded.

    async with RawServer(script) as server: ...

*script* is called with each connection. Compare what a client claims to have sent with `received` and `arrivals`.
"""

from __future__ import annotations

import asyncio
import ssl
import struct
from collections.abc import Awaitable, Callable
from contextlib import suppress
from socket import SO_LINGER, SOL_SOCKET
from typing import Self

OK = b'HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 11\r\n\r\n{"ok":true}'


class RawConnection:
    """One connection of a client."""

    def __init__(self, number: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.number = number
        self.received = bytearray()
        self.arrivals: list[bytes] = []
        self._reader = reader
        self._writer = writer

    async def request(self) -> bytes | None:
        """Read the next whole request; None if the client closed the connection before its end."""
        start = len(self.received)
        while True:
            head, end, body = bytes(self.received[start:]).partition(b"\r\n\r\n")
            length = _content_length(head) if end else 0
            if end and len(body) >= length:
                self.arrivals.append(head + end + body[:length])
                return self.arrivals[-1]
            if not await self.more():
                return None

    async def more(self) -> bytes:
        """Read more bytes; empty if the client has closed the connection."""
        try:
            data = await self._reader.read(1 << 16)
        except ConnectionError:
            data = b""
        self.received += data
        return data

    async def send(self, data: bytes) -> None:
        """Send *data*; a closed connection is no error."""
        self._writer.write(data)
        with suppress(ConnectionError):
            await self._writer.drain()

    @property
    def is_closed(self) -> bool:
        """Whether the connection is closed."""
        return self._writer.transport.is_closing()

    def hang_up(self, *, reset: bool = False) -> None:
        """Close the connection; with *reset* the client sees ECONNRESET."""
        if reset:  # a socket that does not linger says RST, not FIN
            socket = self._writer.get_extra_info("socket")
            socket.setsockopt(SOL_SOCKET, SO_LINGER, struct.pack("ii", 1, 0))
            self._writer.transport.abort()
        else:
            self._writer.close()


Script = Callable[[RawConnection], Awaitable[None]]


async def answer_all(connection: RawConnection) -> None:
    """Answer every request until the client closes the connection."""
    while await connection.request() is not None:
        await connection.send(OK)


def send_once(data: bytes) -> Script:
    """Return a script that answers the first request with *data* and closes the connection."""

    async def script(connection: RawConnection) -> None:
        if await connection.request() is not None:
            await connection.send(data)
        connection.hang_up()

    return script


class RawServer:
    """A server that runs *script* for each connection, with TLS if *tls* is given; *port* 0 takes a free one."""

    def __init__(
        self,
        script: Script = answer_all,
        tls: ssl.SSLContext | None = None,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
    ) -> None:
        self._script = script
        self._tls = tls
        self._host = host
        self._tasks: set[asyncio.Task[None]] = set()
        self.port = port
        self.connections: list[RawConnection] = []
        self.connected = asyncio.Event()

    async def start(self) -> None:
        """Listen; raise OSError when the port is taken."""
        self._server = await asyncio.start_server(self._serve, self._host, self.port, ssl=self._tls)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Close all connections."""
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_exc_info: object) -> None:
        await self.stop()

    @property
    def url(self) -> str:
        """The server's address; with TLS its host is localhost, as in the certificate."""
        return f"https://localhost:{self.port}" if self._tls else f"http://{self._host}:{self.port}"

    @property
    def received(self) -> int:
        """The number of bytes received on all connections."""
        return sum(len(connection.received) for connection in self.connections)

    @property
    def arrivals(self) -> list[bytes]:
        """The whole requests, in the order of their connections."""
        return [request for connection in self.connections for request in connection.arrivals]

    async def quiet(self) -> None:
        """Return once all connections are closed and all their bytes are recorded."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = RawConnection(len(self.connections) + 1, reader, writer)
        self.connections.append(connection)
        self.connected.set()
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            await self._script(connection)
            while await connection.more():
                pass
        except asyncio.CancelledError:  # the server is closing
            pass
        finally:
            self._tasks.discard(task)
            writer.close()


def _content_length(head: bytes) -> int:
    for line in head.split(b"\r\n"):
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length":
            return int(value)
    return 0
