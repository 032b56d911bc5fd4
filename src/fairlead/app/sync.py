"""fairlead for code without asyncio: a thin facade over an event loop on a thread of its own."""

from __future__ import annotations

import asyncio
import atexit
import os
import threading
import weakref
from collections.abc import Callable, Coroutine, Iterable, Mapping
from concurrent.futures import CancelledError, Future
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar, Unpack
from uuid import UUID

from fairlead.app.enqueued import EnqueuedJob
from fairlead.app.job_requests import JobOptions, JobRequest
from fairlead.errors import InvalidInputError, RefusedError
from fairlead.policy.tokens.token import PublicToken

if TYPE_CHECKING:
    from fairlead.app.fairlead import Fairlead
    from fairlead.app.job_functions import JobFunction

T = TypeVar("T")

AT_EXIT_S = 5.0
"""The time to close at the interpreter's exit, not counting refreshes under way at the provider."""
END_S = 5.0
"""The time for tasks that still run on the loop after closing, and for the end of the thread."""

_facades: weakref.WeakSet[SyncFairlead] = weakref.WeakSet()
_left_behind: list[_Loop] = []
"""The loops of a parent process: their threads do not exist here, and their sockets are the parent's."""


class SyncFairlead:
    """``fl.sync``: tokens, enqueue and results for Django, Celery, scripts.

    It opens with its first call and closes with its process, or by ``close``; ``with fl.sync as sf:`` does
    both. You may use it from any thread without a running event loop, where calls raise InvalidInputError
    because they block. After a fork the child opens its own with its first call. With *transaction* it needs
    no thread and no connection of its own.
    """

    def __init__(self, fairlead: Fairlead, twin: Callable[[], Fairlead]) -> None:
        self._fairlead = fairlead
        self._make_twin = twin
        self._lock = threading.Lock()
        self._loop: _Loop | None = None
        _facades.add(self)

    def __enter__(self) -> SyncFairlead:
        _check_no_loop()
        self._open_loop()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self, within_s: float | None = None) -> None:
        """Finish refreshes under way and close; a later call opens it again.

        Calls of other threads that are still under way end with a Refused.

        Args:
            within_s: The longest wait in seconds, not counting refreshes under way at the provider.
                Default: no limit.

        Raises:
            TimeoutError: Closing took longer.
            InvalidInputError: The thread has a running event loop.
        """
        if self._loop is not None:
            _check_no_loop()
        with self._lock:
            loop, self._loop = self._loop, None
        if loop is not None:
            loop.close(within_s)

    # ---- calls ---------------------------------------------------------------------------------

    def token(self, tenant: str, provider: str, account: str = "default") -> PublicToken:
        """Return a token: see `Fairlead.token`."""
        return self._wait(lambda fl: fl.token(tenant, provider, account))

    def refresh(
        self, tenant: str, provider: str, account: str = "default", *, newer_than: int | None = None
    ) -> PublicToken:
        """Return a newer token: see `Fairlead.refresh`."""
        return self._wait(lambda fl: fl.refresh(tenant, provider, account, newer_than=newer_than))

    def enqueue(
        self,
        kind: str | JobFunction[..., Any],
        args: Mapping[str, Any] | None = None,
        *,
        tenant: str,
        transaction: object | None = None,
        **options: Unpack[JobOptions],
    ) -> EnqueuedJob:
        """Store one job: see `Fairlead.enqueue`.

        Args:
            transaction: A psycopg Connection, or Django's ``connection``.
        """
        name = kind if isinstance(kind, str) else kind.kind
        (job_id,) = self.enqueue_many(
            [JobRequest(name, {} if args is None else args, tenant=tenant, **options)],
            transaction=transaction,
        )
        return job_id

    def enqueue_many(
        self, requests: Iterable[JobRequest], *, transaction: object | None = None
    ) -> list[EnqueuedJob]:
        """Store jobs: see `Fairlead.enqueue_many`."""
        if transaction is None:
            jobs_requested = list(requests)  # here: a generator may be bound to its thread
            return self._wait(lambda fl: fl.enqueue_many(jobs_requested))
        jobs = self._fairlead.new_jobs(requests)
        stored = self._fairlead.callers.store_blocking(transaction, jobs)
        return [EnqueuedJob(job.job_id, job.key_state) for job in stored]

    def result(self, job_id: UUID, *, timeout_s: float = 0.0) -> Any:
        """Return the result of a job: see `Fairlead.result`."""
        return self._wait(lambda fl: fl.result(job_id, timeout_s=timeout_s))

    # ---- the loop ------------------------------------------------------------------------------

    def _wait(self, work: Callable[[Fairlead], Coroutine[Any, Any, T]]) -> T:
        if self._fairlead.in_memory:
            return _at_once(work(self._fairlead))
        _check_no_loop()
        return self._open_loop().wait(work)

    def _open_loop(self) -> _Loop:
        """Return the loop, after starting it with a Fairlead of its own if there is none."""
        if self._loop is None:  # without the lock: an import may wait for another thread's import
            self._fairlead.load_modules()
        with self._lock:
            if self._loop is None:
                self._loop = _Loop(self._make_twin())
                atexit.register(self._at_exit)
            return self._loop

    def _at_exit(self) -> None:
        """Close as far as the interpreter still lets us; what is left ends with the process."""
        with suppress(Exception):
            self.close(AT_EXIT_S)

    def _forked(self) -> None:
        if self._loop is not None:
            _left_behind.append(self._loop)
        self._lock, self._loop = threading.Lock(), None


