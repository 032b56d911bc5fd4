"""Why the gate refuses a call."""

from __future__ import annotations

from fairlead.policy.reasons.reason import refusal

RATE = refusal("rate", "The rate limit allows no further call now.", "call again after `retry_after_s`")
SLOT = refusal("slot", "All slots of the connection are in use.", "call again after `retry_after_s`")
QUOTA = refusal(
    "quota", "The tenant uses as many slots as its quota allows.", "call again after `retry_after_s`"
)
BREAKER = refusal(
    "breaker",
    "The breaker of the destination is open.",
    "wait: a probe closes it once the destination responds",
)
RECOVERY = refusal(
    "recovery",
    "Redis lost its state, so slots and bulk operations from before may still be in use.",
    "wait for one lease (30 s by default); `fairlead gate doctor` shows the state of Redis",
)
OUTAGE = refusal(
    "outage",
    "Redis is unavailable, and this connection sends nothing without it.",
    "check Redis and its address with `fairlead doctor`",
)
ISOLATED = refusal(
    "isolated",
    "An operator stopped the calls of this connection, provider or installation.",
    "find the override with `fairlead gate overrides`, and end it with `fairlead gate breaker reset`",
)
RAPID = refusal(
    "rapid",
    "The tenant repeats refused calls without waiting.",
    "wait for `retry_after_s` before your next call",
)
RETRIES = refusal(
    "retries", "Too many of the connection's calls in flight are retries.", "call again after `retry_after_s`"
)
COST_ABOVE_LIMIT = refusal(
    "cost_above_limit",
    "The call costs more than the limit can ever hold.",
    "make your call smaller, or correct the limit in your settings",
)
