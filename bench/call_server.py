"""The API of the benchmark of calls, in a process of its own, with small responses.

It prints its URL and ends with its standard input. A request without a bearer token is refused, so a side
cannot omit it. It runs on uvloop if that is installed, to use little CPU.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from typing import Any

ANSWER = json.dumps(
    {
        "orders": [
            {"id": 5_001_000 + number, "name": f"#{1000 + number}", "total_price": "19.90", "currency": "EUR"}
            for number in range(3)
        ]
    }
).encode()


def _answer(status: str, body: bytes) -> bytes:
    head = f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


OK, UNAUTHORIZED = _answer("200 OK", ANSWER), _answer("401 Unauthorized", b"{}")


class _Api(asyncio.Protocol):
    """One connection. Requests have no bodies and are not pipelined."""

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        self._head = b""

    def data_received(self, data: bytes) -> None:
        self._head += data
        if self._head.endswith(b"\r\n\r\n"):
            is_authorized = b"authorization: bearer " in self._head.lower()
            self._head = b""
            self._transport.write(OK if is_authorized else UNAUTHORIZED)


async def _serve() -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(_Api, "127.0.0.1", 0, backlog=1024)
    port = server.sockets[0].getsockname()[1]
    print(json.dumps({"url": f"http://127.0.0.1:{port}"}), flush=True)
    await loop.run_in_executor(None, sys.stdin.read)


def main() -> None:
    """Serve until standard input ends."""
    with contextlib.suppress(ImportError):
        import uvloop

        uvloop.install()
    asyncio.run(_serve())


if __name__ == "__main__":
    main()
