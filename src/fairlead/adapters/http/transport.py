"""Requests to providers' APIs: sent at most once, answered within bounds, the verdict exact (C10, D7, P11).

    may the address be called > connect and TLS > is it still in time > the request > the answer, bounded

Nothing is sent before the request leaves our hands in `_Departing`; from then on whatever goes wrong is
`sent`. No redirect is followed, no cookie kept, nothing sent again. Each call costs little beside aiohttp's
own work: the deadline is aiohttp's, and no trace hooks are used, which would cost an eighth of a call.
"""

from __future__ import annotations

import asyncio
import io
import math
import ssl
from collections.abc import AsyncIterator, Awaitable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import lru_cache

import aiohttp
from aiohttp.client_reqrep import ClientRequest
from aiohttp.connector import Connection
from yarl import URL

from fairlead.adapters.http.body import BodyMalformed, BodyTooLarge, Decoder
from fairlead.adapters.http.connector import Flight, TooLate, current_flight
from fairlead.adapters.http.failures import no_answer
from fairlead.adapters.http.resolver import AddressPolicy, CheckedResolver
from fairlead.adapters.http.session import Proxies, TransportSettings, open_session, timeout_of
from fairlead.adapters.http.wire import check_header, checked_url, is_token, lower
from fairlead.engine.ports import (
    TRANSPORT_HEADERS,
    HttpAnswer,
    HttpRequest,
    HttpStream,
    NoAnswer,
    StreamBroken,
)
from fairlead.errors import InputInvalid
from fairlead.secret import Secret

CALL_SETTINGS = TransportSettings(keepalive_s=4.0, max_connections=500, max_per_host=300)
"""An idle connection is used for 4 s: the hastiest of common servers close after 5."""

_PUBLIC_ONLY = AddressPolicy()
_DEFAULT_HEADERS = {"Accept": "*/*", "Accept-Encoding": "gzip, deflate", "User-Agent": "fairlead"}
_NO_CONTENT_TYPE = frozenset({"Content-Type"})  # else aiohttp adds one where the caller gave none
_IN_ONE_PIECE = 256 << 10  # a larger body is written in parts, so that the loop runs on


@dataclass(slots=True, eq=False, kw_only=True)
class _CallFlight(Flight):
    """A request whose time ends at *due_s* of the loop."""

    due_s: float
    loop: asyncio.AbstractEventLoop

    def leave(self) -> None:
        """The last moment at which nothing was sent."""
        self.check()
        now_s = self.loop.time()
        if now_s >= self.due_s:  # this process stood still, and its slot may be somebody else's by now
            raise TooLate
        self.left_s = now_s


class _Departing(ClientRequest):
    """Notes that it leaves: aiohttp calls `send` once it is connected, and writes in it."""

    def update_auto_headers(self, skip_auto_headers: Iterable[str] | None) -> None:
        """No header is added: the session's defaults are all of ours, and aiohttp's way costs 5 us."""
        self._skip_auto_headers = _NO_CONTENT_TYPE  # type: ignore[assignment]  # it asks `in` of it only

    async def send(self, conn: Connection) -> aiohttp.ClientResponse:
        flight = current_flight.get()
        assert isinstance(flight, _CallFlight)
        flight.leave()
        return await super().send(conn)


