"""Waits on this host for the browser that returns from a consent with a code (RFC 8252 §7.3).

It listens on the loopback address only and knows one path. A request with another state is refused and
changes nothing, so no other program on this host can end or replace the consent; the first with the right one ends it.
"""

from __future__ import annotations

import asyncio
import hmac
from types import TracebackType
from typing import Self
from urllib.parse import parse_qsl, urlsplit

from fairlead._core.secret import Secret
from fairlead.errors import InvalidConfigError, InvalidInputError, RefusedError

MAX_REQUEST_BYTES = 16 << 10
MAX_FIELDS = 32
READ_TIMEOUT_S = 10.0

_PAGES = {
    200: "The response has arrived. Close this window: the terminal says whether it was accepted.",
    400: "This response belongs to another consent. Nothing was changed.",
    404: "There is nothing here.",
    410: "A response to this consent has arrived already.",
}
_HEADERS = (
    "Content-Type: text/plain; charset=utf-8",
    "Cache-Control: no-store",
    "Referrer-Policy: no-referrer",
    "Connection: close",
)


def callback_fields(address: str) -> dict[str, str]:
    """Return the query of the address that the browser was redirected to.

    Raises:
        InvalidInputError: The address cannot be parsed, or names a field twice.
    """
    try:
        fields = parse_qsl(urlsplit(address).query, keep_blank_values=True, max_num_fields=MAX_FIELDS)
    except ValueError:
        raise InvalidInputError("the pasted URL cannot be parsed", hint="paste the whole URL") from None
    if len(dict(fields)) != len(fields):
        raise InvalidInputError("the pasted URL has a field twice", hint="start the consent again")
    return dict(fields)


class Callback:
    """A server at *redirect_uri*; port 0 takes a free one. Use it with ``async with``."""

    def __init__(self, redirect_uri: str) -> None:
        parts = urlsplit(redirect_uri)
        self._host, self._path = parts.hostname or "127.0.0.1", parts.path or "/"
        self._port = parts.port if parts.port is not None else 80
        self._server: asyncio.Server | None = None
        self._state: Secret | None = None
        self._answer: asyncio.Future[dict[str, str]] | None = None
        self.redirect_uri = redirect_uri

    async def __aenter__(self) -> Self:
        try:
            self._server = await asyncio.start_server(
                self._serve, self._host, self._port, limit=MAX_REQUEST_BYTES
            )
        except OSError as error:
            raise InvalidConfigError(
                f"{self._host}:{self._port} cannot be bound: {error.strerror}",
                hint="give another --redirect-uri (port 0 takes a free one)",
            ) from None
        port = self._server.sockets[0].getsockname()[1]
        shown = f"[{self._host}]" if ":" in self._host else self._host
        self.redirect_uri = f"http://{shown}:{port}{self._path}"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._server is not None:
            self._server.close()
            await self._server.wait_closed()

    async def wait(self, state: Secret, timeout_s: float) -> dict[str, str]:
        """Wait for the request that carries *state*, and return its query.

        Raises:
            RefusedError: None came within *timeout_s*.
        """
        self._state, self._answer = state, asyncio.get_running_loop().create_future()
        try:
            async with asyncio.timeout(timeout_s):
                return await self._answer
        except TimeoutError:
            raise RefusedError(f"no consent was given within {timeout_s:g} s", hint="run it again") from None

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(READ_TIMEOUT_S):
                head = await reader.readuntil(b"\r\n\r\n")
                status = self._check(head.split(b"\r\n", 1)[0].decode("ascii", "replace"))
                page = _PAGES[status]
                lines = [f"HTTP/1.1 {status} -", *_HEADERS, f"Content-Length: {len(page)}", "", page]
                writer.write("\r\n".join(lines).encode())
                await writer.drain()
        except (TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, OSError):
            pass  # not a browser that returns from a consent
        finally:
            writer.close()

    def _check(self, request_line: str) -> int:
        """Return the HTTP status of the response, and pass the fields of the expected request to `wait`."""
        method, _, rest = request_line.partition(" ")
        address = rest.partition(" ")[0]
        try:
            path, fields = urlsplit(address).path, callback_fields(address)
        except (ValueError, InvalidInputError):
            return 400
        if method != "GET" or path != self._path or self._answer is None:
            return 404
        expected = self._state.reveal() if self._state else ""
        if not hmac.compare_digest(fields.get("state", "").encode(), expected.encode()):
            return 400
        if self._answer.done():
            return 410
        self._answer.set_result(fields)
        return 200
