"""Poolers in transaction mode: a strict one of our own, and PgBouncer where it is installed.

Ours hands every transaction to another server connection than the one before, and cleans nothing up between
them. So whatever relies on a session (a prepared statement, SET, LISTEN, a session's lock) goes wrong at
once; and what asks for such a thing is noted besides. Like PgBouncer it refuses startup parameters that it
does not know.
"""

from __future__ import annotations

import asyncio
import os
import pwd
import re
import shutil
import struct
import subprocess
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import parse_qs, urlencode, urlsplit

SERVERS = 3
"""Server connections: at least two, so that the next one is another one."""
PARAMETERS = {"user", "database", "application_name", "client_encoding", "DateStyle", "TimeZone"}
_OF_A_SESSION = re.compile(
    r"\A\s*(/\*.*?\*/)?\s*(LISTEN|UNLISTEN|DISCARD|RESET|DECLARE|PREPARE|LOAD|CREATE\s+TEMP"
    r"|SET\s+(?!LOCAL\b|TRANSACTION\b|CONSTRAINTS\b))|\bpg_(try_)?advisory_lock",
    re.IGNORECASE | re.DOTALL,
)
_READY, _SYNC_POINTS, _TERMINATE = b"Z", b"QS", b"X"
_IDLE = b"I"


@dataclass
class TransactionPooler:
    """Made by `strict_pooler`. *of_a_session*: what was asked for that no transaction has."""

    server_socket: Path
    of_a_session: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    transactions: int = 0
    _idle: asyncio.Queue[_Server] = field(default_factory=asyncio.Queue)
    _opened: int = 0
    _clients: dict[asyncio.Task[None], asyncio.StreamWriter] = field(default_factory=dict)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection of a client."""
        task = asyncio.current_task()
        assert task is not None
        self._clients[task] = writer
        try:
            startup = await _startup(reader)
            if startup is not None and await self._greet(startup, writer):
                await self._transactions(reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass  # the client went
        finally:
            del self._clients[task]
            writer.close()

    async def close(self) -> None:
        """End all connections."""
        for writer in self._clients.values():
            writer.transport.abort()  # a reader sees the end of the stream
        await asyncio.gather(*self._clients)
        while not self._idle.empty():
            self._idle.get_nowait().writer.close()

    async def _greet(self, startup: dict[str, str], writer: asyncio.StreamWriter) -> bool:
        unknown = sorted(startup.keys() - PARAMETERS)
        if unknown:
            self.refused += unknown
            fields = (
                b"SFATAL\0VFATAL\0C08P01\0" + f"Munsupported startup parameter: {unknown[0]}\0\0".encode()
            )
            writer.write(_message(b"E", fields))
            await writer.drain()
            return False
        while self._opened < SERVERS:
            self._opened += 1
            self._idle.put_nowait(await _Server.open(self.server_socket, startup))
        server = await self._idle.get()
        self._idle.put_nowait(server)
        writer.write(_message(b"R", struct.pack("!I", 0)) + server.parameters)
        writer.write(_message(b"K", struct.pack("!II", 0, 0)) + _message(_READY, _IDLE))
        await writer.drain()
        return True

    async def _transactions(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        loan: _Loan | None = None
        try:
            while (message := await _read(reader))[:1] != _TERMINATE:
                self._note(message)
                if loan is None or loan.answers.done():
                    loan = await self._lend(writer)
                loan.pending += message[:1] in _SYNC_POINTS
                loan.server.writer.write(message)
        finally:
            if loan is not None and not loan.answers.done():  # its transaction is not ours to end
                loan.answers.cancel()
                loan.server.writer.close()
                self._opened -= 1

    async def _lend(self, writer: asyncio.StreamWriter) -> _Loan:
        """Yield the server connection that was idle for longest, for one transaction."""
        server = await self._idle.get()
        self.transactions += 1
        loan = _Loan(server)
        loan.answers = asyncio.create_task(self._answers(loan, writer))
        return loan

    async def _answers(self, loan: _Loan, writer: asyncio.StreamWriter) -> None:
        """Hand on what the server says, until it says that the transaction is over."""
        while True:
            answer = await _read(loan.server.reader)
            loan.pending -= answer[:1] == _READY
            over = loan.pending == 0 and answer[:1] == _READY and answer[5:6] == _IDLE
            if over:
                self._idle.put_nowait(loan.server)
            writer.write(answer)
            if over:
                return

    def _note(self, message: bytes) -> None:
        if message[:1] == b"Q":
            text = message[5:-1].decode()
        elif message[:1] == b"P":
            name, _, rest = message[5:].partition(b"\0")
            text = rest.partition(b"\0")[0].decode()
            if name:
                self.of_a_session.append(f"prepared {name.decode()}: {text}")
        else:
            return
        if _OF_A_SESSION.search(text):
            self.of_a_session.append(text)


@dataclass
class _Loan:
    """A server connection in the hands of one client. *pending*: requests without the end of an answer."""

    server: _Server
    pending: int = 0
    answers: asyncio.Task[None] = field(init=False)


@dataclass
class _Server:
    """One connection to the server. *parameters*: its parameter messages."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    parameters: bytes

    @classmethod
    async def open(cls, socket: Path, startup: dict[str, str]) -> _Server:
        reader, writer = await asyncio.open_unix_connection(str(socket))
        body = struct.pack("!I", 196_608)
        body += b"".join(part.encode() + b"\0" for pair in startup.items() for part in pair) + b"\0"
        writer.write(struct.pack("!I", len(body) + 4) + body)
        parameters = b""
        while (message := await _read(reader))[:1] != _READY:
            assert message[:1] != b"E", message
            parameters += message if message[:1] == b"S" else b""
        return cls(reader, writer, parameters)


