"""The steps of one request to the token or revoke endpoint.

    read > recognise > ARRIVED > cut, hang or answer without processing > PROCESSED > respond > ANSWERED

The order is the design: the arrival is recorded before anything changes, and a request that was not processed
has changed no token.
"""

from __future__ import annotations

import itertools
import time

from aiohttp import web

from fairlead.testing._kit.request_barrier import Barriers, Moment, Point
from fairlead.testing.issuer.delivery import ResponseWriter
from fairlead.testing.issuer.families import RefreshGranted
from fairlead.testing.issuer.forms import client_of, read_form
from fairlead.testing.issuer.quirks import Endpoint, Quirk
from fairlead.testing.issuer.state import IssuerState
from fairlead.testing.issuer.token import TokenDecision, TokenEndpoint
from fairlead.testing.issuer.token_request import TokenRequestInfo
from fairlead.testing.issuer.wire import WireResponse


class TokenFlow:
    """The token and revoke endpoints; *barriers* are reached at each named point."""

    def __init__(self, state: IssuerState, endpoint: TokenEndpoint, barriers: Barriers) -> None:
        self._state = state
        self._endpoint = endpoint
        self._barriers = barriers
        self._numbers = itertools.count(1)

    async def serve(self, request: web.BaseRequest, writer: ResponseWriter, name: str, provider: str) -> None:
        """Serve *request*; *name* is ``token`` or ``revoke``."""
        token_request = await self._arrive(request, name, provider)
        if token_request is None:
            return
        await self._reach("arrived", token_request)
        quirk = self._quirk(token_request)
        if quirk is not None and "before" in (quirk.cut, quirk.hang):
            await writer.lose("hang" if quirk.hang == "before" else "cut")
            self._state.recorder.answered(
                token_request, status=None, delivered=False, granted=None, complete=False
            )
            return
        decision = self._unprocessed(token_request, quirk)
        if decision is None:
            decision = self._process(token_request, quirk)
            await self._reach("processed", token_request)
        await self._reach("answering", token_request)
        delivered = await writer.send(decision.response, quirk)
        granted = decision.outcome if isinstance(decision.outcome, RefreshGranted) else None
        status = decision.response.status if writer.has_written else None
        self._state.recorder.answered(
            token_request, status=status, delivered=delivered, granted=granted, complete=decision.complete
        )

    async def _arrive(self, request: web.BaseRequest, name: str, provider: str) -> TokenRequestInfo | None:
        """Record the arrival and return the request, or None when its body never came (that is recorded too)."""
        try:
            body, complete = await request.read(), True
        except (ConnectionError, web.HTTPRequestEntityTooLarge):
            body, complete = b"", False
        form = read_form(body)
        client_id, secret = client_of(form, request.headers.get("Authorization"))
        token_request = TokenRequestInfo(next(self._numbers), name, provider, form, client_id, secret)
        self._endpoint.recognise(token_request)
        now = self._state.clock.monotonic()
        self._state.recorder.arrived(token_request, now, query="?" in request.raw_path, complete=complete)
        return token_request if complete else None

    def _quirk(self, token_request: TokenRequestInfo) -> Quirk | None:
        if not self._state.rules:
            return None
        endpoint: Endpoint = "revoke" if token_request.endpoint == "revoke" else "token"
        now = self._state.clock.monotonic()
        return self._state.rules.pick(endpoint, token_request.provider, token_request.connection, now)

    def _unprocessed(self, token_request: TokenRequestInfo, quirk: Quirk | None) -> TokenDecision | None:
        """Return a response that leaves every token unchanged, or None."""
        if quirk is not None and not quirk.processed:
            response = quirk.replacement(time.time())
            if response is not None:
                return TokenDecision(response)
        refusal = self._endpoint.refuse_client(token_request)
        return None if refusal is None else TokenDecision(refusal)

    def _process(self, token_request: TokenRequestInfo, quirk: Quirk | None) -> TokenDecision:
        if token_request.endpoint == "revoke":
            return TokenDecision(self._endpoint.revoke(token_request))
        decision = self._endpoint.process(token_request, quirk)
        if decision.outcome is not None:
            self._state.recorder.processed(token_request, decision.outcome)
        response: WireResponse | None = None if quirk is None else quirk.replacement(time.time())
        return decision if response is None else TokenDecision(response, decision.outcome, complete=False)

    async def _reach(self, point: Point, token_request: TokenRequestInfo) -> None:
        """Wait at *point* while a test holds requests there."""
        if not self._barriers.any:
            return
        moment = Moment(
            point,
            token_request.number,
            token_request.endpoint,
            token_request.provider,
            token_request.connection,
            token_request.presented,
        )
        await self._barriers.reach(moment)
