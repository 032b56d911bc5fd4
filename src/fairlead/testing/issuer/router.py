"""The issuer's front door: which request goes where, the resource endpoint, consent.

Answers are written by hand onto the connection: that is faster than aiohttp's own responses, and a
test may cut one at any byte.
"""

from __future__ import annotations

import asyncio
import json
import time
from urllib.parse import parse_qsl

from aiohttp import web

from fairlead.errors import InvalidInputError
from fairlead.testing.issuer.authorize import AuthorizationCodes, InvalidCodeError
from fairlead.testing.issuer.delivery import ResponseWriter
from fairlead.testing.issuer.flow import TokenFlow
from fairlead.testing.issuer.forms import bearer_of
from fairlead.testing.issuer.issuer_control import IssuerControl
from fairlead.testing.issuer.state import IssuerState
from fairlead.testing.issuer.wire import JSON, WireResponse

_NOT_FOUND = WireResponse(404, b'{"error":"not_found"}')


class _Written(web.StreamResponse):
    """Tells aiohttp that the answer is on the wire already."""

    def __init__(self, keep_alive: bool) -> None:
        self._stays = keep_alive

    async def prepare(self, request: web.BaseRequest) -> None:
        """Nothing is left to send."""

    async def write_eof(self, data: bytes = b"") -> None:
        """Nothing is left to send."""

    @property
    def keep_alive(self) -> bool:
        """Whether the connection takes another request."""
        return self._stays


class RequestRouter:
    """Handles every request; *stopping* ends all waits."""

    def __init__(
        self,
        world: IssuerState,
        flow: TokenFlow,
        codes: AuthorizationCodes,
        control: IssuerControl,
        stopping: asyncio.Event,
    ) -> None:
        self._world, self._flow, self._codes, self._control = world, flow, codes, control
        self._stopping = stopping
        self.url = ""

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """The handler given to aiohttp's low-level server."""
        line = ResponseWriter(request.transport, request.keep_alive, self._pause, self._stopping)
        self._world.run_script(self._world.clock.monotonic())
        path, _, query = request.raw_path.partition("?")
        match (request.method, *path.split("/")[1:]):
            case ("POST", provider, "token" | "revoke" as name) if provider in self._world.providers:
                await self._flow.take(request, line, name, provider)
            case ("POST", "admin", "oauth", "access_token") if self._shopify() is not None:
                await self._flow.take(request, line, "token", self._shopify() or "")
            case ("GET", provider, "resource") if provider in self._world.providers:
                await self._resource(request, line, provider)
            case ("GET", provider, "authorize"):
                await self._authorize(line, provider, query)
            case ("GET", "authorize"):
                await self._authorize(line, dict(parse_qsl(query)).get("provider", ""), query)
            case ("GET" | "POST", "_control", name):
                await line.send(await self._control.answer(name, await request.read()), None)
            case _:
                self._world.entries.stray(request.method, path)
                await line.send(_NOT_FOUND, None)
        return _Written(line.keep_alive)

    def _shopify(self) -> str | None:
        """The provider that speaks at Shopify's path: the first of its dialect."""
        providers = self._world.providers.items()
        return next((name for name, provider in providers if provider.dialect == "shopify"), None)

    async def _resource(self, request: web.BaseRequest, line: ResponseWriter, provider: str) -> None:
        world, now = self._world, self._world.clock.monotonic()
        access = world.families.access(bearer_of(request.headers.get("Authorization")))
        if access is not None and access.family.provider != provider:
            access = None
        why = world.families.verdict_on(access, now)
        connection = None if access is None else access.family.connection
        quirk = world.rules.pick("resource", provider, connection, now)
        answer = None if quirk is None else quirk.instead(time.time())
        if answer is None:
            answer = _resource_answer(why, connection)
        world.entries.resource(provider, access, why=why, status=answer.status, now=now)
        if quirk is not None and "before" in (quirk.cut, quirk.hang):
            await line.lose("hang" if quirk.hang == "before" else "cut")
        else:
            await line.send(answer, quirk)

    async def _authorize(self, line: ResponseWriter, provider: str, query: str) -> None:
        try:
            self._world.provider(provider)
            location = self._codes.consent(provider, dict(parse_qsl(query)), self.url)
            answer = WireResponse(302, headers=(("Location", location),))
        except (InvalidCodeError, InvalidInputError) as refusal:
            answer = WireResponse(400, str(refusal).encode(), "text/plain; charset=utf-8")
        await line.send(answer, None)

    async def _pause(self, delay_s: float) -> None:
        """Wait on the issuer's clock, but not beyond its end."""
        waits = [
            asyncio.ensure_future(self._world.clock.sleep(delay_s)),
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
