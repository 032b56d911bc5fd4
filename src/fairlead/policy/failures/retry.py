"""Try again or give up: the failure table of SPEC T as data, and the one decision over it.

A job meets failures of several categories in one life. Each category has its own count and its own limit
(R14): four resets and three 503s are not seven failures of anything, and a success in between of some other
kind forgives nothing. A ceiling of 20 attempts holds over all of them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType

from fairlead.policy.failures.backoff import Jitter, jittered_s, nominal_delay_s
from fairlead.policy.failures.category import RETRIED, Category, Failure
from fairlead.policy.failures.hint import DAILY_PARK_CAP_S, HINT_CAP_S, hinted_delay
from fairlead.policy.reasons.call_reasons import MAY_HAVE_ACTED
from fairlead.policy.text.number import number_of


class NextStep(StrEnum):
    """What a dead letter of a category asks for."""

    REVIEW = "review"
    REAUTHORIZE = "reauthorize"
    FIX = "fix"


@dataclass(frozen=True, slots=True)
class RetryRule:
    """One row of the table: how often, how long, how spread, and what then."""

    attempts: int = 0
    """Tries after the first; 0: none."""
    base_s: float = 1.0
    """Nominal wait before the first retry."""
    cap_s: float = 30.0
    """Longest nominal wait."""
    jitter: Jitter = Jitter.FULL
    then: NextStep = NextStep.REVIEW

    def __post_init__(self) -> None:
        if self.attempts < 0:
            raise ValueError(f"attempts {self.attempts} is negative hint: 0 means no retry")
        if not (math.isfinite(self.cap_s) and 0 < self.base_s <= self.cap_s):
            raise ValueError(f"base {self.base_s} s and cap {self.cap_s} s do not fit hint: 0 < base <= cap")


DEFAULT_RULES: Mapping[Category, RetryRule] = MappingProxyType(
    {
        Category.TRANSIENT_NETWORK: RetryRule(5, 1.0, 30.0, Jitter.FULL),
        Category.TRANSIENT_RATE_LIMIT: RetryRule(10, 5.0, 60.0, Jitter.EQUAL),
        Category.TRANSIENT_SERVER: RetryRule(3, 2.0, 30.0, Jitter.FULL),
        Category.HANDLER_ERROR: RetryRule(3, 1.0, 30.0, Jitter.FULL, then=NextStep.FIX),
        Category.PERMANENT_AUTH: RetryRule(then=NextStep.REAUTHORIZE),
        Category.PERMANENT_CONFIG: RetryRule(then=NextStep.FIX),
        Category.PERMANENT_PERMISSION: RetryRule(then=NextStep.FIX),
        Category.PERMANENT_REQUEST: RetryRule(),
    }
)

TIMEOUT_WAITS: tuple[tuple[float, float], ...] = ((30.0, 60.0), (45.0, 180.0), (math.inf, 300.0))
"""After a timeout: ran less than the first number of seconds, waits the second (Q5)."""

MAX_ATTEMPTS = 20


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How jobs of a kind are retried, by the category of their failures.

    The default is the table of `docs/how-to/jobs.md`; a kind may bring its own.
    """

    rules: Mapping[Category, RetryRule] = field(default_factory=lambda: DEFAULT_RULES)
    ceiling: int = MAX_ATTEMPTS
    """Attempts in all, whatever the categories; default 20, which is also the most."""

    def __post_init__(self) -> None:
        missing = [category.value for category in Category if category not in self.rules]
        if missing:
            raise ValueError(f"no rule for {', '.join(missing)} hint: a policy rules all eight categories")
        if not 1 <= number_of(self.ceiling) <= MAX_ATTEMPTS:
            raise ValueError(f"ceiling {self.ceiling} is out of bounds hint: 1 to {MAX_ATTEMPTS} attempts")

    @classmethod
    def uniform(cls, attempts: int, *, base_s: float, cap_s: float, jitter: Jitter) -> RetryPolicy:
        """Return a policy with one rule for all transient failures and errors of the handler; others are final."""
        row = RetryRule(attempts, base_s, cap_s, jitter)
        return cls({**DEFAULT_RULES, **dict.fromkeys(RETRIED, row)}, min(MAX_ATTEMPTS, attempts + 1))


DEFAULT_POLICY = RetryPolicy()


@dataclass(frozen=True, slots=True)
class RetryAt:
    """Run the job again after *delay_s*; keep *streaks* with it."""

    delay_s: float
    streaks: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class DiscardJob:
    """The job has failed for good; *why* names the limit that was reached, *then* what its dead letter needs."""

    streaks: Mapping[str, int]
    why: str
    then: NextStep


def decide(
    failure: Failure,
    streaks: Mapping[str, int],
    attempts_total: int,
    *,
    draw: float,
    factor: float = 1.0,
    policy: RetryPolicy = DEFAULT_POLICY,
) -> RetryAt | DiscardJob:
    """Return what to do with a job after *failure*.

    Args:
        failure: The failure of its last attempt.
        streaks: Its earlier failures by category.
        attempts_total: Its attempts so far, with the failed one.
        draw: A random number in [0, 1).
        factor: The provider's scale of the base. Default 1, Mercado Libre 1.5.
        policy: The retry policy.
    """
    rule = policy.rules[failure.category]
    failures = streaks.get(failure.category, 0)
    counted = {**streaks, failure.category.value: failures + 1}
    if rule.attempts == 0:
        return DiscardJob(counted, f"{failure.category} is not retried", rule.then)
    if failure.code == MAY_HAVE_ACTED.code:
        why = "the provider may have done what was asked, and the call is not idempotent"
        return DiscardJob(counted, why, NextStep.REVIEW)
    if failures >= rule.attempts:
        return DiscardJob(counted, f"{failure.category} again after {rule.attempts} retries", rule.then)
    if attempts_total >= policy.ceiling:
        return DiscardJob(counted, f"{attempts_total} attempts in all, the ceiling", rule.then)
    return RetryAt(_delay_s(failure, rule, failures, draw, factor), counted)


def _delay_s(failure: Failure, rule: RetryRule, attempt: int, draw: float, factor: float) -> float:
    nominal_s = nominal_delay_s(attempt, base_s=rule.base_s, cap_s=rule.cap_s, factor=factor)
    if failure.timed_out_after_s is not None:
        wait_s = _timeout_wait_s(failure.timed_out_after_s)
        return hinted_delay(wait_s, wait_s, 0.0, draw)  # like a hint: not earlier, not all at once
    if failure.hint_s is not None:
        cap_s = DAILY_PARK_CAP_S if failure.daily_limit else HINT_CAP_S
        return hinted_delay(failure.hint_s, cap_s, nominal_s, draw)
    return jittered_s(nominal_s, rule.jitter, draw)


def _timeout_wait_s(ran_s: float) -> float:
    return next(wait_s for below_s, wait_s in TIMEOUT_WAITS if ran_s < below_s)
