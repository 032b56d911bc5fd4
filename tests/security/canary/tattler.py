"""A vendor that repeats every secret it is told, in all the places where answers have room.

The last part of a path says how it answers: ``/api/error``, ``/api/redirect`` and so on. Its token endpoint
does what was laid out for the refresh token: ``ok``, ``refuse`` (invalid_grant), ``fail`` (500), ``garbage``.
"""

from __future__ import annotations

import asyncio
import json
from collections import defaultdict
from types import TracebackType
from typing import Self
from urllib.parse import urlencode

from aiohttp import web

from tests.support.canaries import Canaries

SLOW_S = 30.0
MOODS = ("ok", "wrong", "error", "html", "lost", "busy", "redirect", "reset", "slow", "graphql", "absent")
"""How the API is asked to answer."""
TOKEN_MOODS = ("ok", "refuse", "fail", "garbage")


class Tattler:
    """On 127.0.0.1 while the ``async with`` block lasts; each token that it makes is a canary."""

    def __init__(self, canaries: Canaries) -> None:
        self.canaries = canaries
        self.moods: defaultdict[str, list[str]] = defaultdict(list)
        """By refresh token: how its next requests are answered; ``ok`` when there are no more."""
        self.heard: list[bytes] = []
        """Webhooks as they came: heads and bodies."""
        self.calls: list[str] = []
        self.url = ""

    async def __aenter__(self) -> Self:
        app = web.Application()
        app.router.add_post("/token", self._token)
        app.router.add_post("/hook/{secret}", self._hook)
        app.router.add_route("*", "/api/{mood}", self._api)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        host, port = self._runner.addresses[0][:2]
        self.url = f"http://{host}:{port}"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._runner.cleanup()

    @property
    def not_reached(self) -> set[str]:
        """The moods in which nobody was answered."""
        return {*MOODS, *(f"token {mood}" for mood in TOKEN_MOODS)} - set(self.calls)

    # ---- token endpoint --------------------------------------------------------------------------

    async def _token(self, request: web.Request) -> web.Response:
        form_fields = dict((await request.post()).items())
        form = {name: str(value) for name, value in form_fields.items()}
        if "code_verifier" in form:
            self.canaries.keep("PKCE verifier", form["code_verifier"])
        moods = self.moods[form.get("refresh_token", form.get("client_assertion", "")[:20])]
        mood = moods.pop(0) if moods else "ok"
        self.calls.append(f"token {mood}")
        encoded, echo = urlencode(form), json.dumps(form)
        loud = {
            "Set-Cookie": f"session={self.canaries.random('cookie of a token answer')}",
            "X-Debug": encoded,
        }
        if mood == "fail":
            return web.Response(status=500, text=f"<h1>{encoded}</h1><pre>{echo}</pre>", headers=loud)
        if mood == "garbage":
            return web.Response(
                text=f"not JSON: {echo} {encoded}", content_type="application/json", headers=loud
            )
        if mood == "refuse":
            refusal = {
                "error": "invalid_grant",
                "error_description": f"{form.get('refresh_token')} is dead ({encoded})",
                "error_uri": f"https://vendor.example/why?{encoded}",
                "debug": form,
            }
            return web.json_response(refusal, status=400, headers=loud)
        return web.json_response(self._granted(), headers=loud)

    def _granted(self) -> dict[str, object]:
        make, shapeless = self.canaries.random, self.canaries.shapeless
        return {
            "access_token": shapeless("access token of an answer"),
            "refresh_token": shapeless("refresh token of an answer"),
            "id_token": f"eyJhbGciOiJub25lIn0.{make('id_token')}.{make('signature of an id_token')}",
            "token_type": "Bearer",
            "expires_in": 3600,
            "device_secret": make("unknown field of an answer"),
        }

    # ---- API -------------------------------------------------------------------------------------

    async def _api(self, request: web.Request) -> web.StreamResponse:
        mood, body = request.match_info["mood"], await request.text()
        self.calls.append(mood)
        token = request.headers.get("Authorization", "") or request.headers.get("X-Api-Key", "")
        bare = token.rpartition(" ")[2]
        echo = f"{token} {bare} {request.query_string} {body}"
        loud = {
            "Authorization": token,
            "Set-Cookie": f"session={self.canaries.random('cookie of an answer')}",
            "X-Request-Id": bare,
            "WWW-Authenticate": f'Bearer error="invalid_token", error_description="{bare}"',
        }
        answered = {
            "error": {"code": bare, "message": f"this was wrong: {echo}", "access_token": bare},
            "message": echo,
            "errors": [{"message": echo, "extensions": {"code": "BAD", "token": bare}}],
        }
        if mood == "redirect":
            loud["Location"] = f"https://vendor.example/x?access_token={bare}&{request.query_string}"
            return web.Response(status=302, headers=loud)
        if mood == "reset":
            assert request.transport is not None
            request.transport.abort()
            return web.Response()
        if mood == "slow":
            await asyncio.sleep(SLOW_S)
        if mood == "html":
            return web.Response(status=500, text=f"<h1>{echo}</h1>", content_type="text/html", headers=loud)
        if mood == "leads":
            following = f"{request.url.with_query(None)}?page=2&access_token={bare}"
            return web.json_response({"results": [1], "paging": {"next": {"after": bare}}, "next": following})
        status = {"ok": 200, "graphql": 200, "lost": 401, "busy": 429, "wrong": 422}.get(mood, 500)
        if mood == "ok":
            answered = {"data": {"echo": echo}}
        if mood == "busy":
            loud["Retry-After"] = "0"
        return web.json_response(answered, status=status, headers=loud)

    async def _hook(self, request: web.Request) -> web.Response:
        head = "\n".join(f"{name}: {value}" for name, value in request.headers.items())
        self.heard.append(f"{head}\n\n{await request.text()}".encode())
        status = 500 if len(self.heard) == 1 else 200
        return web.Response(status=status, text=f"{request.path} {head}")
