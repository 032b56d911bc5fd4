"""A wire between a client and one server that a test can make slow, silent or broken, TCP or Unix socket.

    pass · delay · stall (no data, no reset) · refuse · reset · cut after n bytes · cut on a pattern

Over PostgreSQL's protocol a pattern is the text of a statement, so a cut meets the statement that is meant.
``before``: it never reaches the server. ``between``: it was forwarded, and nobody waits for its outcome.
``after``: the server has carried it out and its answer is swallowed, ``within``: but for its first bytes.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal
from urllib.parse import parse_qs, urlencode, urlsplit

from fairlead.adapters.postgres.statements import statement_names
from tests.faults.support.pgwire import Answers, Requests

When = Literal["before", "between", "within", "after"]
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]

CHUNK = 1 << 16
FIRST_BYTES = 7  # more than a message's head, less than any answer


@dataclass(eq=False)
class Cut:
    """The next *left* statements that hold *sign* end their connection, after *skip* of them were let pass.

    *away*: and all others go with it, as `FaultProxy.away` has it.
    """

    sign: str
    when: When
    left: int = 1
    skip: int = 0
    away: bool = False

    def meets(self) -> bool:
        """Whether it cuts the statement that has come."""
        if self.skip:
            self.skip -= 1
            return False
        self.left -= 1
        return True


@dataclass(eq=False)
class _Wire:
    """One connection through the proxy."""

    client: Streams
    server: Streams
    requests: Requests = field(default_factory=Requests)
    answers: Answers = field(default_factory=Answers)
    met: Cut | None = None
    open_transaction: bool = False
    answered_bytes: int = 0


class FaultProxy:
    """Made by `tcp_proxy` and `postgres_proxy`. *sql* False: bytes are passed as they are."""

    def __init__(self, connect: Callable[[], Awaitable[Streams]], *, sql: bool) -> None:
        self._connect = connect
        self._sql = sql
        self._wires: set[asyncio.Task[None]] = set()
        self._flow = asyncio.Event()
        self._flow.set()
        self._refusing = False
        self._cuts: list[Cut] = []
        self.delay_s: Callable[[], float] = lambda: 0.0
        self.cut_after_bytes: int | None = None  # of the server's answers on one connection
        self.cuts = 0
        self.replayed_commits = 0  # COMMIT on a connection that has begun nothing (F6)

    # ---- what a test does with it

    def cut(self, sign: str, when: When, **more: Any) -> Cut:
        """Break the connection of the next statement whose text holds *sign*; *more* as in `Cut`.

        Raises `ValueError` for the mark of a statement that there is not: its cut would never be met.
        """
        if sign.startswith("/* ") and sign[3:-3] not in statement_names():
            raise ValueError(f"no statement is called {sign[3:-3]!r}")
        cut = Cut(sign, when, **more)
        self._cuts.append(cut)
        return cut

    def stall(self) -> None:
        """Let nothing through in either direction, and say nothing."""
        self._flow.clear()

    def away(self) -> None:
        """Reset every connection and refuse new ones, until `heal`."""
        self._refusing = True
        self.reset()

    def reset(self) -> None:
        """Break every connection there is."""
        for task in self._wires:
            task.cancel()

    def heal(self) -> None:
        """Pass everything again."""
        self._cuts.clear()
        self._refusing = False
        self._flow.set()

    def lead_to(self, url: str) -> None:
        """New connections go to the PostgreSQL of *url* from now on; those that there are stay."""
        self._connect = partial(asyncio.open_unix_connection, str(_socket(url)))

    # ---- the wire

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection of a client."""
        if self._refusing:
            writer.transport.abort()
            return
        wire = _Wire((reader, writer), await self._connect())
        task = asyncio.ensure_future(self._both_ways(wire))
        self._wires.add(task)
        # Cancelled at the end of a test, too: then the streams of asyncio want no exception of their handler.
        with suppress(asyncio.CancelledError):
            await asyncio.wait([task])
        task.cancel()
        await asyncio.wait([task])
        self._wires.remove(task)
        if wire.met is not None and wire.met.away:
            self.reset()
        for end in (writer, wire.server[1]):
            end.transport.abort()
            with suppress(OSError, asyncio.CancelledError):
                await end.wait_closed()

    async def _both_ways(self, wire: _Wire) -> None:
        """Until a side breaks or is cut; one that has only said its last word still hears the other out."""
        pumps = {
            asyncio.ensure_future(self._ask(wire)): wire.server[1],
            asyncio.ensure_future(self._answer(wire)): wire.client[1],
        }
        waiting = set(pumps)
        try:
            while waiting:
                ended, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                for pump in ended:
                    if pump.exception() is not None or not pump.result():
                        return
                    with suppress(OSError):
                        pumps[pump].write_eof()
        finally:
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)

    async def _ask(self, wire: _Wire) -> bool:
        """Forward what the client says; True at its end, False where the wire ends with a cut."""
        reader, writer = wire.client[0], wire.server[1]
        while data := await reader.read(CHUNK):
            await self._hold_up()
            for message, text in wire.requests.split(data) if self._sql else [(data, "")]:
                if not self._passes(wire, message, text):
                    return False
            await writer.drain()
        return True

    def _passes(self, wire: _Wire, message: bytes, text: str) -> bool:
        """Forward *message*; False where the wire ends with it."""
        self._watch(wire, text)
        runs = bool(text) and message[:1] in b"BQ"  # Parse only prepares it
        cut = next((cut for cut in self._cuts if runs and cut.left and cut.sign in text), None)
        if cut is not None and cut.meets():
            self.cuts += 1
            self._refusing = self._refusing or cut.away
            wire.met = cut
            if cut.when == "before":
                return False
        wire.server[1].write(message)
        sent = wire.met is not None and message[:1] in b"SQ"
        return not (sent and wire.met is not None and wire.met.when == "between")

    def _watch(self, wire: _Wire, text: str) -> None:
        word = text.lstrip().upper()
        if word.startswith("BEGIN"):
            wire.open_transaction = True
        elif word.startswith(("COMMIT", "ROLLBACK")):
            self.replayed_commits += word.startswith("COMMIT") and not wire.open_transaction
            wire.open_transaction = False

    async def _answer(self, wire: _Wire) -> bool:
        """Forward what the server says; as `_ask`."""
        reader, writer = wire.server[0], wire.client[1]
        while data := await reader.read(CHUNK):
            await self._hold_up()
            if wire.met is not None:
                if wire.met.when == "within" and not wire.answered_bytes:
                    wire.answered_bytes = FIRST_BYTES
                    writer.write(data[:FIRST_BYTES])
                    await writer.drain()
                if wire.answers.done(data):
                    return False
                continue
            if self.cut_after_bytes is not None:
                data = data[: self.cut_after_bytes - wire.answered_bytes]
                wire.answered_bytes += len(data)
            writer.write(data)
            await writer.drain()
            if self.cut_after_bytes is not None and wire.answered_bytes >= self.cut_after_bytes:
                return False
        return True

    async def _hold_up(self) -> None:
        delay_s = self.delay_s()
        if delay_s > 0:
            await asyncio.sleep(delay_s)
        await self._flow.wait()

    async def close(self) -> None:
        """End what is open."""
        while self._wires:
            self.reset()
            await asyncio.wait(list(self._wires))
            await asyncio.sleep(0)  # for `serve` to close both ends


