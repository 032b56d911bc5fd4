"""Requests to providers' APIs: sent at most once, answered within bounds, the verdict exact (C10, D7, P11).

    may the address be called > connect and TLS > is it still in time > the request > the answer, bounded

Nothing is sent before the flight has left (`exchange`); from then on whatever goes wrong is `sent`. No
redirect is followed, no cookie kept, nothing sent again. What can be known of an address and of a header's
name is found out once.
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
from fairlead.adapters.http.body import BodyMalformed, BodyTooLarge, Decoder
from fairlead.adapters.http.client_session import (
    Proxies,
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
from fairlead.adapters.http.resolver import AddressPolicy, CheckedResolver
from fairlead.adapters.http.wire import PLAIN_URL, check_value, checked_url, is_token, lower
from fairlead.engine.ports import (
    TRANSPORT_HEADERS,
    DialObserver,
    HttpRequest,
    HttpResponse,
    HttpStream,
    NoResponse,
    StreamBroken,
)
from fairlead.errors import InvalidInputError

CALL_SETTINGS = TransportSettings(keepalive_s=4.0, max_connections=500, max_per_host=300)
"""An idle connection is used for 4 s: the hastiest of common servers close after 5."""

_PUBLIC_ONLY = AddressPolicy()
_ROOM_BYTES = 1 << 20  # for a body; a larger one gets four times as much, and again
_MOST_ORIGINS = 20_000  # of 1.5 KB; where each customer has a host of its own, one for each
_DEFAULT_HEADERS = {
    "accept": "Accept: */*\r\n",
    "accept-encoding": "Accept-Encoding: gzip, deflate\r\n",
    "user-agent": "User-Agent: fairlead\r\n",
}


class AiohttpTransport:
    """See ``fairlead.engine.ports.Transport``.

    Create and use it in one event loop.

    Args:
        policy: Which addresses may be called. Default: public ones, over https, at port 443.
        tls: A TLS context. Default: one that verifies and obeys SSL_CERT_FILE and SSL_CERT_DIR.
        trust_env: Whether to obey HTTPS_PROXY and NO_PROXY. Behind a proxy only the proxy can check what a
            name resolves to. Default False.
        dials: An observer of each new connection. Default None.
    """

    def __init__(
        self,
        settings: TransportSettings = CALL_SETTINGS,
        *,
        policy: AddressPolicy = _PUBLIC_ONLY,
        tls: ssl.SSLContext | None = None,
        trust_env: bool = False,
        dials: DialObserver | None = None,
    ) -> None:
        self._settings = settings
        self._dials = dials
        self._policy = policy
        self._tls = tls
        self._proxies = Proxies(trust_env)
        self._context: ConnectionContext | None = None
        self._resolver: CheckedResolver | None = None
        self._origins: dict[str, OriginTemplate] = {}
        self._places = ConnectionShares(settings.max_connections, settings.max_per_host)

    async def close(self) -> None:
        """Close all connections; requests under way fail."""
        ground, self._context = self._context, None
        resolver, self._resolver = self._resolver, None
        if ground is not None:
            await ground.connector.close()
        if resolver is not None:
            await resolver.close()

    async def reaches(self, place: str) -> bool:
        """Return whether a new connection to *place*, the origin of a URL, succeeds."""
        loop, at_most_s = asyncio.get_running_loop(), self._settings.connect_timeout_s
        origin, _ = self._place(place, loop)
        if origin.refusal is not None:
            return False
        ground = self._opened()
        token = current_request.set(InFlightCall(deadline_mono=loop.time() + at_most_s, loop=loop))
        try:
            async with asyncio.timeout(at_most_s):
                await ground.connector.dial(origin, ground.timeout)
        except (aiohttp.ClientError, OSError):  # a TimeoutError is an OSError
            return False
        finally:
            current_request.reset(token)
        return True

    async def __aenter__(self) -> AiohttpTransport:
        return self

    async def __aexit__(self, *_exc_info: object) -> None:
        await self.close()

    async def send(self, request: HttpRequest) -> HttpResponse | NoResponse:
        """Send *request* once and read the whole answer; see the port."""
        in_flight = _in_flight_of(request)
        try:
            response = await self._begin(request, in_flight)
            if isinstance(response, NoResponse):
                return response
            try:
                body = await _whole(response, request.max_body_bytes)
            except Exception as error:  # noqa: BLE001 (it was sent: whatever happens is "unknown")
                return no_response(error, in_flight, response.status)
            finally:
                response.close()
        finally:
            if in_flight.held_connection is not None:
                self._places.give_back(in_flight.held_connection)
        assert in_flight.sent_mono is not None
        return HttpResponse(
            response.status,
            lower(response.headers.items()),
            body,
            in_flight.loop.time() - in_flight.sent_mono,
        )

    @asynccontextmanager
    async def stream(self, request: HttpRequest) -> AsyncIterator[HttpStream | NoResponse]:
        """Send *request* once and hand out its answer as it comes; see the port."""
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
                self._places.give_back(in_flight.held_connection)

    async def _begin(self, request: HttpRequest, in_flight: InFlightCall) -> PendingResponse | NoResponse:
        """Send *request*; the answer's head has come, its body not yet."""
        origin, target = self._place(request.url, in_flight.loop)
        method, fields = _method(request), _fields(request)
        if origin.refusal is not None:
            return NoResponse(sent=False, kind="refused_address", why=f"address refused: {origin.refusal}")
        if request.deadline_s <= 0:
            return no_response(DeadlinePassedError(), in_flight)
        key = origin, request.holder
        if not self._places.take_at_once(key):
            at_most_s = min(request.deadline_s, self._settings.connect_timeout_s)
            if not await self._places.take(key, at_most_s):
                return no_response(TimeoutError(), in_flight)
        in_flight.held_connection = key
        try:
            response = await send_raw(
                self._opened(), origin, in_flight, RawRequest(method, target, fields, request.body)
            )
        except Exception as error:
            if in_flight.sent_mono is None and not isinstance(error, aiohttp.ClientError | OSError):
                raise
            return no_response(error, in_flight)
        if response.status < 200:  # 101: what follows is no HTTP
            response.close()
            return no_response(BodyMalformed("the server changed the protocol"), in_flight, response.status)
        return response

    def _place(self, address: str, loop: asyncio.AbstractEventLoop) -> tuple[OriginTemplate, str]:
        """Whom to ask, and for what; InvalidInputError for what is no address."""
        plain = PLAIN_URL.fullmatch(address)
        if plain is not None and (known := self._origins.get(plain[1])) is not None:
            target = plain[2] or "/"
            return known, target if target[0] == "/" else f"/{target}"
        url = checked_url(address, "the address of a call")
        name = str(url.origin()) if plain is None else plain[1]
        origin = self._origins.get(name)
        if origin is None:
            scheme, host = url.scheme, url.host or ""
            refusal = self._policy.origin_refusal(scheme, host, url.port)
            if refusal is None and not self._policy.may_be_private(host):
                refusal = self._proxies.refusal(scheme, host)
            origin = OriginTemplate(url, loop, proxy=self._proxies.proxy_of(scheme, host), refusal=refusal)
            if len(self._origins) >= _MOST_ORIGINS:
                self._origins.clear()
            self._origins[name] = origin
        return origin, url.raw_path_qs

    def _opened(self) -> ConnectionContext:
        if self._context is None:
            settings = self._settings
            self._resolver = CheckedResolver(self._policy, exempt=self._proxies.hosts)
            connector = open_connector(settings, self._resolver, self._tls, dials=self._dials)
            self._context = ConnectionContext(connector, timeout_of(settings, None), bounds_of(settings))
        return self._context


