"""A call on its way, what one attempt came to, and how both are told."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple
from uuid import UUID

from fairlead.engine.calls.request import Call
from fairlead.engine.ports import Connection
from fairlead.engine.ports.gate import Admitted
from fairlead.engine.ports.http import HttpAnswer, NoAnswer
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
from fairlead.policy.calls.next_step import MAX_RETRYING_S, Attempt, Follow, Then
from fairlead.policy.failures.category import classify_exception
from fairlead.policy.failures.hint import clamp_hint
from fairlead.policy.failures.process_health import HINTS, is_own_fault
from fairlead.policy.limits.feedback.raw_response import RawResponse
from fairlead.policy.providers.call_settings import CallSettings
from fairlead.policy.providers.origin import Origins
from fairlead.policy.providers.profile import Profile
from fairlead.policy.tokens.token import PublicToken

_NEW_KEY_HINT = "give it a new one: `fairlead connections add --replace`"
_HOST_HINT = (
    "allow it where that is meant: the setting `hosts` of the connection, or of the profile;"
    " plain http goes only where the profile says allow_http"
)
_NOT_SENT_HINT = "check that this host can reach the provider's API; nothing was sent"


@dataclass(frozen=True, slots=True)
class Manners:
    """How calls of a connection are made and judged."""

    rules: Rules
    profile: Profile
    settings: CallSettings
    origins: Origins
    _bases: dict[str | None, str] = field(default_factory=dict)

    def base(self, connection: Connection, api: str | None) -> str:
        """The address that calls of *api* (default the profile's) begin with; see Profile.api_url."""
        known = self._bases.get(api)
        if known is None:
            known = self.profile.api_url(api or self.profile.limits.api, connection.endpoint)
            self._bases[api] = known
        return known

    def host_of(self, call: Call) -> str:
        """The host of *call*; InvalidInputError where the credential is not to be told to it."""
        host = self.origins.host_of(call.url)
        if host is None:
            raise InvalidInputError(
                "the call leads to a host that is none of the provider's, or over plain http",
                tenant=call.key.tenant,
                provider=call.key.provider,
                reason="foreign_host",
                hint=_HOST_HINT,
            )
        return host


class Tried(NamedTuple):
    """One attempt: what came, read where it is an answer, and judged."""

    came: HttpAnswer | NoAnswer
    reply: RawResponse | None
    verdict: Verdict

    @property
    def status(self) -> int | None:
        """Of the answer; None where there was none."""
        return self.came.status if isinstance(self.came, HttpAnswer) else None

    @property
    def sent(self) -> bool:
        """Whether anything of it may have left this process."""
        return isinstance(self.came, HttpAnswer) or self.came.sent


def gate_of(admitted: Admitted) -> str:
    """What let a call through; see CallAttempted."""
    plan = admitted.plan
    if plan.breaker is None and plan.pool is None and plan.quota is None and not plan.buckets:
        return "off"
    return "local" if admitted.local else "fleet"


@dataclass(slots=True)
class Progress:
    """A call on its way. *ends_s*: its deadline, *inline_s*: the longest wait that may be spent here."""

    call: Call
    host: str
    manners: Manners
    began_s: float
    ends_s: float
    inline_s: float
    whole_s: float
    """Its deadline as its caller or its connection wants it; in a job less may be left."""
    token: PublicToken | None = None
    refreshed: bool = False
    may_have_acted: bool = False
    """The provider may have done, at some attempt, what was asked of it."""
    may_have_left: bool = False
    """At some attempt that failed something may have been sent."""
    head_given: bool = False
    """Its caller has the head of a success, and reads."""
    last: Tried | None = None
    """The last attempt that failed."""
    retries: int = 0
    sends: int = 0
    left_s: float = 0.0
    """Until its deadline, when it was made ready."""
    given_s: float = 0.0
    """The time that the attempt under way has."""
    sent_s: float = 0.0
    """How long it was under way, all attempts together, until it was looked at."""
    left_at_s: float | None = None
    """When the attempt under way was sent."""
    gate: str = ""
    """What let its last attempt through, or refused it."""
    job_id: UUID | None = None
    waited_s: float = 0.0
    """For credentials, limits and retries, until it was looked at."""

    def leaves(self, now_s: float, admitted: Admitted) -> float:
        """It is sent once more; gives *now_s*."""
        self.sends += 1
        self.left_at_s = now_s
        self.gate = gate_of(admitted)
        return now_s

    def ended(self, now_s: float) -> None:
        """An attempt is over."""
        self._count_sent(now_s)
        self.left_at_s = None

    def look(self, now_s: float) -> None:
        """Reckon how long it has waited so far, and how long it was under way."""
        self._count_sent(now_s)
        self.waited_s = now_s - self.began_s - self.sent_s

    def _count_sent(self, now_s: float) -> None:
        if self.left_at_s is not None:
            self.sent_s += now_s - self.left_at_s
            self.left_at_s = now_s

    def attempt(self, now_s: float) -> Attempt:
        """As far as what follows depends on it."""
        left_s = min(self.ends_s, self.began_s + MAX_RETRYING_S) - now_s
        return Attempt(
            self.retries, self.refreshed, self.call.is_idempotent, left_s, self.inline_s, self.whole_s
        )

    def note_failed(self, tried: Tried) -> None:
        """It is tried once more."""
        self.last = tried
        self.may_have_acted |= not tried.verdict.refused_before_acting
        self.may_have_left |= tried.sent

    def event(
        self,
        status: int | None,
        rule: str,
        category: str | None,
        code: str,
        after: Follow,
        *,
        unclassified: bool = False,
        stands_for: int = 1,
    ) -> CallAttempted:
        """What explains this attempt later (C11)."""
        return CallAttempted(
            self.call.key.tenant,
            self.call.key.provider,
            self.call.key.account,
            self.host,
            self.call.operation,
            self.sends,
            status,
            rule,
            category,
            after.then.value,
            after.delay_s,
            self.waited_s,
            self.sent_s,
            code,
            self.gate,
            self.job_id,
            unclassified,
            stands_for,
        )

    def refused(self, error: FairleadError) -> FairleadError:
        """Return the error of the call after *error* refused another attempt.

        Once an attempt was sent, the result must not say that nothing was sent: it is the failure of that
        attempt, caused by *error*. A fault of this process is reported as such. After a 401, which alone is
        no reason to give up, the category is that of *error*.
        """
        if self.last is None:
            return error
        if not self.may_have_left:
            is_ours = is_own_fault(self.last.verdict.code)
            return self.failed(self.last, Follow(Then.FAIL, why=error.message)) if is_ours else error
        failed = self._failed(
            self.last, Follow(Then.FAIL, why=f"it could not be tried again: {error.message}")
        )
        if not (failed.category or "").startswith("transient"):
            failed.category = classify_exception(error).category
        failed.retry_after_s = max(failed.retry_after_s or 0.0, error.retry_after_s or 0.0) or None
        failed.__cause__ = error
        return failed

    def turned_away(self, error: FairleadError) -> FairleadError:
        """Why there is no newer token after a 401. Where none can be had it is the vendor who refused the one
        that there is, and only another one helps."""
        if not isinstance(error, NoRefreshTokenError):
            return error
        keys_only = self.manners.profile.endpoints.authorize is None
        credential = "API key" if keys_only else "access token, which cannot be renewed"
        refused = NoRefreshTokenError(
            f"the provider refused the connection's {credential} (401)",
            tenant=self.call.key.tenant,
            provider=self.call.key.provider,
            reason=error.reason,
            hint=_NEW_KEY_HINT if keys_only else None,
        )
        refused.account = self.call.key.account
        return refused

    def failed(self, tried: Tried, after: Follow) -> CallFailedError | NotSentError:
        """Why it is over."""
        if self.may_have_left or tried.sent:
            return self._failed(tried, after)
        return NotSentError(  # without a time: a job that is told one comes back for ever
            _why(tried, after),
            tenant=self.call.key.tenant,
            provider=self.call.key.provider,
            category=tried.verdict.category,
            reason=tried.verdict.code,
            hint=HINTS.get(tried.verdict.code, _NOT_SENT_HINT),
        )

    def _failed(self, tried: Tried, after: Follow) -> CallFailedError:
        verdict = tried.verdict
        transient = verdict.category is not None and verdict.category.transient
        hint_s = clamp_hint(verdict.hint_s or 0.0, daily_limit=verdict.daily)
        failed = CallFailedError(
            _why(tried, after),
            tenant=self.call.key.tenant,
            provider=self.call.key.provider,
            category=verdict.category,
            reason=verdict.code,
            retry_after_s=max(after.delay_s, hint_s) or None if transient else None,
            verdict=verdict,
            answer=tried.came if isinstance(tried.came, HttpAnswer) else None,
            reply=tried.reply,
            attempts=self.sends,
            may_have_acted=self.may_have_acted or not verdict.refused_before_acting,
        )
        failed.idempotent = self.call.is_idempotent
        failed.account = self.call.key.account
        return failed


def _why(tried: Tried, after: Follow) -> str:
    return f"{tried.verdict.why}; {after.why}" if after.why else tried.verdict.why
