"""A wire to PostgreSQL that is cut at the worst moment, or goes silent.

proxy.cut_before()   the next statement never reaches the server
proxy.cut_after()    it reaches the server and is carried out; its answer never comes back
proxy.stall()        nothing goes through any more, and nobody says so
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from urllib.parse import parse_qs, urlencode, urlsplit

EXECUTE = b"E\x00\x00\x00\x09\x00\x00\x00\x00\x00"  # run the bound statement
COMMIT = b"COMMIT;\x00"
READY = b"Z\x00\x00\x00\x05"  # the server is done with the request


class CuttingProxy:
    """Between a client and one server, over Unix sockets."""

    def __init__(self, server_socket: Path) -> None:
        self._server_socket = server_socket
        self._armed: tuple[str, bytes] | None = None
        self._flow = asyncio.Event()
        self._flow.set()
        self._pumps: set[asyncio.Task[None]] = set()
        self._idle = asyncio.Event()
        self.cuts = 0

    def cut_before(self, sign: bytes = EXECUTE) -> None:
        """Lose the next request that holds *sign*."""
        self._armed = ("before", sign)

    def cut_after(self, sign: bytes = EXECUTE) -> None:
        """Lose the answer to the next request that holds *sign*."""
        self._armed = ("after", sign)

    def stall(self) -> None:
        """Let nothing through, in either direction."""
        self._flow.clear()

    def flow(self) -> None:
        """Let what waits and what comes through again."""
        self._flow.set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection of a client."""
        upstream, up_writer = await asyncio.open_unix_connection(str(self._server_socket))
        cut = asyncio.Event()
        pumps = {
            asyncio.create_task(self._requests(reader, up_writer, cut)),
            asyncio.create_task(self._answers(upstream, writer, cut)),
        }
        self._pumps |= pumps
        await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        for pump in pumps:
            pump.cancel()
        await asyncio.gather(*pumps, return_exceptions=True)
        for end in (writer, up_writer):
            end.transport.abort()
            end.close()
            with suppress(OSError):
                await end.wait_closed()
        self._pumps -= pumps
        if not self._pumps:
            self._idle.set()

    async def _requests(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, cut: asyncio.Event
    ) -> None:
        while data := await reader.read(1 << 16):
            await self._flow.wait()
            if self._armed is not None and self._armed[1] in data:
                (when, _), self._armed = self._armed, None
                self.cuts += 1
                if when == "before":
                    return
                cut.set()
            writer.write(data)
            await writer.drain()

    async def _answers(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, cut: asyncio.Event
    ) -> None:
        while data := await reader.read(1 << 16):
            await self._flow.wait()
            if cut.is_set():
                if READY in data:
                    return
                continue
            writer.write(data)
            await writer.drain()

    async def close(self) -> None:
        """End what is open."""
        while self._pumps:
            self._idle.clear()
            for pump in self._pumps:
                pump.cancel()
            await self._idle.wait()


@asynccontextmanager
async def cutting_proxy(url: str) -> AsyncIterator[tuple[CuttingProxy, str]]:
    """Yield a proxy in front of the server of *url*, and the URL through it."""
    parts = urlsplit(url)
    where = {name: values[0] for name, values in parse_qs(parts.query).items()}
    name = f".s.PGSQL.{where['port']}"
    folder = Path(tempfile.mkdtemp(prefix="cut-", dir="/tmp"))
    proxy = CuttingProxy(Path(where["host"]) / name)
    server = await asyncio.start_unix_server(proxy.serve, str(folder / name))
    try:
        yield proxy, parts._replace(query=urlencode(where | {"host": str(folder)})).geturl()
    finally:
        server.close()
        await proxy.close()
        shutil.rmtree(folder)
