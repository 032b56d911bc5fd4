"""The decision after one attempt of a call: return its response, refresh the token, retry, or fail.

A request that the provider may have executed is sent again only if it is idempotent: by its method (RFC 9110,
9.2.2), by an idempotency key, or because the caller says so. Any request may be sent again if the provider
surely did not execute it: it refused for a limit or rejected the token, or the request was never sent.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from enum import Enum
from typing import NamedTuple

from fairlead.policy.calls.classify.verdict import Result, Verdict
from fairlead.policy.calls.deadline import has_time
from fairlead.policy.failures.category import Category
from fairlead.policy.failures.strategy import Next

IDEMPOTENT = frozenset({"GET", "HEAD", "OPTIONS", "TRACE", "PUT", "DELETE"})
"""Methods that are idempotent (RFC 9110, 9.2.2)."""
MAX_RETRYING_S = 300.0
"""The longest time from the start of a call to the end of its last retry. Spec: DEFAULTS §2."""
_KEYS = frozenset({"idempotency-key", "x-idempotency-key", "paypal-request-id"})


class NextAction(Enum):
    """What to do after an attempt."""

    RETURN = "return"
    REFRESH = "refresh"
    """Get a newer token and send the same request at once. Spec: C5."""
    RETRY = "retry"
    FAIL = "fail"
    REFUSED = "refused"
    """It was never sent. Only events have this value."""


class Decision(NamedTuple):
    """An action, to be taken after *delay_s*; *why* says why there is no retry."""

    action: NextAction
    delay_s: float = 0.0
    why: str = ""


RETURN = Decision(NextAction.RETURN)
"""The decision after every success."""


class Attempt(NamedTuple):
    """The facts about a call by which it is decided whether its failed attempt is retried.

    Attributes:
        retries: How often the call was retried before.
        refreshed: Whether a newer token was already requested.
        idempotent: Whether it may be executed twice.
        left_s: The time until the last retry must have ended.
        max_inline_wait_s: The longest wait inside the call; a longer one reschedules the job. Spec: C7.
        total_deadline_s: The deadline that the call had in all.
    """

    retries: int
    refreshed: bool
    idempotent: bool
    left_s: float
    max_inline_wait_s: float
    total_deadline_s: float = math.inf


def is_idempotent(method: str, headers: Iterable[str]) -> bool:
    """Return whether a request of *method* with *headers* (names) may be executed twice.

    >>> is_idempotent("GET", []), is_idempotent("POST", []), is_idempotent("POST", ["Idempotency-Key"])
    (True, False, True)
    """
    return method.upper() in IDEMPOTENT or any(name.lower() in _KEYS for name in headers)


def decide_next(
    attempt: Attempt, verdict: Verdict, *, status: int | None, draw: float, factor: float
) -> Decision:
    """Return what to do after *attempt*, given the *verdict* on its response.

    Args:
        status: The HTTP status. None: there was no response.
        draw: A random number in [0, 1).
        factor: The provider's scale of delays.
    """
    if verdict.result is not Result.FAILED:
        return RETURN
    if status == 401 and verdict.category is Category.PERMANENT_AUTH:
        if attempt.refreshed:
            return Decision(NextAction.FAIL, why="the newer token is not known either")
        return Decision(NextAction.REFRESH)
    return _decide_retry(attempt, verdict, draw, factor)


def decide_batch_retry(attempt: Attempt, verdict: Verdict, *, draw: float, factor: float) -> Decision:
    """Return RETRY for the failed items of a batch that may still succeed, or RETURN."""
    if verdict.result is not Result.PARTIAL or not verdict.items_to_retry:
        return Decision(NextAction.RETURN)
    decision = _decide_retry(attempt, verdict, draw, factor)
    return decision if decision.action is NextAction.RETRY else Decision(NextAction.RETURN, why=decision.why)


def _decide_retry(attempt: Attempt, verdict: Verdict, draw: float, factor: float) -> Decision:
    delay_s = verdict.strategy.delay_s(
        attempt.retries, draw=draw, hint_s=verdict.hint_s, daily=verdict.daily, factor=factor
    )
    if verdict.next is not Next.RETRY:
        return Decision(NextAction.FAIL, delay_s if verdict.next is Next.LATER else 0.0)
    reason = _reason_against(attempt, verdict, delay_s)
    return Decision(NextAction.FAIL if reason else NextAction.RETRY, delay_s, reason)


def _reason_against(attempt: Attempt, verdict: Verdict, delay_s: float) -> str:
    """Return why there is no retry after *delay_s*; empty: there may be one."""
    if attempt.retries >= verdict.max_attempts:
        return f"{attempt.retries} retries were made"
    if not (attempt.idempotent or verdict.refused_before_acting):
        return "it may have been acted upon, and is not to be done twice"
    if delay_s > attempt.max_inline_wait_s:
        return f"the next try is {delay_s:.3g} s away"
    if not has_time(attempt.left_s, delay_s, attempt.total_deadline_s):
        return "there is no time left for another try"
    return ""
