"""The interpretation of a response to a refresh, or of its lack. Spec: R9, R12, R13.

grant > journal > generation
rejection or failure > the connections, app or host that it stops > an error
no response > unknown outcome, or an error if the provider repeats its responses
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

from fairlead._core.faultpoint import faultpoint
from fairlead.engine.ports import EndpointChange, HttpResponse, NoResponse
from fairlead.engine.tokens.deps import FreshToken, RefreshDeps, RefreshSettings, error_of, names_of
from fairlead.engine.tokens.grants import Grants
from fairlead.engine.tokens.refresh_attempt import RefreshAttempt
from fairlead.engine.tokens.revocation import end_if_revoked
from fairlead.engine.tokens.settle import Send, Settler
from fairlead.engine.tokens.unknown_outcomes import UnknownOutcomes
from fairlead.errors import (
    AccountMismatchError,
    DependencyUnavailableError,
    EndpointPausedError,
    FairleadError,
    IssuerClockError,
    NotSentError,
    OutcomeUnknownError,
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
from fairlead.policy.tokens.parse import parse_token_response
from fairlead.policy.tokens.token import account_mismatch


@dataclass(frozen=True, slots=True)
class Resign:
    """The request must be signed and sent again with the issuer's Unix time *issuer_s*."""

    issuer_s: int