async def _startup(reader: asyncio.StreamReader) -> dict[str, str] | None:
    """Return the client's parameters; None for a request to cancel, which is ignored."""
    size = int.from_bytes(await reader.readexactly(4), "big")
    body = await reader.readexactly(size - 4)
    if body[:4] != struct.pack("!I", 196_608):
        return None
    words = body[4:].rstrip(b"\0").decode().split("\0")
    return dict(zip(words[::2], words[1::2], strict=True))


async def _read(reader: asyncio.StreamReader) -> bytes:
    head = await reader.readexactly(5)
    return head + await reader.readexactly(int.from_bytes(head[1:], "big") - 4)


def _message(kind: bytes, body: bytes) -> bytes:
    return kind + struct.pack("!I", len(body) + 4) + body


# ---- where they listen -----------------------------------------------------------------------------


@asynccontextmanager
async def strict_pooler(url: str) -> AsyncIterator[tuple[TransactionPooler, str]]:
    """Yield our pooler in front of the server of *url*, and the URL through it."""
    server_socket, port = _socket(url)
    with _folder() as folder:
        pooler = TransactionPooler(server_socket)
        listening = await asyncio.start_unix_server(pooler.serve, str(folder / f".s.PGSQL.{port}"))
        try:
            yield pooler, _leading_to(url, folder)
        finally:
            listening.close()
            await pooler.close()


PGBOUNCER = """
[databases]
* = host={host} port={port} pool_size={servers}
[pgbouncer]
pool_mode = transaction
listen_addr =
listen_port = {port}
unix_socket_dir = {folder}
auth_type = trust
auth_file = {folder}/users
logfile = {folder}/log
"""


@asynccontextmanager
async def pgbouncer(url: str) -> AsyncIterator[tuple[None, str]]:
    """Yield the URL of the installed PgBouncer, with its defaults except for the mode."""
    program = shutil.which("pgbouncer")
    assert program is not None, "pgbouncer is not in PATH"
    server_socket, port = _socket(url)
    owner = pwd.getpwuid(server_socket.stat().st_uid).pw_name  # nobody else may use the socket
    with _folder() as folder:
        text = PGBOUNCER.format(host=server_socket.parent, port=port, folder=folder, servers=SERVERS)
        (folder / "settings").write_text(text)
        (folder / "users").write_text(f'"{urlsplit(url).username}" ""\n')
        command = [program, "-q", str(folder / "settings")]
        if os.geteuid() == 0:  # it refuses to be root
            for path in (folder, *folder.iterdir()):
                shutil.chown(path, owner)
            command += ["-u", owner]
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        try:
            async with asyncio.timeout(20):
                while not (folder / f".s.PGSQL.{port}").exists():
                    assert process.poll() is None, (folder / "log").read_text()
                    await asyncio.sleep(0.01)
            yield None, _leading_to(url, folder)
        finally:
            process.terminate()
            process.wait(timeout=20)


def _socket(url: str) -> tuple[Path, str]:
    where = parse_qs(urlsplit(url).query)
    port = where["port"][0]
    return Path(where["host"][0]) / f".s.PGSQL.{port}", port


def _leading_to(url: str, folder: Path) -> str:
    parts = urlsplit(url)
    where = {name: values[0] for name, values in parse_qs(parts.query).items()}
    return parts._replace(query=urlencode(where | {"host": str(folder)})).geturl()


@contextmanager
def _folder() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="pooler-", dir="/tmp"))
    folder.chmod(0o711)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
