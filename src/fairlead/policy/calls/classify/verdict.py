"""The classification of a response, on which the pipeline of a call acts."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from fairlead.policy.failures.category import Category
from fairlead.policy.failures.strategy import Next, Strategy, StrategyName
from fairlead.policy.limits.breaker import DestinationHealth

NO_MORE = Strategy(StrategyName.NONE)


class Result(StrEnum):
    """Whether the call did what it was sent for."""

    OK = "ok"
    PARTIAL = "partial"
    """Some of its items were done, others not (C9)."""
    FAILED = "failed"


class Step(StrEnum):
    """The steps of the classification, in the order in which they are tried. Spec: C3."""

    PROTOCOL_BODY = "protocol body"
    PROVIDER_CODE = "provider code"
    HEADER = "header"
    STATUS = "status"
    PATTERN = "pattern"
    UNRECOGNISED = "unrecognised"


class LimitScope(StrEnum):
    """What a limit that refused is a limit of."""

    CONNECTION = "connection"
    ENDPOINT = "endpoint"
    """The endpoint or the kind of operation that was called; the rest of the connection goes on."""
    OBJECT = "object"
    """The thing that was called is locked or worn out. It must not slow the connection."""
    DAY = "day"
    """A day's calls are used up: it parks until the reset."""


@dataclass(frozen=True, slots=True)
class FailedItem:
    """One item of a batch that was not done. *index* is its place in the request, from 0.

    *ref*: how the response names it if it gives no place, such as an id. *code*: the vendor's word, or the
    status as text.
    """

    index: int | None
    code: str
    category: Category
    ref: str | None = None


@dataclass(frozen=True, slots=True)
class Verdict:
    """The classification of one response: what became of the call, and what may be done about it.

    Attributes:
        rule: What decided: a pattern, ``status 404``, ``GraphQL``.
        step: The step of the classification in which it matched.
        why: The reason in words, without secrets.
        code: The stable code: the provider's own, or ``http_404``.
        strategy: How to continue; after a partial failure it concerns ``items_to_retry`` alone.
        max_attempts: Attempts after the first.
        takes_slot: Whether too many calls in flight were the cause, so that a retry needs a slot of its own.
        hint_s: The wait that the server asked for, as ``strategy.delay_s`` expects it.
        daily: The limit is a day's, so the wait may be 24 h.
        scope, limit: The limit that refused the call; None: none did.
        health: What the response says about the destination.
        refused_before_acting: The server certainly did not act, so any call may be sent again.
        failed_items: The failed items of a batch, in its order.
        unclassified: No rule matched, so the response is counted and reported.
    """

    result: Result
    rule: str
    step: Step
    why: str
    category: Category | None = None
    code: str = ""
    strategy: Strategy = NO_MORE
    max_attempts: int = 0
    takes_slot: bool = False
    hint_s: float | None = None
    daily: bool = False
    scope: LimitScope | None = None
    limit: str | None = None
    health: DestinationHealth = DestinationHealth.HEALTHY
    refused_before_acting: bool = False
    failed_items: tuple[FailedItem, ...] = ()
    unclassified: bool = False

    @property
    def next(self) -> Next:
        """What becomes of the call as long as tries are left; for a whole success OVER."""
        return self.strategy.next

    @property
    def items_to_retry(self) -> tuple[FailedItem, ...]:
        """The failed items of a batch that may succeed when sent again; the others are as they are."""
        return tuple(item for item in self.failed_items if item.category.transient)


DONE = Verdict(Result.OK, "status 2xx", Step.STATUS, "the response reports no failure")