def _socket(url: str) -> Path:
    """Where the PostgreSQL of *url* listens."""
    where = parse_qs(urlsplit(url).query)
    return Path(where["host"][0]) / f".s.PGSQL.{where['port'][0]}"


@asynccontextmanager
async def postgres_proxy(url: str) -> AsyncIterator[tuple[FaultProxy, str]]:
    """A proxy before the server of *url* (on a Unix socket), and the URL that goes through it."""
    parts = urlsplit(url)
    upstream = _socket(url)
    folder = Path(tempfile.mkdtemp(prefix="fault-", dir="/tmp"))  # short: socket paths end at 107 bytes
    proxy = FaultProxy(partial(asyncio.open_unix_connection, str(upstream)), sql=True)
    server = await asyncio.start_unix_server(proxy.serve, str(folder / upstream.name))
    port = upstream.name.rpartition(".")[2]
    try:
        yield proxy, parts._replace(query=urlencode({"host": str(folder), "port": port})).geturl()
    finally:
        server.close()
        await proxy.close()
        shutil.rmtree(folder)


@asynccontextmanager
async def tcp_proxy(url: str) -> AsyncIterator[tuple[FaultProxy, str]]:
    """A proxy before the HTTP server of *url*, and the URL that goes through it."""
    parts = urlsplit(url)
    proxy = FaultProxy(lambda: asyncio.open_connection(parts.hostname, parts.port), sql=False)
    server = await asyncio.start_server(proxy.serve, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    try:
        yield proxy, parts._replace(netloc=f"{host}:{port}").geturl()
    finally:
        server.close()
        await proxy.close()
