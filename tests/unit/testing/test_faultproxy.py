"""The proxy of the experiments passes on what a side has said last, and lets it hear the other out."""

from __future__ import annotations

import asyncio

from tests.faults.support.faultproxy import tcp_proxy


async def _tell_at_the_end(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """A server that answers once it has heard everything."""
    request = await reader.read()
    writer.write(b"heard " + request)
    await writer.drain()
    writer.close()


async def test_client_that_closed_its_side_gets_its_response() -> None:
    server = await asyncio.start_server(_tell_at_the_end, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    async with server, tcp_proxy(f"http://{host}:{port}") as (proxy, url), asyncio.timeout(5):
        reader, writer = await asyncio.open_connection(*url.removeprefix("http://").split(":"))
        writer.write(b"all")
        writer.write_eof()
        assert await reader.read() == b"heard all"
        writer.close()
        await writer.wait_closed()
        assert proxy.cuts == 0
