"""Stripe: a 429 says in a header which limiter refused. Without it, it may be a lock and no limit at all.

It states nothing else, neither what is left nor how long to wait.
"""

from __future__ import annotations

from fairlead.policy.limits.feedback.raw_response import (
    CONCURRENCY,
    ENDPOINT,
    OBJECT,
    REQUESTS,
    LimitObservation,
    RawResponse,
    refusal_wait_s,
)
from fairlead.policy.limits.feedback.readers import header, member

_REASONS = {
    "global-rate": REQUESTS,
    "global-concurrency": CONCURRENCY,
    "endpoint-rate": ENDPOINT,
    "endpoint-concurrency": ENDPOINT,
    "resource-specific": OBJECT,
}


def stripe(reply: RawResponse, now_epoch_s: float | None) -> tuple[LimitObservation, ...]:
    """Return the refusal, by Stripe-Rate-Limited-Reason; ``lock_timeout`` without it is an object's lock.

    Source: docs.stripe.com/rate-limits; reference/gate.md §6.
    """
    if reply.status != 429:
        return ()
    wait_s = refusal_wait_s(reply, now_epoch_s)
    reason = header(reply, "stripe-rate-limited-reason")
    if reason is None and member(reply.body, "error", "code") == "lock_timeout":
        return (LimitObservation(OBJECT, wait_s=wait_s, code="lock_timeout"),)
    if reason in _REASONS:
        return (LimitObservation(_REASONS[reason], wait_s=wait_s, code=reason),)
    return (LimitObservation(REQUESTS, wait_s=wait_s),)
