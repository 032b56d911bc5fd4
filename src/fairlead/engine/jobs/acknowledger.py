"""Writes outcomes in batches: at once when idle, and all that arrived during a write when it returns.

Finished work is not lost while the store is unavailable: it is held in memory, up to a bound, and written
later. While too many outcomes are held, or for too long, ``is_accepting`` is False and no new work starts.
Outcomes that the store refuses because another process owns the job are counted and reported. An outcome
that the store cannot take delays no other. It is written alone, and if the store still refuses it, the run
counts as a failed attempt. So a job with a result that cannot be stored becomes a dead letter, and does not
run for ever. Spec: P14, R1.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from uuid import UUID

from fairlead._core.clock import Clock, Draw
from fairlead._core.faultpoint import faultpoint
from fairlead.engine.base.service import FailureReporter, is_outage
from fairlead.engine.base.timing import wait_event
from fairlead.engine.ports import Discarded, Job, JobStore, Outcome, Rescheduled
from fairlead.errors import SetupError
from fairlead.events import Emit, JobDiscarded, SupersededWriteRefused

MAX_BATCH = 500
"""The most outcomes of one write."""
MAX_PENDING = 2000
"""How many unwritten outcomes stop new work."""
MAX_FAILING_S = 60.0
"""How long writes may fail before new work stops."""

RefusedOutcome = Callable[[Job, Exception], Outcome]
"""Takes a job and the store's error; returns a failed attempt to write in place of the refused outcome."""


@dataclass(slots=True)
class FinishedRun:
    """A run that ended, with the outcome to write.

    Attributes:
        is_in_doubt: Whether it was in a batch that failed, of which some outcomes may have been written.
    """

    job: Job
    outcome: Outcome
    is_in_doubt: bool = False


class Acknowledger:
    """The one writer of a worker's outcomes.

    Args:
        refused_outcome: Returns the outcome to write in place of one that the store refuses.
        on_flushed: Called whenever nothing is left to write.
    """

    def __init__(
        self,
        store: JobStore,
        *,
        clock: Clock,
        draw: Draw,
        emit: Emit,
        refused_outcome: RefusedOutcome,
        on_flushed: Callable[[], None],
    ) -> None:
        self._store = store
        self._refused_outcome = refused_outcome
        self._clock = clock
        self._emit = emit
        self._on_flushed = on_flushed
        self._reporter = FailureReporter("acknowledger", clock=clock, draw=draw, emit=emit)
        self._waiting: deque[FinishedRun] = deque()
        self._in_flight = 0
        self._filled = asyncio.Event()
        self._flushed = asyncio.Event()
        self._flushed.set()
        self._never = asyncio.Event()

    @property
    def pending(self) -> int:
        """Outcomes not yet known to be written."""
        return len(self._waiting) + self._in_flight

    @property
    def is_accepting(self) -> bool:
        """Whether new work may start: False while too many outcomes are unwritten, or for too long."""
        return self.pending < MAX_PENDING and self._reporter.failing_s < MAX_FAILING_S

    def put(self, job: Job, outcome: Outcome) -> None:
        """Queue *outcome* to be written soon. Never waits."""
        self._waiting.append(FinishedRun(job, outcome))
        self._flushed.clear()
        self._filled.set()

    async def flushed(self) -> None:
        """Return once nothing is left to write."""
        await self._flushed.wait()

    async def run(self) -> None:
        """Write until cancelled. A job without a written outcome then runs again in another process."""
        while True:
            await self._filled.wait()
            batch = [self._waiting.popleft() for _ in range(min(MAX_BATCH, len(self._waiting)))]
            self._in_flight = len(batch)
            wait_s = await self._write(batch)
            self._in_flight = 0
            self._signal_if_flushed()
            if wait_s:
                await wait_event(self._never, self._clock, wait_s)

    def _signal_if_flushed(self) -> None:
        """Wake those that wait for all outcomes to be written, if none is left."""
        if self._waiting:
            return
        self._filled.clear()
        self._flushed.set()
        self._on_flushed()

    async def _write(self, batch: Sequence[FinishedRun]) -> float:
        """Write *batch*, or put it back, and return the seconds to wait before the next write."""
        try:
            faultpoint("job.before_ack")
            accepted = await self._store.acknowledge([finished.outcome for finished in batch])
            faultpoint("job.after_ack")
        except Exception as error:  # noqa: BLE001 (finished work is kept whatever the store says)
            return await self._handle_failed_write(batch, error)
        self._reporter.success()
        self._report(batch, accepted)
        return 0.0

    async def _handle_failed_write(self, batch: Sequence[FinishedRun], error: Exception) -> float:
        """Put *batch* back after an outage, else write each outcome alone, or a substitute for it.

        Returns:
            The seconds to wait before the next write.
        """
        if is_outage(error) or isinstance(error, SetupError | OSError):  # no outcome is at fault
            return self._put_back(batch, error)
        if len(batch) > 1:  # something in it cannot be stored: find it, and write the others
            return max([await self._write([replace(finished, is_in_doubt=True)]) for finished in batch])
        (finished,) = batch
        for substitute in self._substitutes(finished, error):
            if await self._is_written(substitute):
                return 0.0
        return self._put_back(batch, error)  # not even a plain failure is accepted, so the store is at fault

    def _substitutes(self, finished: FinishedRun, error: Exception) -> list[FinishedRun]:
        """Return what to write in place of a refused outcome, in the order to try.

        First a failure with the state that the run saved, then one without it.
        """
        job, failed = finished.job, self._refused_outcome(finished.job, error)
        saved = getattr(finished.outcome, "args", None)
        if saved is None or not isinstance(failed, Rescheduled | Discarded):
            return [FinishedRun(job, failed)]
        return [FinishedRun(job, replace(failed, args=saved)), FinishedRun(job, failed)]

    async def _is_written(self, finished: FinishedRun) -> bool:
        """Write one outcome alone, and return whether the store took it."""
        try:
            accepted = await self._store.acknowledge([finished.outcome])
        except Exception:  # noqa: BLE001 (the caller tries the next substitute, or retains the original)
            return False
        self._reporter.success()
        self._report([finished], accepted)
        return True

    def _put_back(self, batch: Sequence[FinishedRun], error: Exception) -> float:
        """Queue *batch* first again, and return the seconds to wait before the next write."""
        self._waiting.extendleft(reversed(batch))
        return self._reporter.failure(error)

    def _report(self, batch: Sequence[FinishedRun], accepted: set[UUID]) -> None:
        """Emit events for discarded jobs, and for outcomes that were refused because the lease was lost."""
        stale: Counter[str] = Counter()
        for finished in batch:
            if finished.outcome.job_id in accepted:
                self._report_discarded(finished)
            elif not finished.is_in_doubt:
                stale[finished.job.kind] += 1
        for kind, count in stale.items():
            self._emit(SupersededWriteRefused(kind, count))

    def _report_discarded(self, finished: FinishedRun) -> None:
        job, outcome = finished.job, finished.outcome
        if isinstance(outcome, Discarded):
            failure = outcome.failure
            self._emit(
                JobDiscarded(
                    job_id=job.job_id,
                    kind=job.kind,
                    tenant=job.tenant_id,
                    provider=job.provider,
                    category=failure.category,
                    code=failure.code,
                    reason=failure.reason,
                )
            )
