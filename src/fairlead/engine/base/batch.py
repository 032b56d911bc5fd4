"""Batches: calls that arrive during a round trip share the next one (group commit).

    nothing under way    > the call is sent at once, so an idle system adds no delay
    a batch is under way > the call waits for its end and shares the next round trip with the others

The size of a batch follows the load, and there is no timer to tune. A cancelled caller's item is still sent
with the others, and its result is dropped.

A caller that needs no result posts its item. Several batches may be under way, but none beside one that has
a posted item. So a later item is always processed after a posted one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

from fairlead.errors import DependencyUnavailableError, InvalidInputError

Item = TypeVar("Item")
Result = TypeVar("Result")

OnResult = Callable[[Result | Exception], None]
"""Called with the result or the error of an item."""

Send = Callable[[Sequence[Item]], Awaitable[Sequence[Result | Exception]]]
"""Makes one round trip for all items; returns for each, in order, its result or its own error."""

MAX_SIZE = 500


class _Posted(Generic[Result]):
    """The stand-in for the future of an item that was posted."""

    __slots__ = ("_done", "_on_result")

    def __init__(self, on_result: OnResult[Result]) -> None:
        self._on_result = on_result
        self._done = False

    def done(self) -> bool:
        return self._done

    def cancelled(self) -> bool:
        return False

    def set_result(self, result: Result) -> None:
        self._report(result)

    def set_exception(self, error: Exception) -> None:
        self._report(error)

    def cancel(self) -> None:
        self._done = True  # the loop is closing: no result is reported any more

    def _report(self, result: Result | Exception) -> None:
        self._done = True
        try:
            self._on_result(result)
        except Exception as error:  # noqa: BLE001 (the other items of the batch wait for their results)
            context = {"message": "the callback of a posted item failed", "exception": error}
            asyncio.get_running_loop().call_exception_handler(context)


_Answer = asyncio.Future[Result] | _Posted[Result]


class Batcher(Generic[Item, Result]):
    """A callable that takes one item and sends many together.

    An error of *send* goes to every item of the batch. After InvalidInputError, which means that a value was bad
    and nothing was changed, the batch is halved and sent again until only the bad items get the error.

    Args:
        send: Sends a batch and returns a result for each item.
        max_size: The most items of a batch. Default 500.
        parallel: The most batches under way. Default 1.
        unclaimed: Called with each result of a cancelled or abandoned caller, and with an error if the
            caller was cancelled, because the item may have been processed.
    """

    def __init__(
        self,
        send: Send[Item, Result],
        *,
        max_size: int = MAX_SIZE,
        parallel: int = 1,
        name: str = "batch",
        unclaimed: Callable[[Item, Result | Exception], None] | None = None,
    ) -> None:
        self._send = send
        self._unclaimed = unclaimed
        self._max_size = max_size
        self._parallel = parallel
        self._name = name
        self._items: list[Item] = []
        self._answers: list[_Answer[Result]] = []  # one for each waiting item
        self._sender_count = self._posted_batches = 0
        self._senders: set[asyncio.Task[None]] = set()
        self._sent: list[list[_Answer[Result]]] = []
        self._closed = False

    async def __call__(self, item: Item) -> Result:
        """Send *item* with the next batch and return its result."""
        if self._closed:
            raise self._closed_error()
        answer: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        self._add(item, answer)
        try:
            return await answer
        except asyncio.CancelledError:
            self._missed(item, answer)
            raise

    def post(self, item: Item, on_result: OnResult[Result]) -> None:
        """Send *item* even if the caller is cancelled, and call *on_result* with its result or error.

        Items that are sent later are processed after it, or behind it in the same batch.
        """
        if self._closed:
            on_result(self._closed_error())
        else:
            self._add(item, _Posted(on_result))

    def _add(self, item: Item, answer: _Answer[Result]) -> None:
        self._items.append(item)
        self._answers.append(answer)
        if self._sender_count < self._parallel and not self._posted_batches:
            self._sender_count += 1
            sender = asyncio.create_task(self._drain(), name=f"fairlead-{self._name}")
            self._senders.add(sender)
            sender.add_done_callback(self._senders.discard)

    def _closed_error(self) -> DependencyUnavailableError:
        """Return the error of an item that comes after `close`."""
        return DependencyUnavailableError(
            f"{self._name} is closed", hint="do not use a runtime after its end"
        )

    def _missed(self, item: Item, answer: asyncio.Future[Result]) -> None:
        """Pass on the result of a caller that was cancelled after its result had arrived."""
        if answer.cancelled() or not answer.done():
            return  # `_hand_out` handles results without a caller
        if self._unclaimed is not None:
            error = answer.exception()
            self._unclaimed(item, error if isinstance(error, Exception) else answer.result())

    def abandon(self, error: Exception) -> None:
        """Fail all waiting callers. Items that are under way are still processed, without a reader."""
        waiting, self._items, self._answers = self._answers, [], []
        for answers in (waiting, *self._sent):
            _fail(answers, error)

    @property
    def is_idle(self) -> bool:
        """True if nothing is under way."""
        return not self._senders

    async def drained(self) -> None:
        """Wait until nothing is under way."""
        while self._senders:
            await asyncio.wait(self._senders)

    async def close(self) -> None:
        """Accept no more items, and wait until those accepted have results."""
        self._closed = True
        await self.drained()

    async def _drain(self) -> None:
        """Send batches until no item waits.

        A sender ends while another one has a batch with posted items under way. That one sends the rest
        afterwards, so later items stay behind the posted ones.
        """
        try:
            while not self._posted_batches and (items := self._items[: self._max_size]):
                answers = self._answers[: self._max_size]
                del self._items[: len(items)], self._answers[: len(items)]
                posted = any(isinstance(answer, _Posted) for answer in answers)
                self._sent.append(answers)
                self._posted_batches += posted
                try:
                    await self._deliver(items, answers)
                finally:
                    self._posted_batches -= posted
                    self._sent.remove(answers)
        finally:
            self._sender_count -= 1

    async def _deliver(self, items: Sequence[Item], answers: Sequence[_Answer[Result]]) -> None:
        try:
            await self._halved(items, answers)
        except BaseException:  # the loop is closing: no caller may be left waiting
            for answer in answers:
                answer.cancel()
            raise

    async def _halved(self, items: Sequence[Item], answers: Sequence[_Answer[Result]]) -> None:
        """Send *items*, in halves if some of them are invalid."""
        try:
            results = await self._send(items)
            if len(results) != len(items):
                raise RuntimeError(f"{self._name}: {len(results)} results for {len(items)} items")
        except InvalidInputError as error:
            if len(items) == 1:
                _fail(answers, error)
                return
            middle = len(items) // 2
            await self._halved(items[:middle], answers[:middle])
            await self._halved(items[middle:], answers[middle:])
        except Exception as error:  # noqa: BLE001 (each caller handles it)
            self._hand_out(items, answers, [error] * len(items))
        else:
            self._hand_out(items, answers, results)

    def _hand_out(
        self,
        items: Sequence[Item],
        answers: Sequence[_Answer[Result]],
        results: Sequence[Result | Exception],
    ) -> None:
        for item, answer, result in zip(items, answers, results, strict=True):
            if not answer.done():  # the caller may have been cancelled
                if isinstance(result, Exception):
                    answer.set_exception(result)
                else:
                    answer.set_result(result)
            elif self._unclaimed and (answer.cancelled() or not isinstance(result, Exception)):
                self._unclaimed(item, result)


def _fail(answers: Sequence[_Answer[Result]], error: Exception) -> None:
    for answer in answers:
        if not answer.done():
            answer.set_exception(error)
