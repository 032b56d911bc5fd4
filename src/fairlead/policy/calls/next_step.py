"""What follows one attempt of a call: give its answer, refresh and replay, try again, or say that it failed.

A request that may have been acted upon is sent again only where doing it twice is doing it once: by its
method (RFC 9110, 9.2.2), by an idempotency key, or because the caller says so. Where the server surely did
not act (it refused for a limit, it did not know the token, the request never left) anything may be.
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
"""Methods that may be repeated (RFC 9110, 9.2.2)."""
MAX_RETRYING_S = 300.0
"""From the beginning of a call to the end of its last retry, at most (DEFAULTS §2)."""
_KEYS = frozenset({"idempotency-key", "x-idempotency-key", "paypal-request-id"})


class NextAction(Enum):
    """What follows."""

    RETURN = "return"
    REFRESH = "refresh"
    """Get a newer token, and send the same again at once (C5)."""
    RETRY = "retry"
    FAIL = "fail"
    REFUSED = "refused"
    """It was never sent; only records of calls say so."""


class Decision(NamedTuple):
    """What follows, after *delay_s*; *why* says what stood against another try."""

    action: NextAction
    delay_s: float = 0.0
    why: str = ""


RETURN = Decision(NextAction.RETURN)
"""After whatever is no failure, as `follow` says, too: most calls need not ask it."""


class Attempt(NamedTuple):
    """One attempt, as far as what follows depends on it.

    *retries*: how often it was tried again before. *refreshed*: a newer token was already asked for.
    *idempotent*: it may be sent twice. *left_s*: until its last retry must have ended, of *whole_s* that the
    call wanted. *inline_s*: the longest wait that may be spent here; a job's worker is not kept longer (C7).
    """

    retries: int
    refreshed: bool
    idempotent: bool
    left_s: float
    max_inline_wait_s: float
    total_deadline_s: float = math.inf


def is_idempotent(method: str, headers: Iterable[str]) -> bool:
    """Whether a request of *method* with *headers* (names) may be sent twice.

    >>> is_idempotent("GET", []), is_idempotent("POST", []), is_idempotent("POST", ["Idempotency-Key"])
    (True, False, True)
    """
    return method.upper() in IDEMPOTENT or any(name.lower() in _KEYS for name in headers)


def decide_next(
    attempt: Attempt, verdict: Verdict, *, status: int | None, draw: float, factor: float
) -> Decision:
    """What follows *attempt*, which came to *verdict*; *status* None: there was no answer.

    *draw* is a random number in [0, 1), *factor* the provider's scale of delays.
    """
    if verdict.result is not Result.FAILED:
        return RETURN
    if status == 401 and verdict.category is Category.PERMANENT_AUTH:
        if attempt.refreshed:
            return Decision(NextAction.FAIL, why="the newer token is not known either")
        return Decision(NextAction.REFRESH)
    return _tried_again(attempt, verdict, draw, factor)


def decide_batch_retry(attempt: Attempt, verdict: Verdict, *, draw: float, factor: float) -> Decision:
    """What follows a batch of which a part failed: AGAIN for the items that may still succeed, or GIVE."""
    if verdict.result is not Result.PARTIAL or not verdict.items_to_retry:
        return Decision(NextAction.RETURN)
    decision = _tried_again(attempt, verdict, draw, factor)
    return decision if decision.action is NextAction.RETRY else Decision(NextAction.RETURN, why=decision.why)


def _tried_again(attempt: Attempt, verdict: Verdict, draw: float, factor: float) -> Decision:
    delay_s = verdict.strategy.delay_s(
        attempt.retries, draw=draw, hint_s=verdict.hint_s, daily=verdict.daily, factor=factor
    )
    if verdict.next is not Next.RETRY:
        return Decision(NextAction.FAIL, delay_s if verdict.next is Next.LATER else 0.0)
    against = _against(attempt, verdict, delay_s)
    return Decision(NextAction.FAIL if against else NextAction.RETRY, delay_s, against)


def _against(attempt: Attempt, verdict: Verdict, delay_s: float) -> str:
    """What stands against another try after *delay_s*; empty: nothing."""
    if attempt.retries >= verdict.max_attempts:
        return f"{attempt.retries} retries were made"
    if not (attempt.idempotent or verdict.refused_before_acting):
        return "it may have been acted upon, and is not to be done twice"
    if delay_s > attempt.max_inline_wait_s:
        return f"the next try is {delay_s:.3g} s away"
    if not has_time(attempt.left_s, delay_s, attempt.total_deadline_s):
        return "there is no time left for another try"
    return ""
