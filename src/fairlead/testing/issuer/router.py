"""Routes the issuer's requests, and answers the resource endpoint, consent and the control API.

Responses are written directly to the connection: that is faster than aiohttp's own responses, and a test can
cut one at any byte.
"""

from __future__ import annotations

import asyncio
import json
import time
from urllib.parse import parse_qsl

from aiohttp import web

from fairlead.errors import InvalidInputError
from fairlead.testing._kit.control import ControlApi
from fairlead.testing.issuer.authorize import AuthorizationCodes, InvalidCodeError
from fairlead.testing.issuer.delivery import ResponseWriter
from fairlead.testing.issuer.flow import TokenFlow
from fairlead.testing.issuer.forms import bearer_of
from fairlead.testing.issuer.state import IssuerState
from fairlead.testing.issuer.wire import JSON, WireResponse

_NOT_FOUND = WireResponse(404, b'{"error":"not_found"}')


class _Written(web.StreamResponse):
    """A response that is already on the wire, for aiohttp."""

    def __init__(self, keep_alive: bool) -> None:
        self._connection_stays = keep_alive

    async def prepare(self, request: web.BaseRequest) -> None:
        """Do nothing: everything is sent."""

    async def write_eof(self, data: bytes = b"") -> None:
        """Do nothing: everything is sent."""

    @property
    def keep_alive(self) -> bool:
        """Whether the connection takes another request."""
        return self._connection_stays


class RequestRouter:
    """The handler of every request; *stopping* ends all waits."""

    def __init__(
        self,
        state: IssuerState,
        flow: TokenFlow,
        codes: AuthorizationCodes,
        control: ControlApi,
        stopping: asyncio.Event,
    ) -> None:
        self._state, self._flow, self._codes, self._control = state, flow, codes, control
        self._stopping = stopping
        self.url = ""

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer one request of aiohttp's low-level server."""
        writer = ResponseWriter(request.transport, request.keep_alive, self._pause, self._stopping)
        self._state.run_script(self._state.clock.monotonic())
        path, _, query = request.raw_path.partition("?")
        match (request.method, *path.split("/")[1:]):
            case ("POST", provider, "token" | "revoke" as name) if provider in self._state.providers:
                await self._flow.serve(request, writer, name, provider)
            case ("POST", "admin", "oauth", "access_token") if self._shopify() is not None:
                await self._flow.serve(request, writer, "token", self._shopify() or "")
            case ("GET", provider, "resource") if provider in self._state.providers:
                await self._resource(request, writer, provider)
            case ("GET", provider, "authorize"):
                await self._authorize(writer, provider, query)
            case ("GET", "authorize"):
                await self._authorize(writer, dict(parse_qsl(query)).get("provider", ""), query)
            case ("GET" | "POST", "_control", name):
                status, body = await self._control.handle(name, await request.read())
                await writer.send(WireResponse(status, body), None)
            case _:
                self._state.recorder.stray(request.method, path)
                await writer.send(_NOT_FOUND, None)
        return _Written(writer.keep_alive)

    def _shopify(self) -> str | None:
        """Return the first provider of Shopify's dialect, which answers at Shopify's path."""
        providers = self._state.providers.items()
        return next((name for name, provider in providers if provider.dialect == "shopify"), None)

    async def _resource(self, request: web.BaseRequest, writer: ResponseWriter, provider: str) -> None:
        """Answer a call of the resource endpoint by the state of its access token, with the quirk in force."""
        state, now = self._state, self._state.clock.monotonic()
        access = state.families.access(bearer_of(request.headers.get("Authorization")))
        if access is not None and access.family.provider != provider:
            access = None
        why = state.families.verdict_on(access, now)
        connection = None if access is None else access.family.connection
        quirk = state.rules.pick("resource", provider, connection, now)
        answer = None if quirk is None else quirk.replacement(time.time())
        if answer is None:
            answer = _resource_answer(why, connection)
        state.recorder.resource(provider, access, why=why, status=answer.status, now=now)
        if quirk is not None and "before" in (quirk.cut, quirk.hang):
            await writer.lose("hang" if quirk.hang == "before" else "cut")
        else:
            await writer.send(answer, quirk)

    async def _authorize(self, writer: ResponseWriter, provider: str, query: str) -> None:
        try:
            self._state.provider(provider)
            location = self._codes.consent(provider, dict(parse_qsl(query)), self.url)
            answer = WireResponse(302, headers=(("Location", location),))
        except (InvalidCodeError, InvalidInputError) as refusal:
            answer = WireResponse(400, str(refusal).encode(), "text/plain; charset=utf-8")
        await writer.send(answer, None)

    async def _pause(self, delay_s: float) -> None:
        """Wait on the issuer's clock, until it stops at the latest."""
        waits = [
            asyncio.ensure_future(self._state.clock.sleep(delay_s)),
            asyncio.ensure_future(self._stopping.wait()),
        ]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
            await asyncio.gather(*waits, return_exceptions=True)


def _resource_answer(why: str, connection: str | None) -> WireResponse:
    if why == "live":
        return WireResponse(200, json.dumps({"connection": connection}).encode(), JSON)
    challenge = f'Bearer error="invalid_token", error_description="{why}"'
    return WireResponse(401, b'{"error":"invalid_token"}', JSON, (("WWW-Authenticate", challenge),))
