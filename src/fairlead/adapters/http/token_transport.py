"""The transport of token requests: each is sent at most once, and it is known whether it was sent. Spec: D7,
R6.

    connected with TLS > before_sent(), which may forbid it > the request in one write > the whole response

Until before_sent() has returned, nothing was sent; any failure after it counts as sent.
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
from fairlead.adapters.http.body import BodyTooLargeError, decoded
from fairlead.adapters.http.client_session import TransportSettings, open_session
from fairlead.adapters.http.connector import DeadlinePassedError, InFlightRequest, current_request
from fairlead.adapters.http.http_failures import no_response
from fairlead.adapters.http.http_transport import PUBLIC_ONLY, HttpTransport
from fairlead.adapters.http.resolver import AddressNotAllowedError, AddressPolicy
from fairlead.adapters.http.response_deadline import Deadline
from fairlead.adapters.http.send_time import late_s
from fairlead.adapters.http.wire import check_header, checked_url, lower
from fairlead.engine.ports import DialObserver, HttpResponse, NoResponse, TokenCall

MAX_BODY_BYTES = 256 << 10
"""Of a response, before and after decoding."""

TOKEN_SETTINGS = TransportSettings()
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
        """Record the connection, and measure on its release how late the request was sent."""
        InFlightRequest.connected(self, connection)  # super() fails in a dataclass with slots
        connection.add_callback(self._measure_late)

    def _measure_late(self) -> None:
        transport = None if self.protocol is None else self.protocol.transport
        if self.sent_mono is not None and transport is not None:
            self.late_s = late_s(transport, self.sent_mono, asyncio.get_running_loop().time)

    async def mark_sent(self) -> None:
        """Call the hook. When this returns, aiohttp writes the request in one piece."""
        self.check()
        try:
            await self.before_sent()
        except Exception as error:
            self.refused = error  # aiohttp would wrap some errors in its own
            raise
        self.check()  # the server may have closed the connection during the hook
        if self.deadline.passed:  # this process was suspended after the mark
            raise DeadlinePassedError
        # The time for the mark is not taken from the provider's, because its response may arrive only once.
        self.deadline.restart()
        self.sent_mono = asyncio.get_running_loop().time()
        faultpoint("token.before_write")


async def _mark_sent(_session: aiohttp.ClientSession, context: Any, _params: object) -> None:
    """Trace hook on_request_headers_sent: awaited after connect and TLS, before the first byte."""
    await context.trace_request_ctx.mark_sent()


class AiohttpTokenTransport(HttpTransport):
    """The port TokenTransport on aiohttp's session."""

    def __init__(
        self,
        settings: TransportSettings = TOKEN_SETTINGS,
        *,
        policy: AddressPolicy = PUBLIC_ONLY,
        tls: ssl.SSLContext | None = None,
        trust_env: bool = False,
        dials: DialObserver | None = None,
    ) -> None:
        super().__init__(settings, policy=policy, tls=tls, trust_env=trust_env, dials=dials)
        self._sessions: dict[bool, aiohttp.ClientSession] = {}

    async def _close_connections(self) -> None:
        for session in self._sessions.values():
            await session.close()
        self._sessions.clear()

    async def send(
        self, call: TokenCall, before_sent: Callable[[], Awaitable[None]]
    ) -> HttpResponse | NoResponse:
        """Send *call* once.

        Errors of *before_sent* are raised, and InvalidInputError for a call that is not valid HTTP; then
        nothing was sent. A cancelled call was sent if *before_sent* had returned.
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
        except Exception as error:  # noqa: BLE001 (once it was sent, its outcome is unknown)
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
            raise AddressNotAllowedError(refusal)
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
        """Return the whole body, bounded before and after decoding."""
        body = bytearray()
        async for chunk in response.content.iter_any():
            body += chunk
            if len(body) > MAX_BODY_BYTES:
                raise BodyTooLargeError
        return decoded(bytes(body), response.headers.get("Content-Encoding", ""), MAX_BODY_BYTES)

    # ---- sessions

    def _session(self, reuse: bool) -> aiohttp.ClientSession:
        """Return the session that reuses connections, or the one that opens one for each request."""
        session = self._sessions.get(reuse)
        if session is None:
            session = self._sessions[reuse] = self._new_session(reuse)
        return session

    def _new_session(self, reuse: bool) -> aiohttp.ClientSession:
        trace = aiohttp.TraceConfig()
        trace.on_request_headers_sent.append(_mark_sent)
        return open_session(
            self._settings,
            self._open_resolver(),
            self._tls,
            reuse=reuse,
            dials=self._dials,
            trace_configs=[trace],
        )


def _checked_headers(call: TokenCall, *, has_content: bool) -> dict[str, str]:
    """Return the headers of the request; raise InvalidInputError for one that HTTP does not allow."""
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
    """Return the body: JSON or the form; None for an empty form if the method needs no body."""
    if call.json_body is not None:
        return call.json_body.encode()
    if not call.form and call.method != "POST":
        return None
    return urlencode({name: value.reveal() for name, value in call.form.items()}).encode()
