"""Plain functions beside the event loop: each runs on a thread of its own for as long as it runs.

A thread cannot be stopped from outside. A run that is cut off (timeout, drain) is left behind: its job goes
on without it, while its thread works until the function returns. Threads are daemons, so what is left behind
does not keep a process from ending; and they are bounded, so it cannot eat the process either.
"""

from __future__ import annotations

import asyncio
import contextvars
import queue
import threading
from collections import deque
from collections.abc import Callable
from typing import TypeVar

from fairlead.errors import Refused

T = TypeVar("T")

AGAIN_S = 30.0

Work = Callable[[], bool]
"""Does one thing; False: nobody will bring another."""
Inbox = queue.SimpleQueue[Work | None]


class Threads:
    """Runs up to *most* functions at once; threads that have nothing to do are used again."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._busy = 0
        self._idle: deque[Inbox] = deque()
        self._closed = False

    async def run(self, function: Callable[[], T]) -> T:
        """What *function* returns or raises. Cancelled, it gives up waiting; the function runs on.

        Refused while all threads are taken, which cut-off runs alone can bring about.
        """
        if self._busy >= self._most:
            what = f"{self._busy} plain functions are still running, most of them cut off long ago"
            hint = "let them look at ctx.remaining_s, give their calls timeouts, or make them async"
            raise Refused(what, hint=hint, retry_after_s=AGAIN_S)
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[T] = loop.create_future()
        context = contextvars.copy_context()
        inbox = self._idle.pop() if self._idle else _started()
        self._busy += 1

        def work() -> bool:
            try:
                result = context.run(function)
            except StopIteration as error:  # which no future can hold
                return _tell(loop, self._ended, inbox, answer, RuntimeError(f"it raised {error!r}"), None)
            except BaseException as error:  # noqa: BLE001 (SystemExit too: it is the executor's to judge)
                return _tell(loop, self._ended, inbox, answer, error, None)
            return _tell(loop, self._ended, inbox, answer, None, result)

        inbox.put(work)
        return await answer

    def close(self) -> None:
        """End the threads that have nothing to do now, and the others once they have."""
        self._closed = True
        while self._idle:
            self._idle.pop().put(None)

    def _ended(self, inbox: Inbox, answer: asyncio.Future[T], error: BaseException | None, result: T) -> None:
        """On the loop's thread, as everything but the functions is: nothing here needs a lock."""
        self._busy -= 1
        if self._closed:
            inbox.put(None)
        else:
            self._idle.append(inbox)
        if answer.done():  # nobody waits any more
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


def _tell(loop: asyncio.AbstractEventLoop, ended: Callable[..., None], *what: object) -> bool:
    try:
        loop.call_soon_threadsafe(ended, *what)
    except RuntimeError:  # the loop is closed: nobody is left to be told
        return False
    return True
