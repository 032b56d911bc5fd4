"""Many calls, one round trip: what waits while one is under way goes together into the next one.

    nothing under way  > the call is sent at once: an idle system pays no delay
    something is       > the call waits for its end, and shares the next round trip with all who waited

So the size of a batch follows the load by itself; there is no timer to tune (group commit). A caller that is
cancelled takes nothing with it: its item is sent with the others, only its answer has no reader.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

from fairlead.errors import DependencyUnavailable, InputInvalid

Item = TypeVar("Item")
Result = TypeVar("Result")

Send = Callable[[Sequence[Item]], Awaitable[Sequence[Result | Exception]]]
"""Does one round trip for all items; gives for each, in their order, its result or its own error."""

MAX_SIZE = 500


class Batcher(Generic[Item, Result]):
    """Call it with one item; *send* is called with many.

    *max_size* bounds a batch (default 500), *parallel* the batches under way (default 1). An error of *send*
    goes to every item of the batch; but where it is one of the values (InputInvalid, nothing was changed) the
    batch is halved and sent again until only the bad items are left with it. *unclaimed* is told of each
    result that nobody waits for any more, since its caller was cancelled or abandoned.
    """

    def __init__(
        self,
        send: Send[Item, Result],
        *,
        max_size: int = MAX_SIZE,
        parallel: int = 1,
        name: str = "batch",
        unclaimed: Callable[[Item, Result], None] | None = None,
    ) -> None:
        self._send = send
        self._unclaimed = unclaimed
        self._max_size = max_size
        self._parallel = parallel
        self._name = name
        self._waiting: list[tuple[Item, asyncio.Future[Result]]] = []
        self._under_way = 0
        self._senders: set[asyncio.Task[None]] = set()
        self._sent: list[list[tuple[Item, asyncio.Future[Result]]]] = []
        self._closed = False

    async def __call__(self, item: Item) -> Result:
        """The result for *item*."""
        if self._closed:
            raise DependencyUnavailable(f"{self._name} is closed", hint="do not use a runtime after its end")
        answer: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        self._waiting.append((item, answer))
        if self._under_way < self._parallel:
            self._under_way += 1
            sender = asyncio.create_task(self._drain(), name=f"fairlead-{self._name}")
            self._senders.add(sender)
            sender.add_done_callback(self._senders.discard)
        try:
            return await answer
        except asyncio.CancelledError:
            self._missed(item, answer)
            raise

    def _missed(self, item: Item, answer: asyncio.Future[Result]) -> None:
        """A caller was cancelled: after its answer was there, but before it could take it?"""
        if answer.cancelled() or not answer.done() or answer.exception() is not None:
            return  # `_hand_out` finds that nobody waits, or there is nothing to tell of
        if self._unclaimed is not None:
            self._unclaimed(item, answer.result())

    def abandon(self, error: Exception) -> None:
        """Fail all who wait, also those whose items are under way: these go on, with nobody to answer to."""
        waiting, self._waiting = self._waiting, []
        for batch in (waiting, *self._sent):
            _fail(batch, error)

    async def drained(self) -> None:
        """Wait until nothing is under way: those taken have their answers, or nobody waits for them."""
        while self._senders:
            await asyncio.wait(self._senders)

    async def close(self) -> None:
        """Take no more calls, and wait until those taken have their answers."""
        self._closed = True
        await self.drained()

    async def _drain(self) -> None:
        """Send until nobody waits."""
        try:
            while batch := self._waiting[: self._max_size]:
                del self._waiting[: len(batch)]
                self._sent.append(batch)
                try:
                    await self._deliver(batch)
                finally:
                    self._sent.remove(batch)
        finally:
            self._under_way -= 1

    async def _deliver(self, batch: list[tuple[Item, asyncio.Future[Result]]]) -> None:
        try:
            results = await self._send([item for item, _ in batch])
            if len(results) != len(batch):
                raise RuntimeError(f"{self._name}: {len(results)} results for {len(batch)} items")
        except InputInvalid as error:
            if len(batch) == 1:
                _fail(batch, error)
                return
            middle = len(batch) // 2
            await self._deliver(batch[:middle])
            await self._deliver(batch[middle:])
        except Exception as error:  # noqa: BLE001 (whatever it is, it is the callers' to handle)
            _fail(batch, error)
        except BaseException:  # the loop is ending: nobody may be left waiting
            for _, answer in batch:
                answer.cancel()
            raise
        else:
            self._hand_out(batch, results)

    def _hand_out(
        self, batch: list[tuple[Item, asyncio.Future[Result]]], results: Sequence[Result | Exception]
    ) -> None:
        for (item, answer), result in zip(batch, results, strict=True):
            if isinstance(result, Exception):
                _fail([(item, answer)], result)
            elif not answer.done():  # its caller may have been cancelled
                answer.set_result(result)
            elif self._unclaimed is not None:
                self._unclaimed(item, result)


def _fail(batch: Sequence[tuple[object, asyncio.Future[Result]]], error: Exception) -> None:
    for _, answer in batch:
        if not answer.done():
            answer.set_exception(error)
