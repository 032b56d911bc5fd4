"""The state of a call, the result of one attempt, and the events and errors made of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple
from uuid import UUID

from fairlead._core.secret import Secret
from fairlead.engine.calls.request import Call
from fairlead.engine.limits.admission import CallRequest
from fairlead.engine.ports import Admitted, Connection, HttpRequest, HttpResponse, NoResponse
from fairlead.errors import (
    CallFailedError,
    FairleadError,
    InvalidInputError,
    NoRefreshTokenError,
    NotSentError,
)
from fairlead.events import CallAttempted
from fairlead.policy.calls.classify.rules import Rules
from fairlead.policy.calls.classify.verdict import Verdict
from fairlead.policy.calls.next_step import MAX_RETRYING_S, Attempt, Decision, NextAction
from fairlead.policy.failures.category import classify_exception
from fairlead.policy.failures.hint import clamp_hint
from fairlead.policy.failures.process_health import HINTS, is_own_fault
from fairlead.policy.limits.feedback.raw_response import RawResponse
from fairlead.policy.providers.call_settings import CallSettings
from fairlead.policy.providers.origin import AllowedOrigins
from fairlead.policy.providers.profile import Profile
from fairlead.policy.reasons import call_reasons
from fairlead.policy.tokens.token import PublicToken

_NEW_KEY_HINT = "give it a new one: `fairlead connections add --replace`"
_HOST_HINT = (
    "allow it where that is meant: the setting `hosts` of the connection, or of the profile;"
    " plain http goes only where the profile says allow_http"
)
_NOT_SENT_HINT = "check that this host can reach the provider's API; nothing was sent"


@dataclass(frozen=True, slots=True)
class CallConfig:
    """How the calls of one connection are made and classified."""

    rules: Rules
    profile: Profile
    settings: CallSettings
    origins: AllowedOrigins
    _bases: dict[str | None, str] = field(default_factory=dict)

    def base(self, connection: Connection, api: str | None) -> str:
        """Return the base URL of *api* (default the profile's); see `Profile.api_url`."""
        base = self._bases.get(api)
        if base is None:
            base = self.profile.api_url(api or self.profile.limits.api, connection.endpoint)
            self._bases[api] = base
        return base

    def host_of(self, call: Call) -> str:
        """Return the host of *call*; InvalidInputError if the credential must not be sent to it."""
        host = self.origins.host_of(call.url)
        if host is None:
            raise InvalidInputError(
                "the call leads to a host that is none of the provider's, or over plain http",
                tenant=call.key.tenant,
                provider=call.key.provider,
                reason=call_reasons.FOREIGN_HOST.code,
                hint=_HOST_HINT,
            )
        return host


class AttemptResult(NamedTuple):
    """The outcome of one attempt, parsed and classified."""

    outcome: HttpResponse | NoResponse
    raw_response: RawResponse | None
    """The parsed response; None if there is none."""
    verdict: Verdict

    @property
    def status(self) -> int | None:
        """The HTTP status; None if there is no response."""
        return self.outcome.status if isinstance(self.outcome, HttpResponse) else None

    @property
    def sent(self) -> bool:
        """Whether any byte of the request may have left this process."""
        return isinstance(self.outcome, HttpResponse) or self.outcome.sent


def admitted_by(admitted: Admitted) -> str:
    """Return what admitted a call; see `CallAttempted.gate`."""
    plan = admitted.plan
    if plan.breaker is None and plan.pool is None and plan.quota is None and not plan.buckets:
        return "off"
    return "local" if admitted.local else "fleet"


@dataclass(slots=True)
class CallState:
    """The progress of one call over all its attempts.

    Attributes:
        deadline_mono: When the call ends; in a job no later than the job allows.
        max_inline_wait_s: The longest wait inside the call; in a job a longer one reschedules the job.
        total_deadline_s: The deadline that the caller or the connection sets.
        left_s: The time to the deadline when the attempt was prepared.
        sent_mono: When the last attempt was sent.
        in_flight_s: How long all attempts were in flight, as of the last `update_timers`.
        waited_s: How long the call waited for credentials, limits and retries, as of the last `update_timers`.
        last: The last failed attempt.
        may_have_acted: Whether the provider may have executed a failed attempt.
        may_have_been_sent: Whether a failed attempt may have left this process.
        headers_delivered: Whether the caller has the headers of a success and reads its body.
        gate: What admitted the last attempt, or refused it.
    """

    call: Call
    host: str
    config: CallConfig
    started_mono: float
    deadline_mono: float
    max_inline_wait_s: float
    total_deadline_s: float
    token: PublicToken | None = None
    refreshed: bool = False
    may_have_acted: bool = False
    may_have_been_sent: bool = False
    headers_delivered: bool = False
    last: AttemptResult | None = None
    retries: int = 0
    attempts: int = 0
    left_s: float = 0.0
    attempt_timeout_s: float = 0.0
    in_flight_s: float = 0.0
    sent_mono: float = 0.0
    _in_flight_since_mono: float | None = None
    gate: str = ""
    job_id: UUID | None = None
    waited_s: float = 0.0

    def start_attempt(self, now_mono: float, admitted: Admitted) -> None:
        """Count one more attempt, sent at *now_mono*."""
        self.attempts += 1
        self.sent_mono = self._in_flight_since_mono = now_mono
        self.gate = admitted_by(admitted)

    def end_attempt(self, now_mono: float) -> None:
        """Count the time of the attempt that has ended."""
        self._add_in_flight(now_mono)
        self._in_flight_since_mono = None

    def update_timers(self, now_mono: float) -> None:
        """Bring `waited_s` and `in_flight_s` up to date."""
        self._add_in_flight(now_mono)
        self.waited_s = now_mono - self.started_mono - self.in_flight_s

    def _add_in_flight(self, now_mono: float) -> None:
        """Add to `in_flight_s` the time that the attempt under way took since the last update."""
        if self._in_flight_since_mono is not None:
            self.in_flight_s += now_mono - self._in_flight_since_mono
            self._in_flight_since_mono = now_mono

    def attempt(self, now_mono: float) -> Attempt:
        """Return the values by which policy decides whether to retry."""
        left_s = min(self.deadline_mono, self.started_mono + MAX_RETRYING_S) - now_mono
        return Attempt(
            self.retries,
            self.refreshed,
            self.call.is_idempotent,
            left_s,
            self.max_inline_wait_s,
            self.total_deadline_s,
        )

    def record_failed_attempt(self, result: AttemptResult) -> None:
        """Record a failed attempt after which the call is sent again."""
        self.last = result
        self.may_have_acted |= not result.verdict.refused_before_acting
        self.may_have_been_sent |= result.sent

    def admission_request(self) -> CallRequest:
        """Return the request for admission of the next attempt."""
        call, left_s = self.call, self.left_s
        wait_s = self.max_inline_wait_s if call.wait_s is None else call.wait_s
        return CallRequest(
            call.key,
            call.api,
            self.host,
            call.cost,
            call.priority_class,
            min(wait_s, left_s),
            left_s,
            retry=self.retries > 0 or None,
            operation=call.operation,
        )

    def http_request(self) -> HttpRequest:
        """Return the request of the attempt that was started, with the credential in its header."""
        call, header = self.call, self.config.profile.credential_header
        assert self.token is not None
        value = Secret(header.format.replace("{token}", self.token.access_token.reveal()), remember=False)
        headers: Mapping[str, str | Secret] = {**header.fixed, **call.headers, header.name: value}
        timeout_s = self.attempt_timeout_s = self.deadline_mono - self.sent_mono
        max_bytes, tenant = call.max_body_bytes, call.key.tenant
        return HttpRequest(call.method, call.url, headers, call.body, timeout_s, max_bytes, tenant)

    def event(
        self,
        status: int | None,
        rule: str,
        category: str | None,
        code: str,
        decision: Decision,
        *,
        unclassified: bool = False,
        stands_for: int = 1,
    ) -> CallAttempted:
        """Return the event of this attempt. Spec: C11."""
        return CallAttempted(
            self.call.key.tenant,
            self.call.key.provider,
            self.call.key.account,
            self.host,
            self.call.operation,
            self.attempts,
            status,
            rule,
            category,
            decision.action.value,
            decision.delay_s,
            self.waited_s,
            self.in_flight_s,
            code,
            self.gate,
            self.job_id,
            unclassified,
            stands_for,
        )

    def error_after_refusal(self, error: FairleadError) -> FairleadError:
        """Return the error of the call after *error* refused another attempt.

        Once an attempt was sent, the result must not say that nothing was sent: it is the failure of that
        attempt, caused by *error*. A fault of this process is reported as such. After a 401, which alone is
        no reason to give up, the category is that of *error*.
        """
        if self.last is None:
            return error
        if not self.may_have_been_sent:
            is_ours = is_own_fault(self.last.verdict.code)
            return (
                self.failure_error(self.last, Decision(NextAction.FAIL, why=error.message))
                if is_ours
                else error
            )
        failed = self._call_failed(
            self.last, Decision(NextAction.FAIL, why=f"it could not be tried again: {error.message}")
        )
        if not (failed.category or "").startswith("transient"):
            failed.category = classify_exception(error).category
        failed.retry_after_s = max(failed.retry_after_s or 0.0, error.retry_after_s or 0.0) or None
        failed.__cause__ = error
        return failed

    def rejection_error(self, error: FairleadError) -> FairleadError:
        """Return the error of a call that got a 401 and no newer token, because of *error*.

        A connection that cannot refresh gets its own error: the provider rejected its only credential, and you
        must supply a new one.
        """
        if not isinstance(error, NoRefreshTokenError):
            return error
        keys_only = self.config.profile.endpoints.authorize is None
        credential = "API key" if keys_only else "access token, which cannot be renewed"
        rejected = NoRefreshTokenError(
            f"the provider refused the connection's {credential} (401)",
            tenant=self.call.key.tenant,
            provider=self.call.key.provider,
            reason=error.reason,
            hint=_NEW_KEY_HINT if keys_only else None,
        )
        rejected.account = self.call.key.account
        return rejected

    def failure_error(self, result: AttemptResult, decision: Decision) -> CallFailedError | NotSentError:
        """Return the error of a call that ends with the failed attempt *result*."""
        if self.may_have_been_sent or result.sent:
            return self._call_failed(result, decision)
        return NotSentError(  # without retry_after_s: a job would be rescheduled without end
            _why(result, decision),
            tenant=self.call.key.tenant,
            provider=self.call.key.provider,
            category=result.verdict.category,
            reason=result.verdict.code,
            hint=HINTS.get(result.verdict.code, _NOT_SENT_HINT),
        )

    def _call_failed(self, result: AttemptResult, decision: Decision) -> CallFailedError:
        verdict = result.verdict
        transient = verdict.category is not None and verdict.category.transient
        hint_s = clamp_hint(verdict.hint_s or 0.0, daily_limit=verdict.daily)
        failed = CallFailedError(
            _why(result, decision),
            tenant=self.call.key.tenant,
            provider=self.call.key.provider,
            category=verdict.category,
            reason=verdict.code,
            retry_after_s=max(decision.delay_s, hint_s) or None if transient else None,
            verdict=verdict,
            response=result.outcome if isinstance(result.outcome, HttpResponse) else None,
            raw_response=result.raw_response,
            attempts=self.attempts,
            may_have_acted=self.may_have_acted or not verdict.refused_before_acting,
        )
        failed.idempotent = self.call.is_idempotent
        failed.account = self.call.key.account
        return failed


def _why(result: AttemptResult, decision: Decision) -> str:
    return f"{result.verdict.why}; {decision.why}" if decision.why else result.verdict.why
