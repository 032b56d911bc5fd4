"""A server that lies when asked to, for clients that have to survive it.

    async with LiarApi() as api:
        ...  # GET {api.url}/{any}/liar/gzip_bomb?mib=10240

Every path that ends with ``/liar/NAME`` is answered by that lie, any other path politely. The names are those
of `LIES`. It is no HTTP server that could be confused: it reads whole requests and writes bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar
from urllib.parse import parse_qsl, urlsplit

from fairlead._core.clock import Clock
from fairlead.testing._kit.clock import SystemClock
from fairlead.testing.api.malformed import MALFORMED_RESPONSES, answer
from fairlead.testing.api.raw import OK, RawConnection, RawServer
from fairlead.testing.api.request_log import RequestLog

_UNKNOWN = answer(b'{"error":"there is no such lie"}', status="404 Not Found")


class MalformedApi(RawServer):
    """One running liar on 127.0.0.1. *clock* (default: the real one) times its ledger."""

    name: ClassVar[str] = "liar"

    def __init__(self, *, clock: Clock | None = None, host: str = "127.0.0.1", port: int = 0) -> None:
        super().__init__(self._answer_all, host=host, port=port)
        self.ledger = RequestLog((clock or SystemClock()).monotonic)

    async def _answer_all(self, connection: RawConnection) -> None:
        while (request := await connection.request()) is not None and not connection.gone:
            await self._answer(connection, request)

    async def _answer(self, connection: RawConnection, request: bytes) -> None:
        method, target, headers = _head(request)
        arrival = self.ledger.begin(
            target.split("/")[1] if "/" in target else "", method, target, headers.get("authorization", "")
        )
        self.ledger.admit(arrival)
        path, asked = urlsplit(target).path, dict(parse_qsl(urlsplit(target).query, keep_blank_values=True))
        before, _, name = path.rpartition("/")
        try:
            if not before.endswith("/liar"):
                await connection.say(OK)
            elif name in MALFORMED_RESPONSES:
                await MALFORMED_RESPONSES[name](connection, asked)
            else:
                await connection.say(_UNKNOWN)
        finally:
            self.ledger.end(arrival, None, None)


def _head(request: bytes) -> tuple[str, str, Mapping[str, str]]:
    lines = request.partition(b"\r\n\r\n")[0].decode("latin-1").split("\r\n")
    method, _, rest = lines[0].partition(" ")
    pairs = (line.partition(":") for line in lines[1:])
    return method, rest.rpartition(" ")[0], {name.lower(): value.strip() for name, _, value in pairs}
