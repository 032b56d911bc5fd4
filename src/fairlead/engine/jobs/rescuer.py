"""Gives back the jobs of processes that died: at once with proof of death, else when their lease has passed.

Proof exists on the same host only (R7). The rest is one fleet-wide statement, whoever runs it; it refuses to
rescue anything until the database has run for a full lease without a gap (R2), and it counts crashes, so that
a job that kills its worker ends among the dead letters (R3). The same pass ends jobs past their expiry.
"""

from __future__ import annotations

from fairlead._core.clock import Clock, Draw
from fairlead.engine.base.service import Service
from fairlead.engine.jobs.heartbeat import Heartbeat
from fairlead.engine.ports import JobStore, ProcessProbe, SessionStore
from fairlead.events import Emit, JobsRescued

MAX_CRASHES = 3
BATCH = 1000
MOST_BATCHES = 20


def rescue_interval_s(lease_s: float) -> float:
    """How often to look: a sixth of the lease, at most 5 s, so that rescue ends by lease + 5 s (Q3)."""
    return min(5.0, lease_s / 6)


class Rescuer:
    """One pass of looking for the dead. *max_crashes* is how often a job may take its process along."""

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
        """This as a service."""
        return Service(
            "rescuer",
            self.one_pass,
            interval_s=rescue_interval_s(self._heartbeat.lease_s),
            clock=clock,
            draw=draw,
            emit=self._emit,
            ready=self._heartbeat.holds,
        )

    async def one_pass(self) -> None:
        """Bury, rescue and expire, in batches until a batch is not full."""
        session_id = self._heartbeat.session_id
        if session_id is None:  # presumed dead ourselves: we judge nobody
            return
        await self._bury()
        every_s = rescue_interval_s(self._heartbeat.lease_s) / 2
        for _ in range(MOST_BATCHES):
            done = await self._sessions.rescue(session_id, every_s, self._max_crashes, BATCH)
            if done is None:
                return
            if done.rescued or done.dead:
                self._emit(JobsRescued(done.rescued, done.dead, done.sessions))
            if done.rescued + done.dead < BATCH:
                break
            every_s = 0.0  # the rest of what we have begun
        for _ in range(MOST_BATCHES):
            if await self._jobs.expire_due(BATCH) < BATCH:
                break

    async def _bury(self) -> None:
        """Declare processes of this host lost that provably died: their work need not wait for the lease."""
        neighbours = await self._sessions.local_sessions(self._probe.identity())
        dead = [session_id for session_id, identity in neighbours if self._probe.is_dead(identity)]
        if dead:
            await self._sessions.mark_dead(dead)
