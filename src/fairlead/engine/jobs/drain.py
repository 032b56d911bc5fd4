"""The drain of a worker: running jobs end within the grace, the rest is handed back, results are written.

    stop > jobs end > 75 %: cancel the rest > 90 %: hand back what ignores it > 100 %: stop writing results

With the default grace of 60 s the leases are free after 45 s, and 6 s are left to write the last outcomes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from fairlead._core.clock import Clock
from fairlead.engine.base.timing import wait_event
from fairlead.engine.jobs.acknowledger import Acknowledger
from fairlead.engine.jobs.job_runs import JobRuns
from fairlead.events import Emit, ServiceFailed, WorkerDraining
from fairlead.policy.reasons.job_reasons import DRAIN

RUN_SHARE, CANCEL_SHARE = 0.75, 0.9
"""Shares of the grace: when running jobs are cancelled, and when those that ignore it are handed back."""
CANCEL_FORCED_S, WRITE_FORCED_S, LAST_WRITE_S = 1.0, 2.0, 1.0
"""The same in seconds after a second stop, and the least time for the last write."""


class Drain:
    """The stop of one worker, in stages of its grace period.

    Args:
        grace_s: Seconds from the stop to the end of the worker.
    """

    def __init__(self, *, grace_s: float, clock: Clock, emit: Emit) -> None:
        self._grace_s = grace_s
        self._clock = clock
        self._emit = emit
        self._stopped_mono: float | None = None
        self._forced_mono: float | None = None

    @property
    def is_requested(self) -> bool:
        """True once the worker was stopped."""
        return self._stopped_mono is not None

    def request(self) -> None:
        """Stop the worker. A second call ends the grace: jobs are cancelled and written within seconds."""
        if self._stopped_mono is None:
            self._stopped_mono = self._clock.monotonic()
        elif self._forced_mono is None:
            self._forced_mono = self._clock.monotonic()

    def cancel_at_mono(self) -> float | None:
        """Return when the running jobs will be cancelled, on the monotonic clock; None before a stop."""
        if self._stopped_mono is None:
            return None
        return self._stopped_mono + self._grace_s * RUN_SHARE

    async def run(self, runs: JobRuns, acks: Acknowledger, woken: asyncio.Event) -> None:
        """Wait for the jobs of *runs*, hand back the rest, and let *acks* write the results.

        Args:
            woken: Is set whenever a run or a write has ended, and at a second stop.
        """
        self._emit(WorkerDraining(len(runs), self._grace_s))
        await self._wait_while(lambda: len(runs), woken, RUN_SHARE, forced_s=0.0)
        runs.cancel_all(DRAIN.code)
        await self._wait_while(lambda: len(runs), woken, CANCEL_SHARE, forced_s=CANCEL_FORCED_S)
        runs.hand_back_stuck()
        await self._wait_while(
            lambda: acks.pending, woken, 1.0, forced_s=WRITE_FORCED_S, at_least_s=LAST_WRITE_S
        )
        if acks.pending:
            message = f"{acks.pending} results could not be written before the stop; their jobs run again"
            self._emit(ServiceFailed("worker", message))

    async def _wait_while(
        self,
        count: Callable[[], int],
        woken: asyncio.Event,
        share: float,
        *,
        forced_s: float,
        at_least_s: float = 0.0,
    ) -> None:
        """Wait until *count* returns 0, or until the time for it is over.

        Args:
            count: Returns how many jobs or outcomes are left.
            share: The share of the grace, from the stop, at which the wait ends.
            forced_s: Seconds after a second stop at which it ends earlier.
            at_least_s: The least seconds to wait, however late it starts.
        """
        started_mono = self._clock.monotonic()
        while count():
            assert self._stopped_mono is not None
            end_mono = self._stopped_mono + self._grace_s * share
            if self._forced_mono is not None:
                end_mono = min(end_mono, self._forced_mono + forced_s)
            left_s = max(end_mono, started_mono + at_least_s) - self._clock.monotonic()
            if left_s <= 0:
                return
            woken.clear()
            await wait_event(woken, self._clock, left_s)
