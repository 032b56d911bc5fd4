"""Writes outcomes in batches: at once when idle, and all that arrived during a write when it returns.

Finished work is not lost while the store is unavailable: it is held in memory, up to a bound, and written
later. While outcomes are held for too long, or are too many, ``accepting`` is False and no new work starts.
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

BATCH = 500
BOUND = 2000
KEEP_S = 60.0

Refuse = Callable[[Job, Exception], Outcome]
"""Returns a failed attempt, in place of an outcome that the store refuses."""


@dataclass(slots=True)
class Finished:
    """A run that ended. *in_doubt*: it was in a batch that failed, of which some may have been written."""

    job: Job
    outcome: Outcome
    in_doubt: bool = False


class Acknowledger:
    """The one writer of a worker's outcomes.

    Args:
        refused: Returns the outcome to write in place of one that the store refuses.
        on_flushed: Called whenever nothing is left to write.
    """

    def __init__(
        self,
        store: JobStore,
        *,
        clock: Clock,
        draw: Draw,
        emit: Emit,
        refused: Refuse,
        on_flushed: Callable[[], None],
    ) -> None:
        self._store = store
        self._refused = refused
        self._clock = clock
        self._emit = emit
        self._on_flushed = on_flushed
        self._reporter = FailureReporter("acknowledger", clock=clock, draw=draw, emit=emit)
        self._waiting: deque[Finished] = deque()
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
    def accepting(self) -> bool:
        """False while so much, or for so long, is kept that no new work should be begun."""
        return self.pending < BOUND and self._reporter.failing_s < KEEP_S

    def put(self, job: Job, outcome: Outcome) -> None:
        """Have *outcome* written soon. Never waits."""
        self._waiting.append(Finished(job, outcome))
        self._flushed.clear()
        self._filled.set()

    async def flushed(self) -> None:
        """Return once nothing is left to write."""
        await self._flushed.wait()

    async def run(self) -> None:
        """Write until cancelled; what is left then is run again by somebody else."""
        while True:
            await self._filled.wait()
            batch = [self._waiting.popleft() for _ in range(min(BATCH, len(self._waiting)))]
            self._in_flight = len(batch)
            wait_s = await self._write(batch)
            self._in_flight = 0
            self._note_level()
            if wait_s:
                await wait_event(self._never, self._clock, wait_s)

    def _note_level(self) -> None:
        if self._waiting:
            return
        self._filled.clear()
        self._flushed.set()
        self._on_flushed()

    async def _write(self, batch: Sequence[Finished]) -> float:
        """Write *batch*, or put it back; the seconds to wait before the next write."""
        try:
            faultpoint("job.before_ack")
            accepted = await self._store.acknowledge([finished.outcome for finished in batch])
            faultpoint("job.after_ack")
        except Exception as error:  # noqa: BLE001 (finished work is kept whatever the store says)
            return await self._not_written(batch, error)
        self._reporter.success()
        self._report(batch, accepted)
        return 0.0

    async def _not_written(self, batch: Sequence[Finished], error: Exception) -> float:
        if is_outage(error) or isinstance(error, SetupError | OSError):  # nothing was asked of the store
            return self._keep(batch, error)
        if len(batch) > 1:  # something in it cannot be stored: find it, and write the others
            return max([await self._write([replace(finished, in_doubt=True)]) for finished in batch])
        (finished,) = batch
        for substitute in self._substitutes(finished, error):
            if await self._is_written(substitute):
                return 0.0
        return self._keep(batch, error)  # not even a plain failure is accepted, so the store is at fault

    def _substitutes(self, finished: Finished, error: Exception) -> list[Finished]:
        """Return substitutes for *finished*: a failure with the run's saved state, then one without it."""
        job, failed = finished.job, self._refused(finished.job, error)
        saved = getattr(finished.outcome, "args", None)
        if saved is None or not isinstance(failed, Rescheduled | Discarded):
            return [Finished(job, failed)]
        return [Finished(job, replace(failed, args=saved)), Finished(job, failed)]

    async def _is_written(self, finished: Finished) -> bool:
        try:
            accepted = await self._store.acknowledge([finished.outcome])
        except Exception:  # noqa: BLE001 (the caller tries the next substitute, or retains the original)
            return False
        self._reporter.success()
        self._report([finished], accepted)
        return True

    def _keep(self, batch: Sequence[Finished], error: Exception) -> float:
        self._waiting.extendleft(reversed(batch))
        return self._reporter.failure(error)

    def _report(self, batch: Sequence[Finished], accepted: set[UUID]) -> None:
        stale: Counter[str] = Counter()
        for finished in batch:
            if finished.outcome.job_id in accepted:
                self._report_discarded(finished)
            elif not finished.in_doubt:
                stale[finished.job.kind] += 1
        for kind, count in stale.items():
            self._emit(SupersededWriteRefused(kind, count))

    def _report_discarded(self, finished: Finished) -> None:
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
