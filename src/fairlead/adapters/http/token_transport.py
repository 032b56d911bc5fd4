"""One POST to a token endpoint, sent at most once, with an exact verdict whether it left (D7, R6).

    connect and TLS > before_sent, which may forbid it > the request in one write > the whole answer

Until before_sent has returned, nothing was sent and `sent` is False; from then on whatever goes wrong is
`sent`: unknown. aiohttp resends only idempotent methods, follows no redirect here and keeps no cookie.
"""

from __future__ import annotations

import asyncio
import errno
import math
import re
import ssl
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from urllib.parse import urlencode, urlsplit
from urllib.request import (  # type: ignore[attr-defined]  # typeshed does not know the second
    getproxies_environment,
    proxy_bypass_environment,
)

import aiohttp
from yarl import URL

from fairlead.adapters.http.body import BodyTooLarge, decoded
from fairlead.adapters.http.connector import (
    ConnectionUnfit,
    FitConnector,
    Flight,
    TooLate,
    current_flight,
    let_go,
    note_reuse,
)
from fairlead.adapters.http.deadline import Deadline
from fairlead.adapters.http.resolver import AddressPolicy, AddressRefused, CheckedResolver
from fairlead.engine.ports import Answered, NoAnswer, TokenCall
from fairlead.errors import InputInvalid

_PUBLIC_ONLY = AddressPolicy()
_BAD_HEADER = re.compile(r"[^\t\x20-\x7e]")
_HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_FORM = "application/x-www-form-urlencoded"
_JSON = "application/json"


@dataclass(frozen=True, slots=True)
class TransportSettings:
    """Bounds of the transport; times in seconds."""

    connect_timeout_s: float = 5.0
    """For a free place in the pool, DNS, connect and TLS together; default 5."""
    keepalive_s: float = 2.0
    """For how long an idle connection is used again: short, so that few are found dead; default 2."""
    max_connections: int = 256
    """Connections of this process to all token endpoints; default 256."""
    max_per_host: int = 100
    """Connections to one of them, so that a slow one does not take all; default 100."""
    max_body_bytes: int = 256 << 10
    """Of an answer, before and after decoding; default 256 KiB."""
    max_header_bytes: int = 16 << 10
    """Of one header line of an answer; default 16 KiB."""
    max_headers: int = 128
    """Header lines of an answer; default 128."""


class AiohttpTokenTransport:
    """See ``fairlead.engine.ports.TokenTransport``.

    *policy* tells which addresses may be called (default: public ones). *tls* replaces the verified default
    context, for a private certificate authority. *trust_env* has HTTPS_PROXY and NO_PROXY obeyed (default
    off); behind a proxy only it can check what a name leads to. Made and used in one event loop.
    """

    def __init__(
        self,
        settings: TransportSettings = TransportSettings(),
        *,
        policy: AddressPolicy = _PUBLIC_ONLY,
        tls: ssl.SSLContext | None = None,
        trust_env: bool = False,
    ) -> None:
        self._settings = settings
        self._policy = policy
        self._tls = tls
        self._proxies = getproxies_environment() if trust_env else {}
        self._resolver: CheckedResolver | None = None
        self._sessions: dict[bool, aiohttp.ClientSession] = {}

    async def close(self) -> None:
        """Close all connections; requests under way fail."""
        for session in self._sessions.values():
            await session.close()
        self._sessions.clear()
        if self._resolver is not None:
            await self._resolver.close()
            self._resolver = None

    async def __aenter__(self) -> AiohttpTokenTransport:
        return self

    async def __aexit__(self, *_exc_info: object) -> None:
        await self.close()

    async def send(self, call: TokenCall, before_sent: Callable[[], Awaitable[None]]) -> Answered | NoAnswer:
        """Send *call* once.

        Raises what *before_sent* raised, and InputInvalid for a call that cannot be put into HTTP; nothing
        was sent then. A cancellation passes up; it is `sent` if *before_sent* had returned.
        """
        url, headers = _checked_url(call), _checked_headers(call)
        deadline = Deadline(call.deadline_s)
        flight = Flight(before_sent, deadline)
        token = current_flight.set(flight)
        failure: Exception
        try:
            async with deadline:
                return await self._exchange(call, url, headers, flight)
        except Exception as error:  # noqa: BLE001 (once it was let go, whatever happens is "unknown")
            failure = error
        finally:
            current_flight.reset(token)
        if flight.refused is not None:
            raise flight.refused
        if flight.left_s is None and not isinstance(failure, aiohttp.ClientError | OSError):
            raise failure
        return NoAnswer(sent=flight.left_s is not None, why=_why(failure, flight.left_s is not None))

    async def _exchange(self, call: TokenCall, url: URL, headers: dict[str, str], flight: Flight) -> Answered:
        self._policy.check_literal(url.host or "")
        session = self._session(call.reuse_connection)
        async with session.request(
            call.method,
            url,
            data=_content(call),
            headers=headers,
            allow_redirects=False,
            proxy=self._proxy(url),
            trace_request_ctx=flight,
        ) as response:
            body = await self._body(response)
            assert flight.left_s is not None
            took_s = asyncio.get_running_loop().time() - flight.left_s
            return Answered(response.status, _lower(response), body, took_s)

    async def _body(self, response: aiohttp.ClientResponse) -> bytes:
        """The whole body, within its bound before and after decoding."""
        most = self._settings.max_body_bytes
        body = bytearray()
        async for chunk in response.content.iter_any():
            body += chunk
            if len(body) > most:
                raise BodyTooLarge
        return decoded(bytes(body), response.headers.get("Content-Encoding", ""), most)

    # ---- sessions

    def _session(self, reuse: bool) -> aiohttp.ClientSession:
        """The session that keeps connections, or the one that makes a new one for each request."""
        session = self._sessions.get(reuse)
        if session is None:
            session = self._sessions[reuse] = self._new_session(reuse)
        return session

    def _new_session(self, reuse: bool) -> aiohttp.ClientSession:
        settings = self._settings
        if self._resolver is None:
            proxies = {urlsplit(proxy).hostname or "" for proxy in self._proxies.values()}
            self._resolver = CheckedResolver(self._policy, exempt=proxies)
        connector = FitConnector(
            resolver=self._resolver,
            ssl=self._tls or True,
            limit=settings.max_connections,
            limit_per_host=settings.max_per_host,
            timeout_ceil_threshold=math.inf,
            **({"keepalive_timeout": settings.keepalive_s} if reuse else {"force_close": True}),
        )
        trace = aiohttp.TraceConfig()
        trace.on_connection_reuseconn.append(note_reuse)
        trace.on_request_headers_sent.append(let_go)
        session = aiohttp.ClientSession(
            connector=connector,
            trace_configs=[trace],
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            timeout=aiohttp.ClientTimeout(
                connect=settings.connect_timeout_s, ceil_threshold=math.inf
            ),  # the total is ours
            max_line_size=settings.max_header_bytes,
            max_field_size=settings.max_header_bytes,
            max_headers=settings.max_headers,
        )
        session._retry_connection = False  # else it repeats a GET or DELETE whose connection was lost
        return session

    def _proxy(self, url: URL) -> str | None:
        """The proxy of the environment for *url*; aiohttp's own trust_env would send netrc passwords too."""
        if not self._proxies or proxy_bypass_environment(url.host or "", self._proxies):
            return None
        return self._proxies.get(url.scheme)