class AiohttpTransport:
    """See ``fairlead.engine.ports.Transport``.

    *policy* tells which addresses may be called (default: public ones, by https, at port 443). *tls*
    replaces the verified default context, for a private certificate authority. *trust_env* has HTTPS_PROXY
    and NO_PROXY obeyed (default off); behind a proxy only it can check what a name leads to. Made and used in
    one event loop.
    """

    def __init__(
        self,
        settings: TransportSettings = CALL_SETTINGS,
        *,
        policy: AddressPolicy = _PUBLIC_ONLY,
        tls: ssl.SSLContext | None = None,
        trust_env: bool = False,
    ) -> None:
        self._settings = settings
        self._policy = policy
        self._tls = tls
        self._proxies = Proxies(trust_env)
        self._origin_refusal = lru_cache(maxsize=4096)(policy.origin_refusal)
        self._session: aiohttp.ClientSession | None = None
        self._resolver: CheckedResolver | None = None

    async def close(self) -> None:
        """Close all connections; requests under way fail."""
        session, self._session = self._session, None
        resolver, self._resolver = self._resolver, None
        if session is not None:
            await session.close()
        if resolver is not None:
            await resolver.close()

    async def __aenter__(self) -> AiohttpTransport:
        return self

    async def __aexit__(self, *_exc_info: object) -> None:
        await self.close()

    async def send(self, request: HttpRequest) -> HttpAnswer | NoAnswer:
        """Send *request* once and read the whole answer; see the port."""
        flight = _flight_of(request)
        response = await self._begin(request, flight)
        if isinstance(response, NoAnswer):
            return response
        try:
            body = await _whole(response, request.max_body_bytes)
        except Exception as error:  # noqa: BLE001 (it was sent: whatever happens is "unknown")
            return no_answer(error, flight, response.status)
        finally:
            response.close()
        assert flight.left_s is not None
        return HttpAnswer(
            response.status, lower(response.headers.items()), body, flight.loop.time() - flight.left_s
        )

    @asynccontextmanager
    async def stream(self, request: HttpRequest) -> AsyncIterator[HttpStream | NoAnswer]:
        """Send *request* once and hand out its answer as it comes; see the port."""
        flight = _flight_of(request)
        response = await self._begin(request, flight)
        if isinstance(response, NoAnswer):
            yield response
            return
        try:
            yield _Stream(response, flight, request.max_body_bytes)
        finally:
            response.close()

    async def _begin(self, request: HttpRequest, flight: _CallFlight) -> aiohttp.ClientResponse | NoAnswer:
        """Send *request*; the answer's head has come, its body not yet."""
        url, headers = checked_url(request.url, "the address of a call"), _checked_headers(request)
        refusal = self._origin_refusal(url.scheme, url.host or "", url.port)
        if refusal is not None:
            return NoAnswer(sent=False, kind="refused_address", why=f"address refused: {refusal}")
        if request.deadline_s <= 0:
            return no_answer(TooLate(), flight)
        token = current_flight.set(flight)
        try:
            response = await self._request(request, url, headers)
        except Exception as error:
            if flight.left_s is None and not isinstance(error, aiohttp.ClientError | OSError):
                raise
            return no_answer(error, flight)
        finally:
            current_flight.reset(token)
        if response.status < 200:  # 101: what follows is no HTTP
            response.close()
            return no_answer(BodyMalformed("the server changed the protocol"), flight, response.status)
        return response

    def _request(
        self, request: HttpRequest, url: URL, headers: dict[str, str]
    ) -> Awaitable[aiohttp.ClientResponse]:
        body = request.body
        return self._opened().request(
            request.method,
            url,
            data=io.BytesIO(body) if body is not None and len(body) > _IN_ONE_PIECE else body,
            headers=headers,
            allow_redirects=False,
            proxy=self._proxies.proxy_of(url),
            timeout=timeout_of(self._settings, request.deadline_s),
        )

    def _opened(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._resolver = CheckedResolver(self._policy, exempt=self._proxies.hosts)
            self._session = open_session(
                self._settings,
                self._resolver,
                self._tls,
                request_class=_Departing,
                headers=_DEFAULT_HEADERS,
            )
        return self._session


class _Stream:
    """See ``fairlead.engine.ports.HttpStream``."""

    def __init__(self, response: aiohttp.ClientResponse, flight: _CallFlight, max_body_bytes: int) -> None:
        self.status: int = response.status
        self.headers: Mapping[str, Sequence[str]] = lower(response.headers.items())
        self._response = response
        self._flight = flight
        self._max_body_bytes = max_body_bytes

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            async for piece in _pieces(self._response, self._max_body_bytes):
                yield piece
        except Exception as error:  # noqa: BLE001 (it was sent: whatever happens is "unknown")
            raise StreamBroken(no_answer(error, self._flight, self.status)) from None


async def _whole(response: aiohttp.ClientResponse, max_bytes: int) -> bytes:
    """The body, decoded."""
    content = response.content
    if "Content-Encoding" not in response.headers:  # most come in one piece: a generator would cost 5 us
        chunk = await content.readany()
        if len(chunk) > max_bytes:
            raise BodyTooLarge
        if content.at_eof():
            return chunk
        rest = [piece async for piece in _pieces(response, max_bytes - len(chunk))]
        return b"".join((chunk, *rest))
    return b"".join([piece async for piece in _pieces(response, max_bytes)])


async def _pieces(response: aiohttp.ClientResponse, max_bytes: int) -> AsyncIterator[bytes]:
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


def _flight_of(request: HttpRequest) -> _CallFlight:
    """Its time runs from here."""
    if not (math.isfinite(request.deadline_s) and request.max_body_bytes >= 0):
        raise InputInvalid("a call needs a finite deadline, and a bound on its answer of 0 or more bytes")
    loop = asyncio.get_running_loop()
    return _CallFlight(due_s=loop.time() + request.deadline_s, loop=loop)


def _checked_headers(request: HttpRequest) -> dict[str, str]:
    """The headers in clear. InputInvalid for what HTTP does not allow, and for what is not the caller's."""
    if not is_token(request.method) or request.method.upper() in ("CONNECT", "TRACE"):
        raise InputInvalid("the method of a call is none that can be sent")
    headers: dict[str, str] = {}
    for name, value in request.headers.items():
        text = value.reveal() if isinstance(value, Secret) else value
        check_header(name, text, "a call")
        if name.lower() in TRANSPORT_HEADERS:
            raise InputInvalid(f"the header {name} of a call is set by the transport", hint="leave it out")
        headers[name] = text
    return headers
