"""A bound on the calls an API processes at once; others wait inside it, as in an overloaded real one."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager


class WorkerSlots:
    """*count* workers (None: no bound), of which *share* are available now; first come, first served."""

    def __init__(self, count: int | None, share: Callable[[], float]) -> None:
        self._count = count
        self._share = share
        self._busy = 0
        self._waiters: deque[asyncio.Future[None]] = deque()

    @asynccontextmanager
    async def acquire(self) -> AsyncIterator[None]:
        """Hold a worker for the length of the block."""
        waiter = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        self.wake()
        try:
            await waiter
        except asyncio.CancelledError:
            if waiter.cancelled():
                self._waiters.remove(waiter)
            else:
                self._release()
            raise
        try:
            yield
        finally:
            self._release()

    def wake(self) -> None:
        """Give free workers to waiting calls; call it when their number may have changed."""
        while self._waiters and (
            self._count is None or self._busy < max(1, int(self._count * self._share()))
        ):
            self._busy += 1
            self._waiters.popleft().set_result(None)

    def _release(self) -> None:
        self._busy -= 1
        self.wake()
