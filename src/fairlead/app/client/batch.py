"""Many items in one call, and of those that failed again only the ones that may still succeed. Spec: C9."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from fairlead.app.client.response import Response
from fairlead.errors import DependencyUnavailableError, FailedError, FairleadError, RefusedError
from fairlead.policy.calls.classify.verdict import FailedItem, Verdict

T = TypeVar("T")

MayGoOn = Callable[[Verdict, int], Awaitable[bool]]
"""Waits until the items of a verdict may be sent again, for the so-manieth time; False: they may not be."""


@dataclass(frozen=True, slots=True)
class BatchItemError(Generic[T]):
    """An item that failed. *failure* is what the last response about it says; its ``index`` counts in that call."""

    item: T
    failure: FailedItem


@dataclass(slots=True)
class BatchResult(Generic[T]):
    """What came of a batch. *responses*: of each call that was made for it, the first with all its items.

    *failed*: the items that were not done, in their order. *unmatched_failures*: failures of which the answer does not
    tell the item. *error*: why failed items could not be sent again, where something stood against it.
    """

    responses: list[Response] = field(default_factory=list)
    failed: list[BatchItemError[T]] = field(default_factory=list)
    unmatched_failures: list[FailedItem] = field(default_factory=list)
    error: FairleadError | None = None

    @property
    def complete(self) -> bool:
        """Whether all items were done."""
        return not (self.failed or self.unmatched_failures or self._cannot_be_read)

    @property
    def _cannot_be_read(self) -> bool:
        if not self.responses:
            return False  # there was nothing to send
        last = self.responses[-1]
        return last.partial and not last.failed_items


async def retry_failed(
    items: Sequence[T],
    send: Callable[[list[T]], Awaitable[Response]],
    named: Callable[[T], str | None],
    may_go_on: MayGoOn,
) -> BatchResult[T]:
    """Send *items*, then those again that failed and may succeed; see Client.batch."""
    result: BatchResult[T] = BatchResult()
    kept: dict[int, BatchItemError[T]] = {}
    places = list(range(len(items)))
    attempt = 0
    while places:
        try:
            response = await send([items[place] for place in places])
        except (FailedError, RefusedError, DependencyUnavailableError) as error:
            if not result.responses:
                raise
            result.error = error  # what was done before stays done, and told
            break
        result.responses.append(response)
        failed, unmatched_failures = _placed(response.failed_items, items, places, named)
        for place in places:
            kept.pop(place, None)
        kept |= failed
        result.unmatched_failures += unmatched_failures
        places = [place for place, each in failed.items() if each.failure.category.transient]
        try:
            if not places or not await may_go_on(response.verdict, attempt):
                break
        except (RefusedError, DependencyUnavailableError) as error:
            result.error = error
            break
        attempt += 1
    result.failed = [kept[place] for place in sorted(kept)]
    return result


def _placed(
    told: Sequence[FailedItem], items: Sequence[T], places: Sequence[int], named: Callable[[T], str | None]
) -> tuple[dict[int, BatchItemError[T]], list[FailedItem]]:
    """The failed items by their place among all, and the failures that belong to none that is known."""
    by_name: dict[str, int | None] = {}
    for at in places:
        if (name := named(items[at])) is not None:
            by_name[name] = None if name in by_name else at  # a name shared by several items identifies none
    failed: dict[int, BatchItemError[T]] = {}
    unmatched_failures = []
    for each in told:
        if each.index is not None:
            place = places[each.index] if each.index < len(places) else None
        else:
            place = by_name.get(each.ref) if each.ref is not None else None
        if place is None:
            unmatched_failures.append(each)
        else:
            failed[place] = BatchItemError(items[place], each)
    return failed, unmatched_failures