class _Stream:
    """See ``fairlead.engine.ports.HttpStream``."""

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
            raise StreamBroken(no_response(error, self._flight, self.status), self) from None


async def _whole(response: PendingResponse, max_bytes: int) -> bytes:
    """The body, decoded."""
    content, chunk = response.content, b""
    if "Content-Encoding" not in response.headers:  # most come in one piece: a generator would cost 5 us
        chunk = content.read_nowait() if content.is_eof() else await content.readany()
        if len(chunk) > max_bytes:
            raise BodyTooLarge
        if content.at_eof():
            return chunk
    body, room = io.BytesIO(), _ROOM_BYTES  # a list that is joined would hold the body twice
    body.write(chunk)
    async for piece in _pieces(response, max_bytes - len(chunk)):
        while body.tell() + len(piece) > room:
            room *= 4
            _make_room(body, min(room, max_bytes))
        body.write(piece)
    body.truncate()
    return body.getvalue()


def _make_room(body: io.BytesIO, size: int) -> None:
    """Let it grow to *size* in one step: by itself it takes many, each beside the one before."""
    place = body.tell()
    body.seek(size - 1)
    body.write(b"\0")
    body.seek(place)


async def _pieces(response: PendingResponse, max_bytes: int) -> AsyncIterator[bytes]:
    """The body, decoded, as it comes; none of the pieces is empty."""
    decoder = Decoder(",".join(response.headers.getall("Content-Encoding", ())), max_bytes)
    content = response.content
    while not content.at_eof():
        chunk = await content.readany()
        resting = False
        for piece in decoder.feed(chunk):
            if resting:
                await asyncio.sleep(0)  # a bomb goes off in small pieces, and others run between them
            resting = True
            if piece:
                yield piece
    decoder.end()


def _in_flight_of(request: HttpRequest) -> InFlightCall:
    """Its time runs from here."""
    if not (math.isfinite(request.deadline_s) and request.max_body_bytes >= 0):
        raise InvalidInputError(
            "a call needs a finite deadline, and a bound on its answer of 0 or more bytes"
        )
    loop = asyncio.get_running_loop()
    return InFlightCall(deadline_mono=loop.time() + request.deadline_s, loop=loop)


def _method(request: HttpRequest) -> str:
    method = request.method.upper()
    if not is_token(method) or method in ("CONNECT", "TRACE"):
        raise InvalidInputError("the method of a call is none that can be sent")
    return method


def _fields(request: HttpRequest) -> str:
    """The lines of its headers in clear, with ours where there is none of the caller's.

    InvalidInputError for what HTTP does not allow, and for what is not the caller's.
    """
    lines: list[str] = []
    told = set()
    for name, value in request.headers.items():
        text = value.reveal() if isinstance(value, Secret) else value
        told.add(_known_as(name))
        check_value(text, "a call")
        lines.append(f"{name}: {text}\r\n")
    lines += [line for name, line in _DEFAULT_HEADERS.items() if name not in told]
    return "".join(lines)


@lru_cache(maxsize=1024)
def _known_as(name: str) -> str:
    """*name* in lower case; InvalidInputError where it cannot be one, or is the transport's own."""
    if not is_token(name):
        raise InvalidInputError("a header of a call has a character that HTTP does not allow")
    if name.lower() in TRANSPORT_HEADERS:
        raise InvalidInputError(f"the header {name} of a call is set by the transport", hint="leave it out")
    return name.lower()
