"""The classification of a call without a response. Spec: C3, R33."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from fairlead.policy.calls.classify.rules import Rules
from fairlead.policy.calls.classify.verdict import NO_MORE, Result, Step, Verdict
from fairlead.policy.failures.category import Category
from fairlead.policy.failures.process_health import HINTS
from fairlead.policy.failures.strategy import Next
from fairlead.policy.limits.breaker import DestinationHealth
from fairlead.policy.reasons import call_reasons, process_reasons

_OURS: Mapping[str, Category] = MappingProxyType(
    {
        call_reasons.REFUSED_ADDRESS.code: Category.PERMANENT_CONFIG,
        process_reasons.PROXY.code: Category.PERMANENT_CONFIG,
        call_reasons.TLS.code: Category.PERMANENT_CONFIG,
        call_reasons.TOO_LARGE.code: Category.PERMANENT_REQUEST,
    }
)
"""Kinds that a retry does not change."""
_NOT_ITS_FAULT = frozenset({call_reasons.REFUSED_ADDRESS.code, call_reasons.TOO_LARGE.code, *HINTS})
"""Kinds that say nothing about the destination."""


def classify_no_response(kind: str, *, sent: bool, why: str, rules: Rules, hurried: bool = False) -> Verdict:
    """Return the verdict on a call without a response.

    Args:
        kind, why: The reason, as the transport reports it.
        sent: Whether a byte of the request may have left this process.
        hurried: Whether it had so little time that a timeout says nothing about the destination.
    """
    ours = kind in _NOT_ITS_FAULT or (hurried and kind == call_reasons.TIMEOUT.code)
    theirs = DestinationHealth.UNHEALTHY if sent else DestinationHealth.UNREACHED
    category = _OURS.get(kind, Category.TRANSIENT_NETWORK)
    may_retry = category.transient and rules.max_retries > 0
    return Verdict(
        Result.FAILED,
        f"no response: {kind}",
        Step.STATUS,
        why,
        category=category,
        code=kind,
        strategy=rules.strategy if may_retry else NO_MORE,
        max_attempts=rules.max_retries if may_retry and rules.strategy.next is Next.RETRY else 0,
        health=DestinationHealth.NEUTRAL if ours else theirs,
        refused_before_acting=not sent,
    )
