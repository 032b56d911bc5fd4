"""A thread pool for plain functions, each of which has a thread to itself while it runs.

A thread cannot be stopped from outside. A run that ends early (timeout, cancellation, drain) counts as
running until its function returns, so that no second run of its job starts beside it. Threads are daemons, so
a function that still runs at the end does not keep the process alive.
"""

from __future__ import annotations

import asyncio
import contextvars
import queue
import threading
from collections import deque
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")

Work = Callable[[], bool]
"""Does one thing; False: no more will follow."""
Inbox = queue.SimpleQueue[Work | None]


class Threads:
    """Runs functions, one per thread. Idle threads are reused.

    The concurrency of the worker bounds their number.
    """

    def __init__(self) -> None:
        self._idle: deque[Inbox] = deque()
        self._cut: set[asyncio.Future[Any]] = set()
        self._closed = False

    async def run(self, function: Callable[[], T]) -> T:
        """Return or raise the result of *function*, even if the wait is cancelled meanwhile.

        After closing, a cancelled wait ends at once, and the function goes on.
        """
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[T] = loop.create_future()
        context = contextvars.copy_context()
        inbox = self._idle.pop() if self._idle else _started()

        def work() -> bool:
            try:
                result = context.run(function)
            except StopIteration as error:  # which no future can hold
                return _report_end(
                    loop, self._ended, inbox, answer, RuntimeError(f"it raised {error!r}"), None
                )
            except BaseException as error:  # noqa: BLE001 (SystemExit too: it is the executor's to judge)
                return _report_end(loop, self._ended, inbox, answer, error, None)
            return _report_end(loop, self._ended, inbox, answer, None, result)

        inbox.put(work)
        while not answer.done():
            try:
                await asyncio.wait((answer,))
            except asyncio.CancelledError:
                if self._closed:
                    raise
                self._cut.add(answer)
        self._cut.discard(answer)
        return answer.result()

    def close(self) -> None:
        """End the threads that have nothing to do now, and the others once they have."""
        self._closed = True
        for answer in self._cut:
            answer.cancel()
        while self._idle:
            self._idle.pop().put(None)

    def _ended(self, inbox: Inbox, answer: asyncio.Future[T], error: BaseException | None, result: T) -> None:
        """Record the end of a function. It runs on the loop's thread, so it needs no lock."""
        if self._closed:
            inbox.put(None)
        else:
            self._idle.append(inbox)
        if answer.done():  # no caller waits any more
            return
        if error is None:
            answer.set_result(result)
        else:
            answer.set_exception(error)


def _started() -> Inbox:
    inbox: Inbox = queue.SimpleQueue()
    threading.Thread(target=_serve, args=(inbox,), name="fairlead-handler", daemon=True).start()
    return inbox


def _serve(inbox: Inbox) -> None:
    goes_on = True
    while goes_on:
        work = inbox.get()
        goes_on = work is not None and work()
        del work  # or its result would live until the next one


def _report_end(loop: asyncio.AbstractEventLoop, ended: Callable[..., None], *arguments: object) -> bool:
    """Have *loop* call *ended*; return False if it is closed, so that the thread ends."""
    try:
        loop.call_soon_threadsafe(ended, *arguments)
    except RuntimeError:  # the loop is closed: no caller waits any more
        return False
    return True
