"""Send many items in one call, and the failed ones again if they may still succeed. Spec: C9."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from fairlead.app.client.response import Response
from fairlead.errors import DependencyUnavailableError, FailedError, FairleadError, RefusedError
from fairlead.policy.calls.classify.verdict import FailedItem, Verdict

T = TypeVar("T")

MayRetry = Callable[[Verdict, int], Awaitable[bool]]
"""Takes a verdict and the retries so far. Waits until its items may be retried; False: they must not be."""


@dataclass(frozen=True, slots=True)
class BatchItemError(Generic[T]):
    """An item that failed.

    Attributes:
        failure: What the last response about it says. Its ``index`` counts within that call.
    """

    item: T
    failure: FailedItem


@dataclass(slots=True)
class BatchResult(Generic[T]):
    """The result of a batch.

    Attributes:
        responses: The response of each call; the first was for all items.
        failed: The items that failed, in their order.
        unmatched_failures: Failures of items that the response does not name.
        error: The error that kept failed items from being sent again, if there was one.
    """

    responses: list[Response] = field(default_factory=list)
    failed: list[BatchItemError[T]] = field(default_factory=list)
    unmatched_failures: list[FailedItem] = field(default_factory=list)
    error: FairleadError | None = None

    @property
    def complete(self) -> bool:
        """True if all items succeeded."""
        return not (self.failed or self.unmatched_failures or self._has_unnamed_failures)

    @property
    def _has_unnamed_failures(self) -> bool:
        """Whether the last response says that items failed, but not which."""
        if not self.responses:
            return False  # there was nothing to send
        last = self.responses[-1]
        return last.partial and not last.failed_items


def id_of(item: object) -> str | None:
    """Return the "id" of *item* as text, or None."""
    item_id = item.get("id") if isinstance(item, Mapping) else None
    return None if item_id is None else str(item_id)


async def retry_failed(
    items: Sequence[T],
    send: Callable[[list[T]], Awaitable[Response]],
    item_id: Callable[[T], str | None],
    may_retry: MayRetry,
) -> BatchResult[T]:
    """Send *items*, then again those that failed and may succeed; see `Client.batch`."""
    result: BatchResult[T] = BatchResult()
    errors: dict[int, BatchItemError[T]] = {}  # by the index of the item
    indexes = list(range(len(items)))
    attempt = 0
    while indexes:
        try:
            response = await send([items[index] for index in indexes])
        except (FailedError, RefusedError, DependencyUnavailableError) as error:
            if not result.responses:
                raise
            result.error = error  # what was done before stays done, and is reported
            break
        result.responses.append(response)
        failed, unmatched_failures = _match(response.failed_items, items, indexes, item_id)
        for index in indexes:
            errors.pop(index, None)
        errors |= failed
        result.unmatched_failures += unmatched_failures
        indexes = [index for index, item in failed.items() if item.failure.category.transient]
        try:
            if not indexes or not await may_retry(response.verdict, attempt):
                break
        except (RefusedError, DependencyUnavailableError) as error:
            result.error = error
            break
        attempt += 1
    result.failed = [errors[index] for index in sorted(errors)]
    return result


def _match(
    failures: Sequence[FailedItem],
    items: Sequence[T],
    indexes: Sequence[int],
    item_id: Callable[[T], str | None],
) -> tuple[dict[int, BatchItemError[T]], list[FailedItem]]:
    """Return the failed items by their index among all items, and the failures of unknown items."""
    index_by_id: dict[str, int | None] = {}
    for index in indexes:
        if (name := item_id(items[index])) is not None:
            index_by_id[name] = None if name in index_by_id else index  # an id of several items matches none
    failed: dict[int, BatchItemError[T]] = {}
    unmatched_failures = []
    for failure in failures:
        match: int | None
        if failure.index is not None:
            match = indexes[failure.index] if failure.index < len(indexes) else None
        else:
            match = index_by_id.get(failure.ref) if failure.ref is not None else None
        if match is None:
            unmatched_failures.append(failure)
        else:
            failed[match] = BatchItemError(items[match], failure)
    return failed, unmatched_failures
