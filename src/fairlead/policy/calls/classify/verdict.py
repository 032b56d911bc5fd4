"""What an answer came to: a value that the pipeline of a call acts on."""

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
    """Where in an answer the decision was found, in the order in which they are asked (C3)."""

    PROTOCOL_BODY = "protocol body"
    PROVIDER_CODE = "provider code"
    HEADER = "header"
    STATUS = "status"
    PATTERN = "pattern"
    UNRECOGNISED = "unrecognised"


class Scope(StrEnum):
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

    *ref*: how the answer names it where it gives no place, such as an id. *code*: the vendor's word, or the
    status as text.
    """

    index: int | None
    code: str
    category: Category
    ref: str | None = None


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of one call, and what may be done about it.

    *rule* names what decided (a pattern, ``status 404``, ``GraphQL``), *step* where it was found, *why* says
    it in words, without secrets. *code* is the stable word: the provider's own, or ``http_404``.

    *strategy* and *max_attempts* (tries after the first): how to go on; after a partial failure they concern
    ``items_to_retry`` alone. *takes_slot*: it was about calls in flight. *hint_s*: the wait that the server
    asked for, as told, for ``strategy.delay_s``; *daily*: the limit is a day's, so it may be 24 h. *scope*
    and *limit*: which limit refused; None: none did.

    *health*: what it tells of the destination. *refused_before_acting*: the server surely did not act, so
    even a call that must not happen twice may be sent again. *failed_items*: those of a batch, in its order;
    *unclassified*: no rule knew it, so it is counted and somebody looks.
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
    scope: Scope | None = None
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


DONE = Verdict(Result.OK, "status 2xx", Step.STATUS, "the answer tells of no failure")
