"""Many calls, one round trip: what waits while one is under way goes together into the next one.

    nothing under way  > the call is sent at once: an idle system pays no delay
    something is       > the call waits for its end, and shares the next round trip with all who waited

So the size of a batch follows the load by itself; there is no timer to tune (group commit). A caller that is
cancelled takes nothing with it: its item is sent with the others, only its answer has no reader.

Who needs no answer posts an item. Batches may be under way side by side, but none beside one with something
posted: so whatever is asked after it is sent after it was done.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

from fairlead.errors import DependencyUnavailableError, InvalidInputError

Item = TypeVar("Item")
Result = TypeVar("Result")

Told = Callable[[Result | Exception], None]
"""Called with what came of an item."""

Send = Callable[[Sequence[Item]], Awaitable[Sequence[Result | Exception]]]
"""Does one round trip for all items; gives for each, in their order, its result or its own error."""

MAX_SIZE = 500


class _Posted(Generic[Result]):
    """In the place of the future of somebody who waits."""

    __slots__ = ("_over", "_told")

    def __init__(self, told: Told[Result]) -> None:
        self._told = told
        self._over = False

    def done(self) -> bool:
        return self._over

    def cancelled(self) -> bool:
        return False

    def set_result(self, result: Result) -> None:
        self._tell(result)

    def set_exception(self, error: Exception) -> None:
        self._tell(error)

    def cancel(self) -> None:
        self._over = True  # the loop is ending: nobody is told anything any more

    def _tell(self, result: Result | Exception) -> None:
        self._over = True
        try:
            self._told(result)
        except Exception as error:  # noqa: BLE001 (the others of the batch wait for their answers)
            context = {"message": "who posted an item could not be told of it", "exception": error}
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
        unclaimed: Called with each result whose caller was cancelled or abandoned, and with an error if the
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
        self._answers: list[_Answer[Result]] = []  # of each item that waits
        self._under_way = self._with_posted = 0
        self._senders: set[asyncio.Task[None]] = set()
        self._sent: list[list[_Answer[Result]]] = []
        self._closed = False

    async def __call__(self, item: Item) -> Result:
        """The result for *item*."""
        if self._closed:
            raise self._is_closed()
        answer: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        self._add(item, answer)
        try:
            return await answer
        except asyncio.CancelledError:
            self._missed(item, answer)
            raise

    def post(self, item: Item, told: Told[Result]) -> None:
        """Have *item* sent, whatever becomes of the caller; *told* is called with its result or its error.

        What is asked later is sent when it was done, or in the same batch behind it.
        """
        if self._closed:
            told(self._is_closed())
        else:
            self._add(item, _Posted(told))

    def _add(self, item: Item, answer: _Answer[Result]) -> None:
        self._items.append(item)
        self._answers.append(answer)
        if self._under_way < self._parallel and not self._with_posted:
            self._under_way += 1
            sender = asyncio.create_task(self._drain(), name=f"fairlead-{self._name}")
            self._senders.add(sender)
            sender.add_done_callback(self._senders.discard)

    def _is_closed(self) -> DependencyUnavailableError:
        return DependencyUnavailableError(
            f"{self._name} is closed", hint="do not use a runtime after its end"
        )

    def _missed(self, item: Item, answer: asyncio.Future[Result]) -> None:
        """A caller was cancelled: after its answer was there, but before it could take it?"""
        if answer.cancelled() or not answer.done():
            return  # `_hand_out` handles results without a caller
        if self._unclaimed is not None:
            error = answer.exception()
            self._unclaimed(item, error if isinstance(error, Exception) else answer.result())

    def abandon(self, error: Exception) -> None:
        """Fail all who wait, also those whose items are under way: these go on, with nobody to answer to."""
        waiting, self._items, self._answers = self._answers, [], []
        for answers in (waiting, *self._sent):
            _fail(answers, error)

    @property
    def is_idle(self) -> bool:
        """Whether nothing is under way."""
        return not self._senders

    async def drained(self) -> None:
        """Wait until nothing is under way: those taken have their answers, or nobody waits for them."""
        while self._senders:
            await asyncio.wait(self._senders)

    async def close(self) -> None:
        """Take no more calls, and wait until those taken have their answers."""
        self._closed = True
        await self.drained()

    async def _drain(self) -> None:
        """Send until nobody waits, or until a sender with something posted goes on with what is left."""
        try:
            while not self._with_posted and (items := self._items[: self._max_size]):
                answers = self._answers[: self._max_size]
                del self._items[: len(items)], self._answers[: len(items)]
                posted = any(isinstance(answer, _Posted) for answer in answers)
                self._sent.append(answers)
                self._with_posted += posted
                try:
                    await self._deliver(items, answers)
                finally:
                    self._with_posted -= posted
                    self._sent.remove(answers)
        finally:
            self._under_way -= 1

    async def _deliver(self, items: Sequence[Item], answers: Sequence[_Answer[Result]]) -> None:
        try:
            await self._halved(items, answers)
        except BaseException:  # the loop is ending: nobody may be left waiting
            for answer in answers:
                answer.cancel()
            raise

    async def _halved(self, items: Sequence[Item], answers: Sequence[_Answer[Result]]) -> None:
        """Send them, in halves where some are bad."""
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
        except Exception as error:  # noqa: BLE001 (whatever it is, it is the callers' to handle)
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
