"""Runs suspects one by one, while nothing else of the process runs.

A *suspect* is a job that was running when its process crashed. It runs alone, so that a second crash costs no
other job. This class claims, starts and returns suspects; `suspects` decides when. Spec: R3.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple
from uuid import UUID

from fairlead._core.clock import Clock, Draw
from fairlead.engine.jobs.acknowledger import Acknowledger
from fairlead.engine.jobs.job_runs import JobRuns
from fairlead.engine.jobs.running_job import hand_back_outcome
from fairlead.engine.jobs.suspects import SuspectSchedule, longest_run_s
from fairlead.engine.ports import ClaimFilter, Job, JobStore


class ClaimedSuspect(NamedTuple):
    """A suspect, and the session under which it was claimed."""

    job: Job
    session_id: UUID


class SuspectRunner:
    """The suspect of one worker: none, or one that is held until nothing else runs, or one that runs.

    Args:
        claims: What the worker claims; it names its kinds.
        timeout_s: Returns the timeout of a kind in seconds.
        poll_s: The poll interval of the worker in seconds.
        wake: Wakes the worker when a suspect has ended.
    """

    def __init__(
        self,
        jobs: JobStore,
        runs: JobRuns,
        acks: Acknowledger,
        *,
        claims: ClaimFilter,
        timeout_s: Callable[[str], float],
        poll_s: float,
        clock: Clock,
        draw: Draw,
        wake: Callable[[], None],
    ) -> None:
        self._jobs = jobs
        self._runs = runs
        self._acks = acks
        self._claims = claims
        self._timeout_s = timeout_s
        self._clock = clock
        self._draw = draw
        self._wake = wake
        self._suspect: ClaimedSuspect | None = None
        self.schedule = SuspectSchedule(clock.monotonic(), poll_s)

    @property
    def has_suspect(self) -> bool:
        """True while a suspect is held or runs."""
        return self._suspect is not None

    def current_filter(self) -> ClaimFilter | None:
        """Return what other work may be claimed now, in spite of waiting suspects; None: nothing."""
        limit_s = self.schedule.max_run_s(self._clock.monotonic())
        if limit_s == math.inf:
            return self._claims
        kinds = self._claims.kinds
        short = tuple(kind for kind in kinds if longest_run_s(kind, self._timeout_s(kind)) <= limit_s)
        return replace(self._claims, kinds=short) if short else None

    def skip_rest_if_idle(self) -> bool:
        """End the turn of other work if nothing runs and none was available; return whether it ended."""
        return not self._runs and self.schedule.skip_rest(self._clock.monotonic())

    def is_due(self) -> bool:
        """Return whether there is a suspect to start, or time to claim one."""
        if self._suspect is not None:
            return True
        now_mono = self._clock.monotonic()
        self.schedule.update_room_end(now_mono, self._runs.max_remaining_s)
        return self.schedule.should_claim(now_mono)

    async def claim_and_start(self, session_id: UUID) -> bool:
        """Claim a suspect if none is held, and start it if nothing else runs.

        Returns:
            Whether a suspect is held or was started, so that no other work may be claimed.
        """
        if self._suspect is None:
            await self._claim(session_id)
        if self._suspect is None:
            return False
        await self._start(*self._suspect)
        return True

    def run_ended(self, job: Job) -> bool:
        """Record the end of a run, and return whether a suspect may be able to start now."""
        if self._suspect is not None and self._suspect.job is job:
            self._end()
        return self._suspect is not None or (self.schedule.has_pending and not self._runs)

    def release_if_late(self) -> None:
        """Hand the held suspect back if it has waited too long for the process to become idle."""
        now_mono = self._clock.monotonic()
        if self._suspect is not None and self.schedule.is_late(now_mono):
            self.schedule.record_idle_timeout(now_mono, self._draw())
            self.release()

    def release(self) -> None:
        """Hand back a suspect that was claimed and has not started, to its place."""
        if self._suspect is not None and self._suspect.job.lease_id not in self._runs:
            job, self._suspect = self._suspect.job, None
            self.schedule.record_released()
            self._acks.put(job, replace(hand_back_outcome(job), delay_s=None))

    async def _claim(self, session_id: UUID) -> None:
        """Claim one suspect. It does not start yet, and nothing else starts before it."""
        claimed_mono = self._clock.monotonic()
        self.schedule.record_claim_sent(claimed_mono)
        job = await self._jobs.claim_suspect(self._claims, session_id)
        if job is None:
            self.schedule.record_none_claimed(claimed_mono)
            return
        self._suspect = ClaimedSuspect(job, session_id)
        if not self.schedule.record_claimed(claimed_mono):
            self.release()

    async def _start(self, job: Job, session_id: UUID) -> None:
        """Start *job* once no other run and no unwritten result can be lost with it."""
        if self._runs or self._acks.pending:
            return
        self.schedule.record_started(self._clock.monotonic())  # counts although the response may be lost
        is_started = await self._jobs.start_suspect(job.job_id, job.lease_id)
        if self._suspect is None:  # the lease was lost meanwhile, and the job handed back
            return
        if is_started:
            self._runs.start(job, session_id)
        if job.lease_id not in self._runs:
            self._end()

    def _end(self) -> None:
        """Record that the suspect has ended, so that the next one or other work may start."""
        self._suspect = None
        self.schedule.record_ended(self._clock.monotonic())
        self._wake()
