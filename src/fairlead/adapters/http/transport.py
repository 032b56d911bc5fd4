"""The transport of calls: each request is sent at most once, and its response is bounded. Spec: C10, D7, P11.

    address allowed > connected with TLS > before the deadline > request > bounded response

Nothing is sent before InFlightCall.mark_sent(); any failure after it counts as sent. No redirect is followed,
no cookie stored, nothing resent. The checks of an origin and of a header's name are cached.
"""

from __future__ import annotations

import asyncio
import io
import math
import ssl
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import lru_cache

import aiohttp

from fairlead._core.secret import Secret
from fairlead.adapters.http.body import BodyTooLargeError, Decoder, MalformedBodyError
from fairlead.adapters.http.client_session import (
    TransportSettings,
    bounds_of,
    open_connector,
    timeout_of,
)
from fairlead.adapters.http.connection_shares import ConnectionShares
from fairlead.adapters.http.connector import DeadlinePassedError, current_request
from fairlead.adapters.http.exchange import (
    ConnectionContext,
    InFlightCall,
    OriginTemplate,
    PendingResponse,
    RawRequest,
    send_raw,
)
from fairlead.adapters.http.http_failures import no_response
from fairlead.adapters.http.http_transport import PUBLIC_ONLY, HttpTransport
from fairlead.adapters.http.resolver import AddressPolicy
from fairlead.adapters.http.wire import PLAIN_URL, check_value, checked_url, is_token, lower
from fairlead.engine.ports import (
    TRANSPORT_HEADERS,
    DialObserver,
    HttpRequest,
    HttpResponse,
    HttpStream,
    NoResponse,
    StreamBrokenError,
)
from fairlead.errors import InvalidInputError

CALL_SETTINGS = TransportSettings(keepalive_s=4.0, max_connections=500, max_per_host=300)
"""Idle connections are reused for 4 s, because some common servers close them after 5."""

_BUFFER_BYTES = 1 << 20  # for a body; a larger one gets four times as much, and so on
_MAX_ORIGINS = 20_000  # of 1.5 KB each; customers may have hosts of their own
_DEFAULT_HEADERS = {
    "accept": "Accept: */*\r\n",
    "accept-encoding": "Accept-Encoding: gzip, deflate\r\n",
    "user-agent": "User-Agent: fairlead\r\n",
}


