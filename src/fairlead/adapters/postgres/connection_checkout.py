"""Checks connections out of a pool with bounded waits, and returns them without blocking the caller."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from copy import copy

import asyncpg

from fairlead.adapters.postgres.connection_setup import ISOLATION
from fairlead.adapters.postgres.driver import DatabaseConnection, DatabasePool
from fairlead.adapters.postgres.postgres_errors import DRIVER_ERRORS, not_done

FULL_PAUSE_S = 0.1
"""Pause between two attempts to connect to a server that has no connection slot left. One caller of a process
tries at a time."""
ROLLBACK_S = 1.0
"""Time for the rollback after a cancellation. Then the connection is terminated."""
CLOSE_S = 2.0
"""Time that `close` gives to statements under way."""


class ConnectionCheckout:
    """Limits how many pooled connections ordinary callers hold at once.

    Args:
        acquire_timeout_s: Longest wait for a connection, a new one included.
        release_timeout_s: Longest time to reset and return one.
        urgent: Connections that are reserved for urgent callers (the heartbeat), which therefore do not wait
            while all others wait for a lock. Default 0.
    """

    def __init__(
        self, pool: DatabasePool, acquire_timeout_s: float, release_timeout_s: float, *, urgent: int = 0
    ) -> None:
        self._pool = pool
        self._acquire_timeout_s = acquire_timeout_s
        self._release_timeout_s = release_timeout_s
        self._ordinary = asyncio.Semaphore(max(1, pool.get_max_size() - urgent))
        self._queue = asyncio.Lock()  # held by the caller that waits for a full server
        self._urgent_waiting = 0
        self._returned = asyncio.Event()
        self._retry_connect_mono = 0.0
        self._server_full: asyncpg.TooManyConnectionsError | None = None  # the latest refusal
        self._background_returns: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def checkout(self, *, urgent: bool = False) -> AsyncIterator[DatabaseConnection]:
        """Yield a connection.

        After a cancellation it is returned in the background, so that the caller does not wait for the
        server.
        """
        try:
            connection = await self._acquire(urgent)
        except DRIVER_ERRORS as error:
            raise not_done(error) from error
        try:
            yield connection
        except asyncio.CancelledError:
            task = asyncio.create_task(self._release(connection, urgent), name="fairlead-release-connection")
            self._background_returns.add(task)
            task.add_done_callback(self._background_returns.discard)
            raise
        except BaseException:
            await self._release(connection, urgent)
            raise
        await self._release(connection, urgent)

    async def close(self) -> None:
        """Wait a moment for statements under way, and close all connections."""
        try:
            async with asyncio.timeout(CLOSE_S):
                await self._pool.close()
        except DRIVER_ERRORS:  # statements that still run have had their time
            self._pool.terminate()
        await asyncio.gather(*self._background_returns)

    async def _release(self, connection: DatabaseConnection, urgent: bool) -> None:
        try:
            with suppress(*DRIVER_ERRORS):  # the rows count, not how the connection was returned
                await self._pool.release(connection, timeout=self._release_timeout_s)
        finally:
            if not urgent:
                self._ordinary.release()
            self._returned.set()

    async def _acquire(self, urgent: bool) -> DatabaseConnection:
        """Return a pooled connection, and wait for one also while the server has no slot left."""
        limit = asyncio.timeout(self._acquire_timeout_s)
        try:
            async with limit:
                if urgent:
                    return await self._from_pool(urgent)
                await self._ordinary.acquire()
                try:
                    return await self._from_pool(urgent)
                except BaseException:
                    self._ordinary.release()
                    raise
        except TimeoutError:
            if self._server_full is None or not limit.expired():
                raise
            raise copy(self._server_full) from None  # a shared object would collect the frames of all waiters

    async def _from_pool(self, urgent: bool) -> DatabaseConnection:
        """Acquire at once if possible. While the server is full, callers queue, and an urgent one goes first.

        Other clients take and return the server's slots all the time. A process that tries seldom gets none.
        """
        if (urgent or not self._queue.locked()) and self._may_try(urgent):
            with suppress(asyncpg.TooManyConnectionsError):
                return await self._try_acquire()
        async with self._ahead_of_queue() if urgent else self._queue:
            while True:
                await self._until_may_try(urgent)
                with suppress(asyncpg.TooManyConnectionsError):
                    return await self._try_acquire()

    async def _try_acquire(self) -> DatabaseConnection:
        try:
            connection = await self._pool.acquire()
        except asyncpg.TooManyConnectionsError as error:
            self._server_full = error
            self._retry_connect_mono = asyncio.get_running_loop().time() + FULL_PAUSE_S
            raise
        self._server_full = None
        return connection

    def _may_try(self, urgent: bool) -> bool:
        """Return whether a connection is idle, or a new one may be opened now."""
        if self._urgent_waiting and not urgent:
            return self._pool.get_idle_size() > self._urgent_waiting
        may_connect = asyncio.get_running_loop().time() >= self._retry_connect_mono
        return may_connect or self._pool.get_idle_size() > 0  # which iterates over all connections

    async def _until_may_try(self, urgent: bool) -> None:
        while not self._may_try(urgent):
            now_mono = asyncio.get_running_loop().time()
            wake_mono = (
                self._retry_connect_mono if now_mono < self._retry_connect_mono else now_mono + FULL_PAUSE_S
            )
            self._returned.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout_at(wake_mono):
                    await self._returned.wait()

    @asynccontextmanager
    async def _ahead_of_queue(self) -> AsyncIterator[None]:
        """Reserve the next idle connection for the block: queued callers leave it."""
        self._urgent_waiting += 1
        try:
            yield
        finally:
            self._urgent_waiting -= 1


@asynccontextmanager
async def transaction(connection: DatabaseConnection) -> AsyncIterator[None]:
    """Run the block in a READ COMMITTED transaction. A cancellation is raised even if the rollback fails."""
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


def _terminate(connection: DatabaseConnection) -> None:
    with suppress(asyncpg.InterfaceError):  # the pool was faster
        connection.terminate()