def _checked_url(call: TokenCall) -> URL:
    try:
        url = URL(call.url)
    except ValueError:
        url = URL()
    if (
        url.scheme not in ("http", "https")
        or not url.host
        or url.user is not None
        or url.password is not None
    ):
        raise InputInvalid("the token endpoint is no http or https address without user and password")
    return url


def _checked_headers(call: TokenCall) -> dict[str, str]:
    """Our headers and those of *call*; InputInvalid for a character that would end a line."""
    headers = {
        "Accept": "application/json",
        "Accept-Encoding": "identity",
        "User-Agent": "fairlead",
    }
    if _content(call) is not None:
        headers["Content-Type"] = _FORM if call.json_body is None else _JSON
    for name, value in call.headers.items():
        if not _HEADER_NAME.fullmatch(name) or _BAD_HEADER.search(value.reveal()):
            raise InputInvalid("a header of the token request has a character that HTTP does not allow")
        headers[name.title()] = value.reveal()
    return headers


def _content(call: TokenCall) -> bytes | None:
    """What goes into the body: JSON, or the form; a form of no fields only where the method wants a body."""
    if call.json_body is not None:
        return call.json_body.encode()
    if not call.form and call.method != "POST":
        return None
    return urlencode({name: value.reveal() for name, value in call.form.items()}).encode()


def _lower(response: aiohttp.ClientResponse) -> Mapping[str, tuple[str, ...]]:
    names = {name.lower() for name in response.headers}
    return {name: tuple(response.headers.getall(name)) for name in sorted(names)}


_WORDS: tuple[tuple[type[Exception], str], ...] = (  # the first that fits
    (AddressRefused, "address refused"),
    (ConnectionUnfit, "connection lost before the request was written"),
    (TooLate, "deadline passed before the request was written"),
    (aiohttp.ClientConnectorDNSError, "name not resolved"),
    (aiohttp.ClientConnectorCertificateError, "TLS certificate not accepted"),
    (aiohttp.ClientConnectorSSLError, "TLS handshake failed"),
    (aiohttp.ClientProxyConnectionError, "proxy not reached"),
    (aiohttp.ClientHttpProxyError, "proxy refused"),
    (aiohttp.ConnectionTimeoutError, "connect timed out"),
    (aiohttp.ClientConnectorError, "connect failed"),
    (aiohttp.InvalidURL, "address refused"),
    (BodyTooLarge, "answer too large"),
    (aiohttp.ClientPayloadError, "answer cut off"),
    (aiohttp.ServerDisconnectedError, "connection closed before the answer"),
    (aiohttp.ClientResponseError, "answer is not HTTP"),
    (aiohttp.ClientOSError, "connection lost"),
)


def _why(failure: Exception, sent: bool) -> str:
    """The kind of *failure* in plain words: no address, no name, nothing that the server said."""
    cause = getattr(failure, "os_error", None)
    if isinstance(cause, AddressRefused):
        failure = cause
    if isinstance(failure, TimeoutError) and not isinstance(failure, aiohttp.ClientError):
        return "no complete answer before the deadline" if sent else "not connected before the deadline"
    words = next((words for kind, words in _WORDS if isinstance(failure, kind)), type(failure).__name__)
    if isinstance(failure, AddressRefused):
        return f"{words}: {failure}"
    if isinstance(failure, OSError) and not isinstance(failure, aiohttp.ClientSSLError):
        name = errno.errorcode.get(failure.errno or 0)
        return f"{words} ({name})" if name else words
    return words
