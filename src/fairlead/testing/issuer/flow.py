"""One request to the token or revoke endpoint from its first byte to its last.

    read > recognise > ARRIVED > cut, hang or answer without processing > PROCESSED > answer > ANSWERED

The order is the design: arrival is on record before anything changes, and what was not processed left
the tokens untouched.
"""

from __future__ import annotations

import itertools
import time

from aiohttp import web

from fairlead.testing._kit.request_barrier import Hook, Moment, Point
from fairlead.testing.issuer.delivery import ResponseWriter
from fairlead.testing.issuer.families import RefreshGranted
from fairlead.testing.issuer.forms import client_of, read_form
from fairlead.testing.issuer.quirks import Endpoint, Quirk
from fairlead.testing.issuer.state import IssuerState
from fairlead.testing.issuer.token import TokenDecision, TokenEndpoint
from fairlead.testing.issuer.token_request import TokenRequestInfo
from fairlead.testing.issuer.wire import WireResponse


class TokenFlow:
    """Takes requests through the steps; *hooks* are awaited at each named point."""

    def __init__(self, world: IssuerState, endpoint: TokenEndpoint, hooks: list[Hook]) -> None:
        self._world = world
        self._endpoint = endpoint
        self._hooks = hooks
        self._numbers = itertools.count(1)

    async def take(self, request: web.BaseRequest, line: ResponseWriter, name: str, provider: str) -> None:
        """Serve *request*; *name* is ``token`` or ``revoke``."""
        visit = await self._arrive(request, name, provider)
        if visit is None:
            return
        await self._reach("arrived", visit)
        quirk = self._quirk(visit)
        if quirk is not None and "before" in (quirk.cut, quirk.hang):
            await line.lose("hang" if quirk.hang == "before" else "cut")
            self._world.entries.answered(visit, status=None, delivered=False, granted=None, whole=False)
            return
        reply = self._unprocessed(visit, quirk)
        if reply is None:
            reply = self._process(visit, quirk)
            await self._reach("processed", visit)
        await self._reach("answering", visit)
        delivered = await line.send(reply.answer, quirk)
        granted = reply.outcome if isinstance(reply.outcome, RefreshGranted) else None
        status = reply.answer.status if line.began else None
        self._world.entries.answered(
            visit, status=status, delivered=delivered, granted=granted, whole=reply.whole
        )

    async def _arrive(self, request: web.BaseRequest, name: str, provider: str) -> TokenRequestInfo | None:
        """The recorded visit, or None when its body never came (that is recorded too)."""
        try:
            body, complete = await request.read(), True
        except (ConnectionError, web.HTTPRequestEntityTooLarge):
            body, complete = b"", False
        form = read_form(body)
        client_id, secret = client_of(form, request.headers.get("Authorization"))
        visit = TokenRequestInfo(next(self._numbers), name, provider, form, client_id, secret)
        self._endpoint.recognise(visit)
        now = self._world.clock.monotonic()
        self._world.entries.arrived(visit, now, query="?" in request.raw_path, complete=complete)
        return visit if complete else None

    def _quirk(self, visit: TokenRequestInfo) -> Quirk | None:
        if not self._world.rules:
            return None
        endpoint: Endpoint = "revoke" if visit.endpoint == "revoke" else "token"
        now = self._world.clock.monotonic()
        return self._world.rules.pick(endpoint, visit.provider, visit.connection, now)

    def _unprocessed(self, visit: TokenRequestInfo, quirk: Quirk | None) -> TokenDecision | None:
        """A complete answer that leaves every token as it was, or None."""
        if quirk is not None and not quirk.processed:
            answer = quirk.instead(time.time())
            if answer is not None:
                return TokenDecision(answer)
        refusal = self._endpoint.refuse_client(visit)
        return None if refusal is None else TokenDecision(refusal)

    def _process(self, visit: TokenRequestInfo, quirk: Quirk | None) -> TokenDecision:
        if visit.endpoint == "revoke":
            return TokenDecision(self._endpoint.revoke(visit))
        reply = self._endpoint.process(visit, quirk)
        if reply.outcome is not None:
            self._world.entries.processed(visit, reply.outcome)
        answer: WireResponse | None = None if quirk is None else quirk.instead(time.time())
        return reply if answer is None else TokenDecision(answer, reply.outcome, whole=False)

    async def _reach(self, point: Point, visit: TokenRequestInfo) -> None:
        if not self._hooks:
            return
        moment = Moment(
            point, visit.number, visit.endpoint, visit.provider, visit.connection, visit.presented
        )
        for hook in tuple(self._hooks):
            await hook(moment)