class RefreshResponseHandler:
    """Stores the grant of a response, or applies its failure to what it stops."""

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

    async def handle(
        self, attempt: RefreshAttempt, send: Send, answer: HttpResponse | NoResponse
    ) -> FreshToken | Resign | None:
        """Return the fresh token; None: read the credential again. Raise the error of a failed refresh."""
        if isinstance(answer, NoResponse):
            await self._apply_outcome(attempt, outcomes.Unknown(answer.why), answer.why)
            raise await self._mark_outcome_unknown(attempt, send, answer.why, "transient_network")
        parsed = parse_token_response(answer.status, answer.headers, answer.body)
        outcome = outcomes.classify_token_response(
            attempt.profile, parsed, lifetime_s=attempt.secrets.tokens.lifetime_s
        )
        if isinstance(outcome, outcomes.Granted):  # nothing may delay its way to the disk
            return await self._handle_grant(attempt, send, answer, outcome)
        took_s = self._deps.clock.monotonic() - send.marked_mono
        skew = clock_skew(attempt.profile, outcome, parsed.date, send.marked_at, took_s)
        if skew is not None:
            return await self._handle_clock_skew(attempt, outcome, skew)
        return await self._handle_failure(attempt, send, answer, outcome)

    async def _handle_failure(
        self, attempt: RefreshAttempt, send: Send, answer: HttpResponse, outcome: outcomes.TokenOutcome
    ) -> FreshToken | None:
        if isinstance(outcome, outcomes.Unknown) and answer.status < 300 and not attempt.is_repeatable:
            # it may hold the only copy of the next token
            await self._settler.retain_unusable(send, answer)
        hint_s = outcomes.hint_s(outcome)
        change = await self._apply_outcome(attempt, outcome, outcomes.why(outcome), hint_s or 0.0)
        match outcome:
            case outcomes.NotProcessed() | outcomes.TransientFailure():
                await self.release(attempt)
                raise self._failure(attempt, TransientFailureError, outcome.code, outcome.category, hint_s)
            case outcomes.Rejected() if change is not None and change.state == "paused":
                await self.release(attempt)  # all connections of the app wait (R13)
                wait_s = min(60.0, max(1.0, change.for_s))
                raise error_of(EndpointPausedError, attempt.credential, outcome.code, retry_after_s=wait_s)
            case outcomes.Rejected(category="permanent_auth"):
                return await self._handle_refused_grant(attempt, outcome)
            case outcomes.Rejected():
                await self.release(attempt)
                raise self._failure(attempt, RequestRejectedError, outcome.code, outcome.category)
            case outcomes.Unknown(why=why):
                raise await self._mark_outcome_unknown(attempt, send, why, "transient_server")
            case outcomes.NotSent() | outcomes.Granted():
                raise AssertionError("a response has arrived, and grants are handled elsewhere")

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
            send, attempt.secrets, granted, recovered=attempt.replay is not None
        )
        await self._apply_outcome(attempt, granted)
        if published is None:
            await end_if_revoked(self._deps, self._grants, attempt.credential, attempt.secrets, granted)
        if published is None or attempt.replay is not None:
            return None  # a repeated response may be as old as the first send: read how long it lasts
        return self._settler.fresh(send, published, granted.expires_in_s)

    async def _handle_refused_grant(
        self, attempt: RefreshAttempt, outcome: outcomes.Rejected
    ) -> FreshToken | None:
        """Require re-authorisation, unless there is a newer generation or a journalled response."""
        now = await self._deps.store.read_id(attempt.credential.connection.connection_id)
        if now is None or now.generation > attempt.credential.generation:
            return None
        if await self._unknown.from_journal(now, defers=False):  # no later response will arrive
            return None
        reason = outcome.code if attempt.replay is None else token_reasons.LOST_ROTATION.code
        if not await self._unknown.require_reauth(attempt.credential, reason, attempt_id=attempt.attempt_id):
            return None
        raise self._failure(attempt, ReauthRequiredError, outcome.code, "permanent_auth", reason=reason)

    async def _handle_clock_skew(
        self, attempt: RefreshAttempt, outcome: outcomes.TokenOutcome, skew: ClockSkew
    ) -> Resign:
        """Return that the request must be signed again; or raise an error, because the grant may be valid."""
        await self.release(attempt)
        url = attempt.profile.url("token", attempt.credential.connection.endpoint)
        spent_s = self._deps.clock.monotonic() - attempt.asked_mono + self._settings.request_deadline_s
        in_time = spent_s <= self._settings.total_deadline_s
        if attempt.issuer_s is None and in_time and skew.may_resign(url):
            await self._apply_outcome(attempt, outcome)  # stops no connection, not even this one
            return Resign(skew.issuer_s)
        await self._apply_outcome(attempt, skew.outcome, str(skew))
        raise self._failure(
            attempt, IssuerClockError, IssuerClockError.code, skew.outcome.category, message=str(skew)
        )

    async def _mark_outcome_unknown(
        self, attempt: RefreshAttempt, send: Send, why: str, category: str
    ) -> FairleadError:
        """Record that the outcome is unknown, unless the provider repeats its answers; return the error."""
        if attempt.is_repeatable:
            await self.release(attempt)
            return self._failure(attempt, TransientFailureError, why, category)
        wait_s = await self._unknown.mark(
            attempt.credential, attempt.attempt_id, why, attempt.history(send, self._deps.clock.monotonic())
        )
        if wait_s is None:
            return self._failure(attempt, TransientFailureError, why, category)
        return self._failure(attempt, OutcomeUnknownError, why, category, wait_s)

    async def not_sent(self, attempt: RefreshAttempt, answer: HttpResponse | NoResponse) -> FairleadError:
        """Apply the failure of a request that was not sent; return its error."""
        await self.release(attempt)
        kind, why = (
            (answer.kind, answer.why) if isinstance(answer, NoResponse) else (UNMARKED.code, "not sent")
        )
        await self._apply_outcome(attempt, outcomes.not_sent(kind), why)
        return self._failure(attempt, NotSentError, kind, "transient_network", reason=why)

    async def release(self, attempt: RefreshAttempt) -> None:
        """Record that this send changed nothing. Retry until the store has it: no other process knows.

        After the lease other processes resolve the rotation by the replay policy, as one without an owner.
        """
        clock, until_mono = self._deps.clock, self._deps.clock.monotonic() + self._settings.lease_s
        while True:
            try:
                await self._deps.store.release(
                    attempt.credential.connection.connection_id, attempt.attempt_id
                )
                return
            except DependencyUnavailableError:
                if clock.monotonic() >= until_mono:
                    raise
                await clock.sleep(self._settings.settle_retry_s)

    async def _apply_outcome(
        self, attempt: RefreshAttempt, outcome: outcomes.TokenOutcome, why: str = "", hint_s: float = 0.0
    ) -> EndpointChange | None:
        """Apply *outcome* to the connections it may stop; return the changes for other connections."""
        change = await self.record(attempt, blast_radius.of_token(outcome), why, hint_s)
        if change is not None and change.news:
            self._deps.emit(
                TokenEndpointStateChanged(
                    attempt.permit_request.key.provider,
                    change.client_id,
                    change.state,
                    why or "a token was given",
                    change.for_s or None,
                    change.said_by,
                )
            )
        return change

    async def record(
        self, attempt: RefreshAttempt, reach: blast_radius.Reach, why: str, hint_s: float = 0.0
    ) -> EndpointChange | None:
        """Record a response for the endpoint's health.

        If the store is unavailable, the next one corrects it.
        """
        attempt.recorded = True
        with suppress(DependencyUnavailableError):
            return await self._deps.gate.record(
                attempt.permit_request, attempt.claim.permit, reach, why, hint_s
            )
        return None

    def _failure(
        self,
        attempt: RefreshAttempt,
        kind: type[FairleadError],
        code: str,
        category: str,
        retry_after_s: float | None = None,
        reason: str | None = None,
        message: str = "",
    ) -> FairleadError:
        names, shown = names_of(attempt.credential.connection), reason or message or code
        self._deps.emit(TokenRefreshFailed(**names, code=code, category=category, reason=shown))
        unsent = kind is NotSentError
        if not message:
            message = f"the request never left: {reason}" if unsent else f"the token endpoint answered {code}"
        return error_of(
            kind,
            attempt.credential,
            message,
            retry_after_s=retry_after_s,
            category=category,
            reason=code if unsent else reason or code,
        )
