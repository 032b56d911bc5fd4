"""A call that got no answer, judged like one that did (C3, R33)."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from fairlead.policy.calls.classify.rules import Rules
from fairlead.policy.calls.classify.verdict import NO_MORE, Result, Step, Verdict
from fairlead.policy.failures.category import Category
from fairlead.policy.failures.process_health import HINTS
from fairlead.policy.failures.strategy import Next
from fairlead.policy.limits.breaker import DestinationHealth

_OURS: Mapping[str, Category] = MappingProxyType(
    {
        "refused_address": Category.PERMANENT_CONFIG,
        "proxy": Category.PERMANENT_CONFIG,
        "tls": Category.PERMANENT_CONFIG,
        "too_large": Category.PERMANENT_REQUEST,
    }
)
"""What a further try does not change."""
_NOT_ITS_FAULT = frozenset({"refused_address", "too_large", *HINTS})
"""Kinds that say nothing of the destination."""


def classify_no_response(kind: str, *, sent: bool, why: str, rules: Rules, hurried: bool = False) -> Verdict:
    """The verdict on a call without an answer. *kind*, *why*: the transport's; *sent*: it may have left.

    *hurried*: it had too little time for a timeout to tell anything of its destination.
    """
    ours = kind in _NOT_ITS_FAULT or (hurried and kind == "timeout")
    theirs = DestinationHealth.UNHEALTHY if sent else DestinationHealth.UNREACHED
    category = _OURS.get(kind, Category.TRANSIENT_NETWORK)
    again = category.transient and rules.max_retries > 0
    return Verdict(
        Result.FAILED,
        f"no answer: {kind}",
        Step.STATUS,
        why,
        category=category,
        code=kind,
        strategy=rules.strategy if again else NO_MORE,
        max_attempts=rules.max_retries if again and rules.strategy.next is Next.RETRY else 0,
        health=DestinationHealth.NEUTRAL if ours else theirs,
        refused_before_acting=not sent,
    )