class _Loop:
    """An event loop on a thread, with a Fairlead open on it."""

    def __init__(self, fairlead: Fairlead) -> None:
        self._fairlead = fairlead
        self._lock = threading.Lock()
        self._under_way: set[Future[Any]] = set()
        self._ended = False
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="fairlead-sync", daemon=True)
        self._thread.start()
        try:
            self.wait(lambda fl: fl.__aenter__())
        except BaseException:
            self._end()
            raise

    def wait(self, work: Callable[[Fairlead], Coroutine[Any, Any, T]], within_s: float | None = None) -> T:
        """Run *work* and return its result; cancel it after an interrupt or *within_s*."""
        with self._lock:
            if self._ended:
                raise _closed()
            answer = asyncio.run_coroutine_threadsafe(work(self._fairlead), self._loop)
            self._under_way.add(answer)
        try:
            return answer.result(within_s)
        except CancelledError:
            raise _closed() from None
        finally:
            answer.cancel()
            self._under_way.discard(answer)

    def close(self, within_s: float | None) -> None:
        """Close the Fairlead and end the thread, after waiting for responses to requests that were sent."""
        try:
            if within_s is not None:
                self.wait(_nothing, within_s)  # times out if a handler blocks the loop
                self.wait(lambda fl: fl.runtime.tokens.coordinator.drain(within_s))
            self.wait(lambda fl: fl.__aexit__(None, None, None), within_s)
        finally:
            self._end()

    def _end(self) -> None:
        """Cancel what still runs on the loop, and raise an error in each waiting caller."""
        with self._lock:
            self._ended = True
        with suppress(TimeoutError, CancelledError):
            asyncio.run_coroutine_threadsafe(_cancel_others(), self._loop).result(END_S)
        for answer in list(self._under_way):
            answer.cancel()
        self._loop.call_soon_threadsafe(self._loop.stop)
        # a thread with a blocked loop ends with the process
        self._thread.join(END_S)
        if not self._thread.is_alive():
            self._loop.close()


def _check_no_loop() -> None:
    """Raise InvalidInputError in a thread with a running event loop, because a call would block its tasks."""
    with suppress(RuntimeError):
        asyncio.get_running_loop()
        hint = "await the same method of the Fairlead itself, or call fl.sync in asyncio.to_thread"
        raise InvalidInputError("fl.sync would block the event loop of this thread", hint=hint)


async def _nothing(_fairlead: Fairlead) -> None:
    pass


async def _cancel_others() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)


def _closed() -> RefusedError:
    return RefusedError("fl.sync was closed while this call was under way", hint="call again: it reopens")


def _forked() -> None:
    for facade in list(_facades):
        facade._forked()


os.register_at_fork(after_in_child=_forked)


def _at_once(work: Coroutine[Any, Any, T]) -> T:
    """Return the result of work that never waits, as on stores in memory."""
    try:
        work.send(None)
    except StopIteration as end:
        result: T = end.value
        return result
    work.close()
    hint = "drain first and ask with timeout_s=0, or await it on the Fairlead itself"
    raise InvalidInputError("fl.sync cannot wait for a job in memory: no worker runs meanwhile", hint=hint)
