"""A server that knows no HTTP library: it does what a test tells it, byte by byte, and counts what arrived.

    async with RawServer(script) as server: ...

*script* is called with each connection. The ledger (`received`, `arrivals`) is the truth that a client's own
account of what it sent is compared with.
"""

from __future__ import annotations

import asyncio
import datetime
import ssl
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

OK = b'HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 11\r\n\r\n{"ok":true}'
BODY = b'{"ok":true}'


class RawConnection:
    """One connection, as the server sees it."""

    def __init__(self, number: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.number = number
        self.received = bytearray()
        self.arrivals: list[bytes] = []
        self._reader = reader
        self._writer = writer

    async def request(self) -> bytes | None:
        """The next whole request, or None if the client hung up before its end."""
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
        """Whatever comes next; empty when the client has hung up."""
        try:
            data = await self._reader.read(1 << 16)
        except ConnectionError:
            data = b""
        self.received += data
        return data

    async def say(self, data: bytes) -> None:
        """Send *data*; a client that is gone is no error."""
        self._writer.write(data)
        with suppress(ConnectionError):
            await self._writer.drain()

    @property
    def gone(self) -> bool:
        """Whether the client has hung up."""
        return self._writer.transport.is_closing()

    def hang_up(self, *, reset: bool = False) -> None:
        """Close; with *reset* the client sees ECONNRESET."""
        if reset:
            self._writer.transport.abort()
        else:
            self._writer.close()


Script = Callable[[RawConnection], Awaitable[None]]


async def answer_all(connection: RawConnection) -> None:
    """Answer every request until the client hangs up."""
    while await connection.request() is not None:
        await connection.say(OK)


def say_once(data: bytes) -> Script:
    """Answer the first request with *data* and hang up."""

    async def script(connection: RawConnection) -> None:
        if await connection.request() is not None:
            await connection.say(data)
        connection.hang_up()

    return script


class RawServer:
    """Serves *script* on 127.0.0.1, with TLS if *tls* is given."""

    def __init__(self, script: Script = answer_all, tls: ssl.SSLContext | None = None) -> None:
        self._script = script
        self._tls = tls
        self._tasks: set[asyncio.Task[None]] = set()
        self.connections: list[RawConnection] = []
        self.connected = asyncio.Event()

    async def __aenter__(self) -> RawServer:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=self._tls)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_exc_info: object) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    @property
    def url(self) -> str:
        scheme = "https" if self._tls else "http"
        host = "localhost" if self._tls else "127.0.0.1"
        return f"{scheme}://{host}:{self.port}/oauth/token"

    @property
    def received(self) -> int:
        """Bytes that came in on all connections."""
        return sum(len(connection.received) for connection in self.connections)

    @property
    def arrivals(self) -> list[bytes]:
        """Whole requests, in the order of their connections."""
        return [request for connection in self.connections for request in connection.arrivals]

    async def quiet(self) -> None:
        """Return once all clients have hung up and all that they sent is counted."""
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


def tls_contexts(
    folder: Path, host: str = "localhost", *, valid_for: datetime.timedelta = datetime.timedelta(days=1)
) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """A server's context with a new certificate for *host*, and a client's that trusts it."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, host)])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=2))
        .not_valid_after(now + valid_for)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(host)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem = folder / "server.pem"
    pem.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        + certificate.public_bytes(serialization.Encoding.PEM)
    )
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(pem)
    return server, ssl.create_default_context(cafile=pem)


def _content_length(head: bytes) -> int:
    for line in head.split(b"\r\n"):
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length":
            return int(value)
    return 0
