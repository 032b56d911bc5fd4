"""Rescue the jobs of processes that died: at once with proof of death, else when their lease has expired.

Proof exists on the same host only. The rest is one statement for the whole fleet, which any process may run.
It rescues nothing until the database has run for a full lease without a gap. It counts crashes, so a job that
kills its worker ends as a dead letter. The same pass ends expired jobs. Spec: R2, R3, R7.
"""

from __future__ import annotations

from fairlead._core.clock import Clock, Draw
from fairlead.engine.base.service import Service
from fairlead.engine.jobs.heartbeat import Heartbeat
from fairlead.engine.ports import JobStore, ProcessProbe, SessionStore
from fairlead.events import Emit, JobsRescued

MAX_CRASHES = 3
"""How often a job may be running when its process dies, before it becomes a dead letter."""
BATCH_SIZE = 1000
MAX_BATCHES = 20
"""The most batches of one pass."""


def rescue_interval_s(lease_s: float) -> float:
    """Return the interval of passes: a sixth of the lease, at most 5 s.

    So jobs are rescued within the lease and 5 s. Spec: Q3.
    """
    return min(5.0, lease_s / 6)


class Rescuer:
    """The service that rescues jobs of dead processes.

    Args:
        max_crashes: How often a job may be running when its process dies. Default 3.
    """

    def __init__(
        self,
        sessions: SessionStore,
        jobs: JobStore,
        probe: ProcessProbe,
        heartbeat: Heartbeat,
        *,
        emit: Emit,
        max_crashes: int = MAX_CRASHES,
    ) -> None:
        self._sessions = sessions
        self._jobs = jobs
        self._probe = probe
        self._heartbeat = heartbeat
        self._emit = emit
        self._max_crashes = max_crashes

    def service(self, *, clock: Clock, draw: Draw) -> Service:
        """Return this as a service."""
        return Service(
            "rescuer",
            self.one_pass,
            interval_s=rescue_interval_s(self._heartbeat.lease_s),
            clock=clock,
            draw=draw,
            emit=self._emit,
            ready=self._heartbeat.has_session,
        )

    async def one_pass(self) -> None:
        """Declare dead sessions lost, hand back their jobs, and end expired jobs."""
        session_id = self._heartbeat.session_id
        if session_id is None:  # this process is presumed dead itself
            return
        await self._mark_dead()
        every_s = rescue_interval_s(self._heartbeat.lease_s) / 2
        for _ in range(MAX_BATCHES):
            rescue = await self._sessions.rescue(session_id, every_s, self._max_crashes, BATCH_SIZE)
            if rescue is None:
                return
            if rescue.rescued or rescue.dead:
                self._emit(JobsRescued(rescue.rescued, rescue.dead, rescue.sessions))
            if rescue.rescued + rescue.dead < BATCH_SIZE:
                break
            every_s = 0.0  # the rest of this pass
        for _ in range(MAX_BATCHES):
            if await self._jobs.expire_due(BATCH_SIZE) < BATCH_SIZE:
                break

    async def _mark_dead(self) -> None:
        """Mark the sessions of dead processes of this host, so that their jobs are rescued at once."""
        neighbours = await self._sessions.local_sessions(self._probe.identity())
        dead = [session_id for session_id, identity in neighbours if self._probe.is_dead(identity)]
        if dead:
            await self._sessions.mark_dead(dead)