class AiohttpTransport(HttpTransport):
    """The port Transport on aiohttp's connections, without its session. By default it calls port 443 only."""

    def __init__(
        self,
        settings: TransportSettings = CALL_SETTINGS,
        *,
        policy: AddressPolicy = PUBLIC_ONLY,
        tls: ssl.SSLContext | None = None,
        trust_env: bool = False,
        dials: DialObserver | None = None,
    ) -> None:
        super().__init__(settings, policy=policy, tls=tls, trust_env=trust_env, dials=dials)
        self._context: ConnectionContext | None = None
        self._origins: dict[str, OriginTemplate] = {}
        self._shares = ConnectionShares(settings.max_connections, settings.max_per_host)

    async def _close_connections(self) -> None:
        context, self._context = self._context, None
        if context is not None:
            await context.connector.close()

    async def reaches(self, origin_url: str) -> bool:
        """Return whether a new connection to *origin_url* succeeds."""
        loop, timeout_s = asyncio.get_running_loop(), self._settings.connect_timeout_s
        origin, _ = self._origin_and_target(origin_url, loop)
        if origin.refusal is not None:
            return False
        context = self._open_context()
        token = current_request.set(InFlightCall(deadline_mono=loop.time() + timeout_s, loop=loop))
        try:
            async with asyncio.timeout(timeout_s):
                await context.connector.dial(origin, context.timeout)
        except (aiohttp.ClientError, OSError):  # a TimeoutError is an OSError
            return False
        finally:
            current_request.reset(token)
        return True

    async def send(self, request: HttpRequest) -> HttpResponse | NoResponse:
        in_flight = _in_flight_of(request)
        try:
            response = await self._begin(request, in_flight)
            if isinstance(response, NoResponse):
                return response
            try:
                body = await _read_body(response, request.max_body_bytes)
            except Exception as error:  # noqa: BLE001 (it was sent: whatever happens is "unknown")
                return no_response(error, in_flight, response.status)
            finally:
                response.close()
        finally:
            if in_flight.held_connection is not None:
                self._shares.release(in_flight.held_connection)
        assert in_flight.sent_mono is not None
        return HttpResponse(
            response.status,
            lower(response.headers.items()),
            body,
            in_flight.loop.time() - in_flight.sent_mono,
        )

    @asynccontextmanager
    async def stream(self, request: HttpRequest) -> AsyncIterator[HttpStream | NoResponse]:
        in_flight = _in_flight_of(request)
        try:
            response = await self._begin(request, in_flight)
            if isinstance(response, NoResponse):
                yield response
                return
            try:
                yield _Stream(response, in_flight, request.max_body_bytes)
            finally:
                response.close()
        finally:
            if in_flight.held_connection is not None:
                self._shares.release(in_flight.held_connection)

    async def _begin(self, request: HttpRequest, in_flight: InFlightCall) -> PendingResponse | NoResponse:
        """Send *request* and return once the response headers have arrived."""
        origin, target = self._origin_and_target(request.url, in_flight.loop)
        method, fields = _method(request), _fields(request)
        if origin.refusal is not None:
            return NoResponse(sent=False, kind="refused_address", why=f"address refused: {origin.refusal}")
        if request.deadline_s <= 0:
            return no_response(DeadlinePassedError(), in_flight)
        key = origin, request.holder
        if not self._shares.try_acquire(key):
            timeout_s = min(request.deadline_s, self._settings.connect_timeout_s)
            if not await self._shares.acquire(key, timeout_s):
                return no_response(TimeoutError(), in_flight)
        in_flight.held_connection = key
        try:
            response = await send_raw(
                self._open_context(), origin, in_flight, RawRequest(method, target, fields, request.body)
            )
        except Exception as error:
            if in_flight.sent_mono is None and not isinstance(error, aiohttp.ClientError | OSError):
                raise
            return no_response(error, in_flight)
        if response.status < 200:  # 101: what follows is no HTTP
            response.close()
            return no_response(
                MalformedBodyError("the server changed the protocol"), in_flight, response.status
            )
        return response

    def _origin_and_target(self, address: str, loop: asyncio.AbstractEventLoop) -> tuple[OriginTemplate, str]:
        """Return the origin and the request target of a URL; raise InvalidInputError for an invalid one."""
        plain = PLAIN_URL.fullmatch(address)
        if plain is not None and (cached := self._origins.get(plain[1])) is not None:
            target = plain[2] or "/"
            return cached, target if target[0] == "/" else f"/{target}"
        url = checked_url(address, "the address of a call")
        name = str(url.origin()) if plain is None else plain[1]
        origin = self._origins.get(name)
        if origin is None:
            scheme, host = url.scheme, url.host or ""
            refusal = self._policy.origin_refusal(scheme, host, url.port)
            if refusal is None and not self._policy.may_be_private(host):
                refusal = self._proxies.refusal(scheme, host)
            origin = OriginTemplate(url, loop, proxy=self._proxies.proxy_of(scheme, host), refusal=refusal)
            if len(self._origins) >= _MAX_ORIGINS:
                self._origins.clear()
            self._origins[name] = origin
        return origin, url.raw_path_qs

    def _open_context(self) -> ConnectionContext:
        if self._context is None:
            settings = self._settings
            connector = open_connector(settings, self._open_resolver(), self._tls, dials=self._dials)
            self._context = ConnectionContext(connector, timeout_of(settings, None), bounds_of(settings))
        return self._context


