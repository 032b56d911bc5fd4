"""One send of one refresh. Spec: T4, T5, R6-R9, R13.

    secrets > data key and journal ready > permit and INTENT > connect > SENT > POST > response

The order is the design: every refusal comes before INTENT, and every harmless failure before SENT. After SENT
a request is only repeated by the provider's replay policy.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from uuid import UUID

from fairlead._core.faultpoint import faultpoint
from fairlead.engine.ports import (
    Claim,
    Credential,
    EndpointRefusal,
    HttpResponse,
    Intent,
    NoResponse,
    PermitRequest,
    SentMark,
    TokenCall,
)
from fairlead.engine.tokens.deps import (
    FreshToken,
    RefreshDeps,
    RefreshSettings,
    Replay,
    error_of,
    profile_of,
)
from fairlead.engine.tokens.grants import Grants
from fairlead.engine.tokens.refresh_attempt import RefreshAttempt
from fairlead.engine.tokens.response_handler import RefreshResponseHandler, Resign
from fairlead.engine.tokens.settle import Send, Settler
from fairlead.engine.tokens.unknown_outcomes import UnknownOutcomes
from fairlead.errors import (
    DependencyUnavailableError,
    EndpointPausedError,
    EndpointUnavailableError,
    FairleadError,
    RateLimitedError,
)
from fairlead.policy.calls import blast_radius
from fairlead.policy.reasons import token_reasons

BeforeSent = Callable[[], Awaitable[None]]

JITTER_SHARE = 0.1
"""Waits of many connections for one endpoint are spread by this share, so that they do not return at once."""
WAITABLE: Mapping[str, str] = {
    "connection": token_reasons.BACKED_OFF.code,
    "busy": token_reasons.BUSY.code,
}
"""Reasons of the refusals that a caller may wait out, by guard. No other refusal has a reason."""
PROGRAMS = frozenset({"fairlead", "caller"})
"""Actors that wait for a connection's back-off. Other actors are people, and ask once."""


class _SendForbiddenError(Exception):
    """Raised inside the SENT hook: another process owns the rotation, or the time to send is over."""


