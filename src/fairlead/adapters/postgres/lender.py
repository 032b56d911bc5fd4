"""Lends the connections of a pool: waits for one, and takes it back without holding anybody up."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import asyncpg

from fairlead.adapters.postgres.driver import Connection, Pool
from fairlead.adapters.postgres.failures import DRIVER_ERRORS, not_done
from fairlead.adapters.postgres.session import ISOLATION

FULL_PAUSE_S = 0.1
"""A server that has no connection left is asked for one so often, by one caller of the process (E19)."""
ROLLBACK_S = 1.0
"""For the end of a transaction whose caller was cancelled; then its connection is cut."""
CLOSE_S = 2.0
"""For statements under way when all ends: whoever needs their answers has waited for them before."""


class Lender:
    """Times in seconds: for a connection, a new one included; and for taking one back."""

    def __init__(self, pool: Pool, acquire_timeout_s: float, release_timeout_s: float) -> None:
        self._pool = pool
        self._acquire_timeout_s = acquire_timeout_s
        self._release_timeout_s = release_timeout_s
        self._line = asyncio.Lock()  # of those who wait because the server is full
        self._freed = asyncio.Event()
        self._ask_from_s = 0.0
        self._given_up: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def lent(self) -> AsyncIterator[Connection]:
        """A connection. Who is cancelled with it does not wait until the server has heard of it."""
        try:
            connection = await self._acquired()
        except DRIVER_ERRORS as error:
            raise not_done(error) from error
        try:
            yield connection
        except asyncio.CancelledError:
            task = asyncio.create_task(self._take_back(connection), name="fairlead-take-back")
            self._given_up.add(task)
            task.add_done_callback(self._given_up.discard)
            raise
        except BaseException:
            await self._take_back(connection)
            raise
        await self._take_back(connection)

    async def close(self) -> None:
        """Wait a moment for statements under way, and close all connections."""
        try:
            async with asyncio.timeout(CLOSE_S):
                await self._pool.close()
        except DRIVER_ERRORS:  # whoever still holds a connection has had its time
            self._pool.terminate()
        await asyncio.gather(*self._given_up)

    async def _take_back(self, connection: Connection) -> None:
        with suppress(*DRIVER_ERRORS):  # the answer counts, not how the connection was handed back
            await self._pool.release(connection, timeout=self._release_timeout_s)
        self._freed.set()

    async def _acquired(self) -> Connection:
        """One of the pool, waited for also where the server itself has none left.

        Others end theirs all the time, and whoever asks seldom gets none of them. Meanwhile callers take
        turns with those that we have.
        """
        limit = asyncio.timeout(self._acquire_timeout_s)
        full: Exception | None = None
        try:
            async with limit:
                if not self._line.locked() and self._may_ask():
                    try:
                        return await self._asked()
                    except asyncpg.TooManyConnectionsError as error:
                        full = error
                async with self._line:
                    while True:
                        await self._turn()
                        try:
                            return await self._asked()
                        except asyncpg.TooManyConnectionsError as error:
                            full = error
        except TimeoutError:
            if full is None or not limit.expired():
                raise
            raise full from None

    async def _asked(self) -> Connection:
        try:
            return await self._pool.acquire()
        except asyncpg.TooManyConnectionsError:
            self._ask_from_s = asyncio.get_running_loop().time() + FULL_PAUSE_S
            raise

    def _may_ask(self) -> bool:
        """Whether a connection is idle, or the server may be asked for another one."""
        return asyncio.get_running_loop().time() >= self._ask_from_s or self._pool.get_idle_size() > 0

    async def _turn(self) -> None:
        """Of the first in line."""
        while not self._may_ask():
            self._freed.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout_at(self._ask_from_s):
                    await self._freed.wait()


@asynccontextmanager
async def whole(connection: Connection) -> AsyncIterator[None]:
    """A READ COMMITTED transaction. Who is cancelled in it stays so, whatever becomes of its end."""
    cancelled: asyncio.CancelledError | None = None
    cut: asyncio.TimerHandle | None = None
    try:
        async with connection.transaction(isolation=ISOLATION):
            try:
                yield
            except asyncio.CancelledError as error:
                cancelled = error
                cut = asyncio.get_running_loop().call_later(ROLLBACK_S, _terminate, connection)
                raise
    except DRIVER_ERRORS:
        if cancelled is not None:
            raise cancelled from None
        raise
    finally:
        if cut is not None:
            cut.cancel()


def _terminate(connection: Connection) -> None:
    with suppress(asyncpg.InterfaceError):  # the pool was faster
        connection.terminate()
