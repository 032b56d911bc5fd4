"""Lends the connections of a pool: waits for one, and takes it back without holding anybody up."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from copy import copy

import asyncpg

from fairlead.adapters.postgres.connection_setup import ISOLATION
from fairlead.adapters.postgres.driver import Connection, Pool
from fairlead.adapters.postgres.postgres_errors import DRIVER_ERRORS, not_done

FULL_PAUSE_S = 0.1
"""A server that has no connection left is asked for one so often, by one caller of the process (E19)."""
ROLLBACK_S = 1.0
"""For the end of a transaction whose caller was cancelled; then its connection is cut."""
CLOSE_S = 2.0
"""For statements under way when all ends: whoever needs their answers has waited for them before."""


class ConnectionCheckout:
    """Times in seconds: for a connection, a new one included; and for taking one back.

    Of the pool's connections *urgent* are lent to nobody else: all the others may wait for a lock of somebody
    who takes his time, and who is urgent finds one all the same.
    """

    def __init__(
        self, pool: Pool, acquire_timeout_s: float, release_timeout_s: float, *, urgent: int = 0
    ) -> None:
        self._pool = pool
        self._acquire_timeout_s = acquire_timeout_s
        self._release_timeout_s = release_timeout_s
        self._places = asyncio.Semaphore(max(1, pool.get_max_size() - urgent))
        self._line = asyncio.Lock()  # of those who wait because the server is full
        self._before_it = 0  # who is urgent, and waits for that
        self._freed = asyncio.Event()
        self._ask_from_s = 0.0
        self._full: asyncpg.TooManyConnectionsError | None = None  # what the server said last
        self._given_up: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def checkout(self, *, urgent: bool = False) -> AsyncIterator[Connection]:
        """A connection. Who is cancelled with it does not wait until the server has heard of it."""
        try:
            connection = await self._acquired(urgent)
        except DRIVER_ERRORS as error:
            raise not_done(error) from error
        try:
            yield connection
        except asyncio.CancelledError:
            task = asyncio.create_task(self._take_back(connection, urgent), name="fairlead-take-back")
            self._given_up.add(task)
            task.add_done_callback(self._given_up.discard)
            raise
        except BaseException:
            await self._take_back(connection, urgent)
            raise
        await self._take_back(connection, urgent)

    async def close(self) -> None:
        """Wait a moment for statements under way, and close all connections."""
        try:
            async with asyncio.timeout(CLOSE_S):
                await self._pool.close()
        except DRIVER_ERRORS:  # whoever still holds a connection has had its time
            self._pool.terminate()
        await asyncio.gather(*self._given_up)

    async def _take_back(self, connection: Connection, urgent: bool) -> None:
        try:
            with suppress(*DRIVER_ERRORS):  # the answer counts, not how the connection was handed back
                await self._pool.release(connection, timeout=self._release_timeout_s)
        finally:
            if not urgent:
                self._places.release()
            self._freed.set()

    async def _acquired(self, urgent: bool) -> Connection:
        """One of the pool, waited for also where the server itself has none left."""
        limit = asyncio.timeout(self._acquire_timeout_s)
        try:
            async with limit:
                if urgent:
                    return await self._from_pool(urgent)
                await self._places.acquire()
                try:
                    return await self._from_pool(urgent)
                except BaseException:
                    self._places.release()
                    raise
        except TimeoutError:
            if self._full is None or not limit.expired():
                raise
            raise copy(self._full) from None  # a shared object would collect the frames of all waiters

    async def _from_pool(self, urgent: bool) -> Connection:
        """Where the server is full callers take turns with those that we have, the urgent one first.

        Others end theirs all the time, and whoever asks seldom gets none of them.
        """
        if (urgent or not self._line.locked()) and self._may_ask(urgent):
            with suppress(asyncpg.TooManyConnectionsError):
                return await self._asked()
        async with self._ahead() if urgent else self._line:
            while True:
                await self._turn(urgent)
                with suppress(asyncpg.TooManyConnectionsError):
                    return await self._asked()

    async def _asked(self) -> Connection:
        try:
            connection = await self._pool.acquire()
        except asyncpg.TooManyConnectionsError as error:
            self._full = error
            self._ask_from_s = asyncio.get_running_loop().time() + FULL_PAUSE_S
            raise
        self._full = None
        return connection

    def _may_ask(self, urgent: bool) -> bool:
        """Whether a connection is idle, or the server may be asked for another one."""
        if self._before_it and not urgent:
            return self._pool.get_idle_size() > self._before_it
        may_connect = asyncio.get_running_loop().time() >= self._ask_from_s
        return may_connect or self._pool.get_idle_size() > 0  # which iterates over all connections

    async def _turn(self, urgent: bool) -> None:
        """Of the first in line, and of who is urgent."""
        while not self._may_ask(urgent):
            now_s = asyncio.get_running_loop().time()
            until_s = self._ask_from_s if now_s < self._ask_from_s else now_s + FULL_PAUSE_S
            self._freed.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout_at(until_s):
                    await self._freed.wait()

    @asynccontextmanager
    async def _ahead(self) -> AsyncIterator[None]:
        """Before the line: nobody in it takes what comes free."""
        self._before_it += 1
        try:
            yield
        finally:
            self._before_it -= 1


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
