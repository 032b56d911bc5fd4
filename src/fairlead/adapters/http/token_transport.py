"""One POST to a token endpoint, sent at most once, with an exact verdict whether it left (D7, R6).

    connect and TLS > before_sent, which may forbid it > the request in one write > the whole answer

Until before_sent has returned, nothing was sent and `sent` is False; from then on whatever goes wrong is
`sent`: unknown. aiohttp resends only idempotent methods, follows no redirect here and keeps no cookie.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

import aiohttp
from aiohttp.connector import Connection
from yarl import URL

from fairlead._core.faultpoint import faultpoint
from fairlead.adapters.http.body import BodyTooLarge, decoded
from fairlead.adapters.http.client_session import Proxies, TransportSettings, open_session
from fairlead.adapters.http.connector import DeadlinePassedError, InFlightRequest, current_request
from fairlead.adapters.http.http_failures import no_response
from fairlead.adapters.http.resolver import AddressPolicy, AddressRefused, CheckedResolver
from fairlead.adapters.http.response_deadline import Deadline
from fairlead.adapters.http.send_time import late_s
from fairlead.adapters.http.wire import check_header, checked_url, lower
from fairlead.engine.ports import DialObserver, HttpResponse, NoResponse, TokenCall

MAX_BODY_BYTES = 256 << 10
"""Of an answer, before and after decoding."""

_SETTINGS = TransportSettings()
_PUBLIC_ONLY = AddressPolicy()
_FORM = "application/x-www-form-urlencoded"
_JSON = "application/json"


@dataclass(slots=True, eq=False, kw_only=True)
class _InFlightTokenRequest(InFlightRequest):
    """A request that a hook may still forbid."""

    before_sent: Callable[[], Awaitable[None]]
    deadline: Deadline
    refused: Exception | None = None
    late_s: float = 0.0

    def connected(self, connection: Connection) -> None:
        """It has got this one, and is looked at once more before anything else is sent on it."""
        InFlightRequest.connected(
            self, connection
        )  # a dataclass with slots is another class than super() looks for
        connection.add_callback(self._look_back)

    def _look_back(self) -> None:
        transport = None if self.protocol is None else self.protocol.transport
        if self.sent_mono is not None and transport is not None:
            self.late_s = late_s(transport, self.sent_mono, asyncio.get_running_loop().time)

    async def let_go(self) -> None:
        """Ask the hook; when this returns, aiohttp writes the request in one piece."""
        self.check()
        try:
            await self.before_sent()
        except Exception as error:
            self.refused = error  # aiohttp would put some errors into one of its own
            raise
        self.check()  # the hook took its time, and the server may have hung up meanwhile
        if self.deadline.passed:  # this process stood still between the mark and the first byte
            raise DeadlinePassedError
        # What the mark took of the time is not taken from the provider's: its answer may come once only.
        self.deadline.restart()
        self.sent_mono = asyncio.get_running_loop().time()
        faultpoint("token.before_write")


async def _let_go(_session: aiohttp.ClientSession, context: Any, _params: object) -> None:
    """Trace hook on_request_headers_sent: awaited after connect and TLS, before the first byte."""
    await context.trace_request_ctx.let_go()


class AiohttpTokenTransport:
    """See ``fairlead.engine.ports.TokenTransport``.

    Create and use it in one event loop.

    Args:
        policy: Which addresses may be called. Default: public ones, over https.
        tls: A TLS context for a private certificate authority. Default: a context that verifies.
        trust_env: Whether to obey HTTPS_PROXY and NO_PROXY. Behind a proxy only the proxy can check what a
            name resolves to. Default False.
        dials: An observer of each new connection. Default None.
    """

    def __init__(
        self,
        settings: TransportSettings = _SETTINGS,
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

    async def send(
        self, call: TokenCall, before_sent: Callable[[], Awaitable[None]]
    ) -> HttpResponse | NoResponse:
        """Send *call* once.

        Raises what *before_sent* raised, and InvalidInputError for a call that cannot be put into HTTP; nothing
        was sent then. A cancellation passes up; it is `sent` if *before_sent* had returned.
        """
        url, content = checked_url(call.url, "the token endpoint"), _content(call)
        headers = _checked_headers(call, has_content=content is not None)
        deadline = Deadline(call.deadline_s)
        in_flight = _InFlightTokenRequest(before_sent=before_sent, deadline=deadline)
        token = current_request.set(in_flight)
        failure: Exception
        try:
            async with deadline:
                return await self._exchange(call, url, headers, content, in_flight)
        except Exception as error:  # noqa: BLE001 (once it was let go, whatever happens is "unknown")
            failure = error
        finally:
            current_request.reset(token)
        if in_flight.refused is not None:
            raise in_flight.refused
        if in_flight.sent_mono is None and not isinstance(failure, aiohttp.ClientError | OSError):
            raise failure
        return no_response(failure, in_flight)

    async def _exchange(
        self,
        call: TokenCall,
        url: URL,
        headers: dict[str, str],
        content: bytes | None,
        in_flight: _InFlightTokenRequest,
    ) -> HttpResponse:
        self._policy.check_literal(url.host or "")
        where = url.scheme, url.host or ""
        refusal = self._policy.scheme_refusal(*where)
        if refusal is None and not self._policy.may_be_private(where[1]):
            refusal = self._proxies.refusal(*where)
        if refusal is not None:
            raise AddressRefused(refusal)
        session = self._session(call.reuse_connection)
        async with session.request(
            call.method,
            url,
            data=content,
            headers=headers,
            allow_redirects=False,
            proxy=self._proxies.proxy_of(*where),
            trace_request_ctx=in_flight,
        ) as response:
            body = await self._body(response)
            assert in_flight.sent_mono is not None
            took_s = asyncio.get_running_loop().time() - in_flight.sent_mono
            headers_in = lower(response.headers.items())
            return HttpResponse(
                response.status, headers_in, body, took_s - in_flight.late_s, in_flight.late_s
            )

    async def _body(self, response: aiohttp.ClientResponse) -> bytes:
        """The whole body, within its bound before and after decoding."""
        body = bytearray()
        async for chunk in response.content.iter_any():
            body += chunk
            if len(body) > MAX_BODY_BYTES:
                raise BodyTooLarge
        return decoded(bytes(body), response.headers.get("Content-Encoding", ""), MAX_BODY_BYTES)

    # ---- sessions

    def _session(self, reuse: bool) -> aiohttp.ClientSession:
        """The session that keeps connections, or the one that makes a new one for each request."""
        session = self._sessions.get(reuse)
        if session is None:
            session = self._sessions[reuse] = self._new_session(reuse)
        return session

    def _new_session(self, reuse: bool) -> aiohttp.ClientSession:
        if self._resolver is None:
            self._resolver = CheckedResolver(self._policy, exempt=self._proxies.hosts)
        trace = aiohttp.TraceConfig()
        trace.on_request_headers_sent.append(_let_go)
        return open_session(
            self._settings,
            self._resolver,
            self._tls,
            reuse=reuse,
            dials=self._dials,
            trace_configs=[trace],
        )


def _checked_headers(call: TokenCall, *, has_content: bool) -> dict[str, str]:
    """Our headers and those of *call*; InvalidInputError for a character that would end a line."""
    headers = {
        "Accept": "application/json",
        "Accept-Encoding": "identity",
        "User-Agent": "fairlead",
    }
    if has_content:
        headers["Content-Type"] = _FORM if call.json_body is None else _JSON
    for name, value in call.headers.items():
        check_header(name, value.reveal(), "the token request")
        headers[name.title()] = value.reveal()
    return headers


def _content(call: TokenCall) -> bytes | None:
    """What goes into the body: JSON, or the form; a form of no fields only where the method wants a body."""
    if call.json_body is not None:
        return call.json_body.encode()
    if not call.form and call.method != "POST":
        return None
    return urlencode({name: value.reveal() for name, value in call.form.items()}).encode()
