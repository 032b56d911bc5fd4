"""Processes in memory; see ``fairlead.engine.ports.SessionStore``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from typing import Literal
from uuid import UUID

from fairlead.engine.ports import FailureRecord, KeyHolder, ProcessIdentity, Renewed, Rescue, SessionView
from fairlead.policy.failures.category import Category
from fairlead.policy.jobs.states import JobState
from fairlead.testing._memory.database import MemoryStore, seconds, statement
from fairlead.testing._memory.dead_lettering import failure_json, unrun_to_dead_letter
from fairlead.testing._memory.rows import JobRow, SessionRow, copied


class MemorySessionStore(MemoryStore):
    """Sessions of a `MemoryDatabase`."""

    @statement
    def open(
        self,
        session_id: UUID,
        identity: ProcessIdentity,
        lease_s: float,
        version: str,
        master_keys: Sequence[str] | None = None,
        app_version: str | None = None,
    ) -> None:
        now = self.database.now
        new = SessionRow(session_id, identity, version, lease_s, now, now, app_version=app_version)
        new.master_keys = None if master_keys is None else tuple(master_keys)
        self.database.sessions.setdefault(session_id, new)  # a second call changes nothing

    @statement
    def heartbeat(
        self, session_id: UUID, running: Sequence[UUID] = (), trouble: str | None = None
    ) -> Renewed | None:
        row = self.database.sessions.get(session_id)
        if row is None or not row.open:
            return None
        row.heartbeat_at, row.trouble = self.database.now, trouble
        jobs = [self.database.jobs[job_id] for job_id in running if job_id in self.database.jobs]
        lease_ids = [job.lease_id for job in jobs if job.session_id == session_id and job.cancelling]
        cancelled = frozenset(lease_id for lease_id in lease_ids if lease_id is not None)
        return Renewed(cancelled, row.data_keys_renewed_at)

    @statement
    def close(self, session_id: UUID) -> None:
        row = self.database.sessions.get(session_id)
        if row is not None and row.open:
            row.stopped_at = self.database.now
        for job in self.database.jobs.values():
            if job.session_id == session_id:
                job.restore()
                self.database.notify(job.queue)

    @statement
    def key_holders(self, seen_within_s: float = 0.0) -> list[KeyHolder]:
        now = self.database.now
        live = [
            row
            for row in self.database.sessions.values()
            if (row.open and row.heartbeat_at + seconds(row.lease_s) > now)
            or (row.lost_at or row.stopped_at or row.heartbeat_at) > now - seconds(seen_within_s)
        ]
        return [
            KeyHolder(row.session_id, row.identity.host, row.identity.pid, row.master_keys, _is_behind(row))
            for row in sorted(live, key=lambda row: (row.identity.host, row.identity.pid, row.session_id))
        ]

    @statement
    def data_keys_renewed(self) -> None:
        for row in self.database.sessions.values():
            if row.open:
                row.data_keys_renewed_at = self.database.now

    @statement
    def local_sessions(self, identity: ProcessIdentity) -> list[tuple[UUID, ProcessIdentity]]:
        return [
            (row.session_id, row.identity)
            for row in self.database.sessions.values()
            if row.open
            and (row.identity.boot_id, row.identity.pid_namespace)
            == (identity.boot_id, identity.pid_namespace)
            and row.identity.pid != identity.pid
        ]

    @statement
    def mark_dead(self, session_ids: Sequence[UUID]) -> int:
        rows = [self.database.sessions.get(session_id) for session_id in session_ids]
        dead = [row for row in rows if row is not None and row.open]
        for row in dead:
            row.lost_at = self.database.now
        return len(dead)

    # ---- rescue --------------------------------------------------------------------------------

    @statement
    def rescue(self, session_id: UUID, every_s: float, max_crashes: int, limit: int) -> Rescue | None:
        now, last = self.database.now, self.database.rescued_at
        if not self.database.is_open(session_id) or (last is not None and now < last + seconds(every_s)):
            return None
        session = self.database.sessions[session_id]
        since = self._uninterrupted_since(last, session.lease_s)
        ready = all(self._is_sure(row, since) for row in self.database.sessions.values() if row.open)
        sessions = self._declare_lost(since)
        rows = [row for row in self.database.jobs.values() if self._is_free(row)][:limit]
        dead = sum(self._rescue_one(row, max_crashes) for row in rows)
        return Rescue(ready, sessions=sessions, rescued=len(rows) - dead, dead=dead)

    def _uninterrupted_since(self, last: datetime | None, lease_s: float) -> datetime:
        """Return since when rescue has run without a gap; a gap is half a lease. Spec: R2."""
        database = self.database
        since = database.uninterrupted_since
        if since is None or last is None or database.now - last > seconds(lease_s / 2):
            since = database.uninterrupted_since = database.now
        database.rescued_at = database.now
        return since

    def _declare_lost(self, since: datetime) -> int:
        now, count = self.database.now, 0
        for row in self.database.sessions.values():
            silent = row.heartbeat_at + seconds(row.lease_s) < now
            if row.open and silent and self._is_sure(row, since):
                row.lost_at = now
                count += 1
        return count

    def _is_sure(self, row: SessionRow, since: datetime) -> bool:
        """Return whether a whole lease has passed without a gap, so that a live session would have renewed."""
        return since + seconds(row.lease_s) <= self.database.now

    def _is_free(self, row: JobRow) -> bool:
        running = row.state is JobState.RUNNING and row.session_id is not None
        return running and row.session_id is not None and not self.database.is_open(row.session_id)

    def _rescue_one(self, row: JobRow, max_crashes: int) -> bool:
        """Return one job to its queue, or discard it after too many crashes and return True."""
        category = Category.TRANSIENT_SERVER
        if row.started_at is not None:  # otherwise it had not started, and caused no crash
            row.crash_count += 1
            ran_s = (self.database.now - row.started_at).total_seconds()
            if row.crash_count >= max_crashes:
                reason = f"its worker died or did not renew its lease in time, {row.crash_count} times"
                unrun_to_dead_letter(self.database, row, category, "poison", reason, ran_s=ran_s)
                return True
            reason = "its worker died or did not renew its lease in time; this counts as no attempt"
            crashed = FailureRecord(category.value, "crashed", reason, ran_s, row.attempt)
            row.add_failure(failure_json(crashed, self.database.now))
        row.attempt -= 1
        row.give_back(row.run_at)
        self.database.notify(row.queue)
        return False

    # ---- inspection ----------------------------------------------------------------------------

    @statement
    def search(self) -> list[SessionView]:
        now = self.database.now
        running = Counter(job.session_id for job in self.database.jobs.values() if job.session_id)
        return [_view(row, now, running[row.session_id]) for row in self.database.sessions.values()]

    @statement
    def prune(self, older_than_s: float, limit: int) -> int:
        horizon_at = self.database.now - seconds(older_than_s)
        holders = {row.session_id for row in self.database.jobs.values() if row.state is JobState.RUNNING}
        ended = [
            row.session_id
            for row in self.database.sessions.values()
            if not row.open and (row.lost_at or row.stopped_at or horizon_at) < horizon_at
            if row.session_id not in holders
        ]
        for session_id in ended[:limit]:
            del self.database.sessions[session_id]
        return len(ended[:limit])


def _view(row: SessionRow, now: datetime, running_jobs: int) -> SessionView:
    age_s = (now - row.heartbeat_at).total_seconds()
    return copied(
        SessionView, row, heartbeat_age_s=age_s, state=_state(row, age_s), running_jobs=running_jobs
    )


def _state(row: SessionRow, age_s: float) -> Literal["alive", "late", "lost", "stopped"]:
    if row.stopped_at is not None:
        return "stopped"
    if row.lost_at is not None:
        return "lost"
    return "late" if age_s > row.lease_s else "alive"


def _is_behind(row: SessionRow) -> bool:
    asked_at = row.data_keys_renewed_at
    return asked_at is not None and row.heartbeat_at <= asked_at