class _Stream:
    """The port HttpStream on a response of aiohttp."""

    def __init__(self, response: PendingResponse, in_flight: InFlightCall, max_body_bytes: int) -> None:
        self.status: int = response.status
        self.headers: Mapping[str, Sequence[str]] = lower(response.headers.items())
        self._incoming = response
        self._flight = in_flight
        self._max_body_bytes = max_body_bytes

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            async for piece in _pieces(self._incoming, self._max_body_bytes):
                yield piece
        except Exception as error:  # noqa: BLE001 (it was sent: whatever happens is "unknown")
            raise StreamBrokenError(no_response(error, self._flight, self.status), self) from None


async def _read_body(response: PendingResponse, max_bytes: int) -> bytes:
    """Return the decoded body."""
    content, chunk = response.content, b""
    if "Content-Encoding" not in response.headers:  # most come in one piece: a generator would cost 5 us
        chunk = content.read_nowait() if content.is_eof() else await content.readany()
        if len(chunk) > max_bytes:
            raise BodyTooLargeError
        if content.at_eof():
            return chunk
    body, size = io.BytesIO(), _BUFFER_BYTES  # joining a list would need twice the memory
    body.write(chunk)
    async for piece in _pieces(response, max_bytes - len(chunk)):
        while body.tell() + len(piece) > size:
            size *= 4
            _grow(body, min(size, max_bytes))
        body.write(piece)
    body.truncate()
    return body.getvalue()


def _grow(body: io.BytesIO, size: int) -> None:
    """Grow *body* to *size* in one step; by itself it copies its content many times."""
    position = body.tell()
    body.seek(size - 1)
    body.write(b"\0")
    body.seek(position)


async def _pieces(response: PendingResponse, max_bytes: int) -> AsyncIterator[bytes]:
    """Yield the decoded body as it arrives, in pieces that are not empty."""
    decoder = Decoder(",".join(response.headers.getall("Content-Encoding", ())), max_bytes)
    content = response.content
    while not content.at_eof():
        chunk = await content.readany()
        must_yield = False
        for piece in decoder.feed(chunk):
            if must_yield:
                await asyncio.sleep(0)  # so that a decompression bomb does not block the loop
            must_yield = True
            if piece:
                yield piece
    decoder.end()


def _in_flight_of(request: HttpRequest) -> InFlightCall:
    """Return the state of *request*; its deadline counts from now."""
    if not (math.isfinite(request.deadline_s) and request.max_body_bytes >= 0):
        raise InvalidInputError(
            "a call needs a finite deadline, and a bound on its response of 0 or more bytes"
        )
    loop = asyncio.get_running_loop()
    return InFlightCall(deadline_mono=loop.time() + request.deadline_s, loop=loop)


def _method(request: HttpRequest) -> str:
    method = request.method.upper()
    if not is_token(method) or method in ("CONNECT", "TRACE"):
        raise InvalidInputError("the method of a call is none that can be sent")
    return method


def _fields(request: HttpRequest) -> str:
    """Return the header lines in clear, with defaults for headers that the request lacks.

    Raises:
        InvalidInputError: HTTP does not allow a header, or the transport sets it.
    """
    lines: list[str] = []
    names = set()
    for name, value in request.headers.items():
        text = value.reveal() if isinstance(value, Secret) else value
        names.add(_lower_name(name))
        check_value(text, "a call")
        lines.append(f"{name}: {text}\r\n")
    lines += [line for name, line in _DEFAULT_HEADERS.items() if name not in names]
    return "".join(lines)


@lru_cache(maxsize=1024)
def _lower_name(name: str) -> str:
    """Return *name* in lower case; raise InvalidInputError if it is invalid or set by the transport."""
    if not is_token(name):
        raise InvalidInputError("a header of a call has a character that HTTP does not allow")
    if name.lower() in TRANSPORT_HEADERS:
        raise InvalidInputError(f"the header {name} of a call is set by the transport", hint="leave it out")
    return name.lower()
