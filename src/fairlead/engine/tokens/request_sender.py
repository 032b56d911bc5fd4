"""One send of one refresh, and the interpretation of its response. Spec: T4, T5, R6-R9, R13.

    secrets > data key and journal ready > permit and INTENT > connect > SENT > POST > response

The order is the design: every refusal comes before INTENT, and every harmless failure before SENT. After SENT
a request is only repeated by the provider's replay policy.

Over 400 lines because one send and the handling of its response are read in one place.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from uuid import UUID

from fairlead._core.faultpoint import faultpoint
from fairlead.engine.ports import (
    Claim,
    Credential,
    EndpointChange,
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
    names_of,
    profile_of,
)
from fairlead.engine.tokens.grants import Grants
from fairlead.engine.tokens.refresh_attempt import RefreshAttempt
from fairlead.engine.tokens.revocation import end_if_revoked
from fairlead.engine.tokens.settle import Send, Settler
from fairlead.engine.tokens.unknown_outcomes import UnknownOutcomes
from fairlead.errors import (
    AccountMismatchError,
    DependencyUnavailableError,
    EndpointPausedError,
    EndpointUnavailableError,
    FairleadError,
    IssuerClockError,
    NotSentError,
    OutcomeUnknownError,
    RateLimitedError,
    ReauthRequiredError,
    RequestRejectedError,
    TransientFailureError,
)
from fairlead.events import TokenEndpointStateChanged, TokenRefreshFailed
from fairlead.policy.calls import blast_radius
from fairlead.policy.reasons import token_reasons
from fairlead.policy.reasons.call_reasons import UNMARKED
from fairlead.policy.tokens import outcome as outcomes
from fairlead.policy.tokens.assertion_clock import ClockSkew, clock_skew
from fairlead.policy.tokens.parse import parse_answer
from fairlead.policy.tokens.token import account_mismatch

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


class _SendForbidden(Exception):
    """Raised inside the SENT hook: another process owns the rotation, or the time to send is over."""


class RefreshRequestSender:
    """Sends one refresh and handles its response. Its only state between refreshes is *sent*."""

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
        self._unknown = unknown
        self.sent: set[UUID] = set()

    async def send(
        self, credential: Credential, *, replay: Replay | None, actor: str, issuer_s: int | None = None
    ) -> FreshToken | None:
        """Send once; return the fresh token, or None if another owner or a newer generation came first.

        *issuer_s*: see Grants.build.
        """
        asked_mono = self._deps.clock.monotonic()
        profile = profile_of(self._deps, credential)
        stored = await self._settler.stored(credential)
        app = self._grants.app(credential, stored)
        call = self._grants.build(profile, credential, stored, app, issuer_s)
        _key = await self._deps.vault.preflight(credential.connection.key.tenant)  # stays in memory
        self._deps.journal.preflight()
        ask = self._grants.ask(profile, credential, app, call.url, at_once=actor not in PROGRAMS)
        intent = self._intent(credential)
        claim = await self._claim(intent, ask, replay)
        if claim is None:
            return None
        if isinstance(claim, EndpointRefusal):
            raise self._refusal_error(credential, claim)
        attempt = RefreshAttempt(
            credential, profile, stored, ask, claim, intent.attempt_id, replay, asked_mono, actor
        )
        attempt.issuer_s = issuer_s
        try:
            faultpoint("token.after_intent")
            return await self._send_attempt(attempt, call)
        finally:
            if not attempt.recorded:
                await self._record(attempt, blast_radius.NEVER_SENT, "")

    def _intent(self, credential: Credential) -> Intent:
        return Intent(
            connection_id=credential.connection.connection_id,
            attempt_id=self._deps.ids.uuid7(),
            from_generation=credential.generation,
            session_id=self._deps.session_id(),
            lease_s=self._settings.lease_s,
        )

    async def _claim(
        self, intent: Intent, ask: PermitRequest, replay: Replay | None
    ) -> Claim | EndpointRefusal | None:
        """Commit INTENT with a permit of the endpoint in one statement; a replay, a rare case, takes two."""
        if replay is None:
            return await self._deps.store.claim(intent, ask)
        permit = await self._deps.gate.admit(ask)
        if isinstance(permit, EndpointRefusal):
            return permit
        epoch = None
        try:
            epoch = await self._deps.store.claim_replay(intent, replay.replays)
        finally:
            if epoch is None:
                with suppress(DependencyUnavailableError):
                    await self._deps.gate.record(ask, permit, blast_radius.NEVER_SENT, "")
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
        marks: list[tuple[SentMark, float]] = []

        async def before_sent() -> None:
            mark = await self._deps.store.mark_sent(
                attempt.credential.connection.connection_id, attempt.attempt_id
            )
            if mark is None or self._is_late(attempt):
                raise _SendForbidden
            marks.append((mark, self._deps.clock.monotonic()))
            attempt.recorded = True
            self.sent.add(attempt.credential.connection.connection_id)
            faultpoint("token.after_sent")

        try:
            answer = await self._post(call, before_sent)
        except _SendForbidden:
            await self._release(attempt)
            return None
        except FairleadError:
            await self._release(attempt)  # the mark could not be made, so nothing left
            raise
        faultpoint("token.after_answer")
        if not marks or (isinstance(answer, NoResponse) and not answer.sent):
            raise await self._handle_not_sent(attempt, answer)
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
        return await self._handle_response(attempt, send, answer)

    def _is_late(self, attempt: RefreshAttempt) -> bool:
        """Return whether it is too late to send. Checked last, as each earlier step may have taken long.

        After the lease another process may treat the rotation as one of unknown outcome, and replay it.
        """
        now_s, replay = self._deps.clock.monotonic(), attempt.replay
        if now_s > attempt.asked_mono + self._settings.lease_s:
            return True
        return replay is not None and replay.leave_by_mono is not None and now_s > replay.leave_by_mono

    async def _post(self, call: TokenCall, before_sent: BeforeSent) -> HttpResponse | NoResponse:
        """Send the request. If it provably never left, retry after 1 s and 3 s within the same lease."""
        clock = self._deps.clock
        deadline_s = clock.monotonic() + self._settings.total_deadline_s
        for delay_s in (*self._settings.not_sent_delays_s, None):
            answer = await self._deps.transport.send(call, before_sent)
            sent = isinstance(answer, HttpResponse) or answer.sent
            if sent or delay_s is None or clock.monotonic() + delay_s + call.deadline_s > deadline_s:
                return answer
            await clock.sleep(delay_s)
        raise AssertionError("the last delay is None")

    # ---- what the answer means

    async def _handle_response(
        self, attempt: RefreshAttempt, send: Send, answer: HttpResponse | NoResponse
    ) -> FreshToken | None:
        if isinstance(answer, NoResponse):
            await self._apply_outcome(attempt, outcomes.Unknown(answer.why), answer.why)
            raise await self._mark_outcome_unknown(attempt, send, answer.why, "transient_network")
        got = parse_answer(answer.status, answer.headers, answer.body)
        outcome = outcomes.classify_answer(attempt.profile, got, lifetime_s=attempt.stored.tokens.lifetime_s)
        if isinstance(outcome, outcomes.Granted):  # nothing may come between such an answer and the disk (P6)
            return await self._handle_grant(attempt, send, answer, outcome)
        took_s = self._deps.clock.monotonic() - send.marked_mono
        skew = clock_skew(attempt.profile, outcome, got.date, send.marked_at, took_s)
        if skew is not None:
            return await self._handle_clock_skew(attempt, outcome, skew)
        return await self._handle_failure(attempt, send, answer, outcome)

    async def _handle_failure(
        self, attempt: RefreshAttempt, send: Send, answer: HttpResponse, outcome: outcomes.TokenOutcome
    ) -> FreshToken | None:
        if isinstance(outcome, outcomes.Unknown) and answer.status < 300 and not attempt.is_repeatable:
            await self._settler.retain_unusable(
                send, answer
            )  # it may hold the only copy of the next token (R12)
        hint_s = outcomes.hint_s(outcome)
        change = await self._apply_outcome(attempt, outcome, outcomes.why(outcome), hint_s or 0.0)
        match outcome:
            case outcomes.NotProcessed() | outcomes.TransientFailure():
                await self._release(attempt)
                raise self._failure(attempt, TransientFailureError, outcome.code, outcome.category, hint_s)
            case outcomes.Rejected() if change is not None and change.state == "paused":
                await self._release(attempt)  # all connections of the app wait (R13)
                wait_s = min(60.0, max(1.0, change.for_s))
                raise error_of(EndpointPausedError, attempt.credential, outcome.code, retry_after_s=wait_s)
            case outcomes.Rejected(category="permanent_auth"):
                return await self._handle_refused_grant(attempt, outcome)
            case outcomes.Rejected():
                await self._release(attempt)
                raise self._failure(attempt, RequestRejectedError, outcome.code, outcome.category)
            case outcomes.Unknown(why=why):
                raise await self._mark_outcome_unknown(attempt, send, why, "transient_server")
            case outcomes.NotSent() | outcomes.Granted():
                raise AssertionError("a complete answer was sent for, and a grant was concluded above")

    async def _handle_grant(
        self, attempt: RefreshAttempt, send: Send, answer: HttpResponse, granted: outcomes.Granted
    ) -> FreshToken | None:
        await self._settler.journal(send, answer)
        faultpoint("token.after_journal")
        if answer.late_s:
            send = await self._settler.late(send, answer)
        if account_mismatch(attempt.credential.connection.account_id, granted):
            await self._unknown.require_reauth(
                attempt.credential, "account_mismatch", attempt_id=attempt.attempt_id
            )
            await self._apply_outcome(attempt, granted)
            raise self._failure(attempt, AccountMismatchError, AccountMismatchError.code, "permanent_auth")
        published = await self._settler.publish(
            send, attempt.stored, granted, recovered=attempt.replay is not None
        )
        await self._apply_outcome(attempt, granted)
        if published is None:
            await end_if_revoked(self._deps, self._grants, attempt.credential, attempt.stored, granted)
        if published is None or attempt.replay is not None:
            return None  # a repeated answer may be as old as the first send: look at what is left of it
        return self._settler.fresh(send, published, granted.expires_in_s)

    async def _handle_refused_grant(
        self, attempt: RefreshAttempt, outcome: outcomes.Rejected
    ) -> FreshToken | None:
        """Require re-authorisation, unless there is a newer generation or a journalled response."""
        now = await self._deps.store.read_id(attempt.credential.connection.connection_id)
        if now is None or now.generation > attempt.credential.generation:
            return None
        if await self._unknown.from_journal(now, defers=False):  # no later answer will come
            return None
        reason = outcome.code if attempt.replay is None else token_reasons.LOST_ROTATION.code
        if not await self._unknown.require_reauth(attempt.credential, reason, attempt_id=attempt.attempt_id):
            return None
        raise self._failure(attempt, ReauthRequiredError, outcome.code, "permanent_auth", reason=reason)

    async def _handle_clock_skew(
        self, attempt: RefreshAttempt, outcome: outcomes.TokenOutcome, skew: ClockSkew
    ) -> FreshToken | None:
        """Sign once more with the issuer's time, or fail for now, because the grant may still be valid."""
        await self._release(attempt)
        url = attempt.profile.url("token", attempt.credential.connection.endpoint)
        spent_s = self._deps.clock.monotonic() - attempt.asked_mono + self._settings.request_deadline_s
        in_time = spent_s <= self._settings.total_deadline_s
        if attempt.issuer_s is None and in_time and skew.may_resign(url):
            await self._apply_outcome(attempt, outcome)  # stops no connection, not even this one
            return await self.send(
                attempt.credential, replay=None, actor=attempt.actor, issuer_s=skew.issuer_s
            )
        await self._apply_outcome(attempt, skew.outcome, str(skew))
        raise self._failure(
            attempt, IssuerClockError, IssuerClockError.code, skew.outcome.category, what=str(skew)
        )

    async def _mark_outcome_unknown(
        self, attempt: RefreshAttempt, send: Send, why: str, category: str
    ) -> FairleadError:
        """Record that the outcome is unknown, unless the provider repeats its answers; return the error."""
        if attempt.is_repeatable:
            await self._release(attempt)
            return self._failure(attempt, TransientFailureError, why, category)
        wait_s = await self._unknown.mark(
            attempt.credential, attempt.attempt_id, why, attempt.history(send, self._deps.clock.monotonic())
        )
        if wait_s is None:
            return self._failure(attempt, TransientFailureError, why, category)
        return self._failure(attempt, OutcomeUnknownError, why, category, wait_s)

    async def _handle_not_sent(
        self, attempt: RefreshAttempt, answer: HttpResponse | NoResponse
    ) -> FairleadError:
        await self._release(attempt)
        kind, why = (
            (answer.kind, answer.why) if isinstance(answer, NoResponse) else (UNMARKED.code, "not sent")
        )
        await self._apply_outcome(attempt, outcomes.not_sent(kind), why)
        return self._failure(attempt, NotSentError, kind, "transient_network", reason=why)

    # ---- small parts

    async def _release(self, attempt: RefreshAttempt) -> None:
        """Record that this send changed nothing. Retry until the store has it: no other process knows.

        After the lease other processes resolve the rotation by the replay policy, as one without an owner.
        """
        clock, until_s = self._deps.clock, self._deps.clock.monotonic() + self._settings.lease_s
        while True:
            try:
                await self._deps.store.release(
                    attempt.credential.connection.connection_id, attempt.attempt_id
                )
                return
            except DependencyUnavailableError:
                if clock.monotonic() >= until_s:
                    raise
                await clock.sleep(self._settings.settle_retry_s)

    async def _apply_outcome(
        self, attempt: RefreshAttempt, outcome: outcomes.TokenOutcome, why: str = "", hint_s: float = 0.0
    ) -> EndpointChange | None:
        """Apply *outcome* to the connections it may stop; return the changes for other connections."""
        change = await self._record(attempt, blast_radius.of_token(outcome), why, hint_s)
        if change is not None and change.news:
            self._deps.emit(
                TokenEndpointStateChanged(
                    attempt.ask.key.provider,
                    change.client_id,
                    change.state,
                    why or "a token was given",
                    change.for_s or None,
                    change.said_by,
                )
            )
        return change

    async def _record(
        self, attempt: RefreshAttempt, reach: blast_radius.Reach, why: str, hint_s: float = 0.0
    ) -> EndpointChange | None:
        """Record a response for the endpoint's health, which the next one corrects if the store is away."""
        attempt.recorded = True
        with suppress(DependencyUnavailableError):
            return await self._deps.gate.record(attempt.ask, attempt.claim.permit, reach, why, hint_s)
        return None

    def _failure(
        self,
        attempt: RefreshAttempt,
        kind: type[FairleadError],
        code: str,
        category: str,
        retry_after_s: float | None = None,
        reason: str | None = None,
        what: str = "",
    ) -> FairleadError:
        names, shown = names_of(attempt.credential.connection), reason or what or code
        self._deps.emit(TokenRefreshFailed(**names, code=code, category=category, reason=shown))
        unsent = kind is NotSentError
        told = f"the request never left: {reason}" if unsent else f"the token endpoint answered {code}"
        return error_of(
            kind,
            attempt.credential,
            what or told,
            retry_after_s=retry_after_s,
            category=category,
            reason=code if unsent else reason or code,
        )
