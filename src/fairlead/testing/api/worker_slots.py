"""How much an API gets done at once: the rest stands in line inside it, as in an overloaded real one."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager


class WorkerSlots:
    """*count* of them (None: as many as are needed), of which *share* are there now; first come first."""

    def __init__(self, count: int | None, share: Callable[[], float]) -> None:
        self._count = count
        self._share = share
        self._busy = 0
        self._line: deque[asyncio.Future[None]] = deque()

    @asynccontextmanager
    async def one(self) -> AsyncIterator[None]:
        """Has a worker for the length of the block."""
        turn = asyncio.get_running_loop().create_future()
        self._line.append(turn)
        self.wake()
        try:
            await turn
        except asyncio.CancelledError:
            if turn.cancelled():
                self._line.remove(turn)
            else:
                self._done()
            raise
        try:
            yield
        finally:
            self._done()

    def wake(self) -> None:
        """Give work to whoever is free: their number may have changed."""
        while self._line and (self._count is None or self._busy < max(1, int(self._count * self._share()))):
            self._busy += 1
            self._line.popleft().set_result(None)

    def _done(self) -> None:
        self._busy -= 1
        self.wake()
