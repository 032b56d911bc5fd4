"""A server that sends malformed responses on request, for clients that have to survive them.

    async with MalformedApi() as api:
        ...  # GET {api.url}/{any}/liar/gzip_bomb?mib=10240

A path that ends with ``/liar/NAME`` gets that response of `MALFORMED_RESPONSES`, any other path a valid one.
It uses no HTTP library: it reads whole requests and writes bytes.
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
    """A server of malformed responses; *clock* (default: the real one) times its ledger."""

    name: ClassVar[str] = "liar"

    def __init__(self, *, clock: Clock | None = None, host: str = "127.0.0.1", port: int = 0) -> None:
        super().__init__(self._answer_all, host=host, port=port)
        self.ledger = RequestLog((clock or SystemClock()).monotonic)

    async def _answer_all(self, connection: RawConnection) -> None:
        while (request := await connection.request()) is not None and not connection.is_closed:
            await self._answer(connection, request)

    async def _answer(self, connection: RawConnection, request: bytes) -> None:
        method, target, headers = _head(request)
        arrival = self.ledger.begin(
            target.split("/")[1] if "/" in target else "", method, target, headers.get("authorization", "")
        )
        self.ledger.admit(arrival)
        url = urlsplit(target)
        parameters = dict(parse_qsl(url.query, keep_blank_values=True))
        prefix, _, name = url.path.rpartition("/")
        try:
            if not prefix.endswith("/liar"):
                await connection.send(OK)
            elif name in MALFORMED_RESPONSES:
                await MALFORMED_RESPONSES[name](connection, parameters)
            else:
                await connection.send(_UNKNOWN)
        finally:
            self.ledger.end(arrival, None, None)


def _head(request: bytes) -> tuple[str, str, Mapping[str, str]]:
    lines = request.partition(b"\r\n\r\n")[0].decode("latin-1").split("\r\n")
    method, _, rest = lines[0].partition(" ")
    pairs = (line.partition(":") for line in lines[1:])
    return method, rest.rpartition(" ")[0], {name.lower(): value.strip() for name, _, value in pairs}