class RefreshRequestSender:
    """Sends refreshes. *sent* holds the connections with a sent refresh in flight."""

    def __init__(
        self,
        deps: RefreshDeps,
        settings: RefreshSettings,
        grants: Grants,
        settler: Settler,
        unknown: UnknownOutcomes,
    ) -> None:
        self._deps = deps
        self._settings = settings
        self._grants = grants
        self._settler = settler
        self._responses = RefreshResponseHandler(deps, settings, grants, settler, unknown)
        self.sent: set[UUID] = set()

    async def send(
        self, credential: Credential, *, replay: Replay | None, actor: str, issuer_s: int | None = None
    ) -> FreshToken | None:
        """Send once; return the fresh token, or None if another owner or a newer generation came first.

        *issuer_s*: see Grants.build.
        """
        asked_mono = self._deps.clock.monotonic()
        profile = profile_of(self._deps, credential)
        secrets = await self._settler.open_secrets(credential)
        app = self._grants.app(credential, secrets)
        call = self._grants.build(profile, credential, secrets, app, issuer_s)
        _key = await self._deps.vault.preflight(credential.connection.key.tenant)  # stays in memory
        self._deps.journal.preflight()
        request = self._grants.permit_request(
            profile, credential, app, call.url, at_once=actor not in PROGRAMS
        )
        intent = self._intent(credential)
        claim = await self._claim(intent, request, replay)
        if claim is None:
            return None
        if isinstance(claim, EndpointRefusal):
            raise self._refusal_error(credential, claim)
        attempt = RefreshAttempt(
            credential, profile, secrets, request, claim, intent.attempt_id, replay, asked_mono, actor
        )
        attempt.issuer_s = issuer_s
        try:
            faultpoint("token.after_intent")
            return await self._send_attempt(attempt, call)
        finally:
            if not attempt.recorded:
                await self._responses.record(attempt, blast_radius.NEVER_SENT, "")

    def _intent(self, credential: Credential) -> Intent:
        return Intent(
            connection_id=credential.connection.connection_id,
            attempt_id=self._deps.ids.uuid7(),
            from_generation=credential.generation,
            session_id=self._deps.session_id(),
            lease_s=self._settings.lease_s,
        )

    async def _claim(
        self, intent: Intent, request: PermitRequest, replay: Replay | None
    ) -> Claim | EndpointRefusal | None:
        """Commit INTENT with a permit of the endpoint in one statement; a replay, a rare case, takes two."""
        if replay is None:
            return await self._deps.store.claim(intent, request)
        permit = await self._deps.gate.admit(request)
        if isinstance(permit, EndpointRefusal):
            return permit
        epoch = None
        try:
            epoch = await self._deps.store.claim_replay(intent, replay.replays)
        finally:
            if epoch is None:
                with suppress(DependencyUnavailableError):
                    await self._deps.gate.record(request, permit, blast_radius.NEVER_SENT, "")
        return None if epoch is None else Claim(epoch, permit)

    def _refusal_error(self, credential: Credential, refusal: EndpointRefusal) -> FairleadError:
        kind = {"breaker": EndpointUnavailableError, "pause": EndpointPausedError}.get(
            refusal.by, RateLimitedError
        )
        spread_s = refusal.retry_after_s * JITTER_SHARE * self._deps.draw()
        reason = WAITABLE.get(refusal.by)
        wait_s = refusal.retry_after_s + spread_s
        return error_of(kind, credential, refusal.reason, retry_after_s=wait_s, reason=reason)

    async def _send_attempt(self, attempt: RefreshAttempt, call: TokenCall) -> FreshToken | None:
        """Send the request of *attempt*, marked as sent in the store just before, and handle its response.

        If the issuer's clock differs, the request is signed by that clock and sent once more.
        """
        marks: list[tuple[SentMark, float]] = []

        async def before_sent() -> None:
            mark = await self._deps.store.mark_sent(
                attempt.credential.connection.connection_id, attempt.attempt_id
            )
            if mark is None or self._is_late(attempt):
                raise _SendForbiddenError
            marks.append((mark, self._deps.clock.monotonic()))
            attempt.recorded = True  # the permit is used
            self.sent.add(attempt.credential.connection.connection_id)
            faultpoint("token.after_sent")

        try:
            answer = await self._post(call, before_sent)
        except _SendForbiddenError:
            await self._responses.release(attempt)
            return None
        except FairleadError:
            await self._responses.release(attempt)  # nothing was marked, so nothing was sent
            raise
        faultpoint("token.after_answer")
        if not marks or (isinstance(answer, NoResponse) and not answer.sent):
            raise await self._responses.not_sent(attempt, answer)
        mark, marked_mono = marks[0]
        send = Send(
            attempt.credential,
            attempt.attempt_id,
            attempt.claim.epoch,
            *mark,
            attempt.asked_mono,
            marked_mono,
            attempt.actor,
        )
        result = await self._responses.handle(attempt, send, answer)
        if isinstance(result, Resign):
            return await self.send(
                attempt.credential, replay=None, actor=attempt.actor, issuer_s=result.issuer_s
            )
        return result

    def _is_late(self, attempt: RefreshAttempt) -> bool:
        """Return whether it is too late to send. Checked last, as each earlier step may have taken long.

        After the lease another process may treat the rotation as one of unknown outcome, and replay it.
        """
        now_mono, replay = self._deps.clock.monotonic(), attempt.replay
        if now_mono > attempt.asked_mono + self._settings.lease_s:
            return True
        return replay is not None and replay.leave_by_mono is not None and now_mono > replay.leave_by_mono

    async def _post(self, call: TokenCall, before_sent: BeforeSent) -> HttpResponse | NoResponse:
        """Send the request. If it provably never left, retry after 1 s and 3 s within the same lease."""
        clock = self._deps.clock
        deadline_mono = clock.monotonic() + self._settings.total_deadline_s
        for delay_s in (*self._settings.not_sent_delays_s, None):
            answer = await self._deps.transport.send(call, before_sent)
            sent = isinstance(answer, HttpResponse) or answer.sent
            if sent or delay_s is None or clock.monotonic() + delay_s + call.deadline_s > deadline_mono:
                return answer
            await clock.sleep(delay_s)
        raise AssertionError("the last delay is None")
