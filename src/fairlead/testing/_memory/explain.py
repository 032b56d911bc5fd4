"""Collect the facts of a waiting job, for policy/jobs/explain.py.

Spec: Q14.
"""

from __future__ import annotations

from uuid import UUID

from fairlead.engine.ports import Explanation
from fairlead.policy.jobs.explain import HeldBy, JobFacts, explain_wait
from fairlead.policy.jobs.states import JobState
from fairlead.testing._memory.capacity import CapUsage, pauses_of
from fairlead.testing._memory.database import MemoryDatabase, seconds
from fairlead.testing._memory.lane_rows import LaneRow, lane_key
from fairlead.testing._memory.lane_turns import MOST_COUNTED, ready_lanes, settle
from fairlead.testing._memory.rows import JobRow, copied
from fairlead.testing._memory.views import job_view

HANDLED_FOR_S = 180.0


def explained(database: MemoryDatabase, job_id: UUID, asker: UUID | None) -> Explanation | None:
    """Return why a job waits; None if there is no such job."""
    row = database.jobs.get(job_id)
    if row is None:
        return None
    settle(database)
    facts = _facts(database, row, asker)
    explanation = explain_wait(facts)
    return Explanation(
        job=job_view(database, row),
        why=explanation.reason.code,
        detail=explanation.detail,
        until=explanation.until,
        ahead_in_lane=facts.ahead_in_lane,
        lanes_ahead=facts.lanes_ahead,
        running_on=facts.worker,
        workers=facts.workers,
    )


def _facts(database: MemoryDatabase, row: JobRow, asker: UUID | None) -> JobFacts:
    now, key = database.now, lane_key(row)
    session = database.sessions.get(row.session_id) if row.session_id is not None else None
    lane = database.fair.lanes.get(key)
    ready = lane if lane is not None and lane.ready and row.state is JobState.AVAILABLE else None
    waits = row.state is JobState.AVAILABLE
    return copied(
        JobFacts,
        row,
        now=now,
        state=row.state.value,
        dead_letter_id=_dead_letter_of(database, row),
        cancelled_because=_cancelled_because(row),
        last_failure=str(row.failures[-1]["code"]) if row.failures else None,
        worker=f"{session.identity.host}:{session.identity.pid}" if session is not None else None,
        silent_s=(now - session.heartbeat_at).total_seconds() if session is not None else 0.0,
        lease_s=session.lease_s if session is not None else 0.0,
        workers=_workers(database, asker),
        follows=row.follow_at is not None,
        handled=is_handled(database, row.queue, row.kind),
        pauses=[HeldBy(p.scope, p.until, p.reason, p.by) for p in pauses_of(database, key)] if waits else [],
        full_caps=CapUsage(database).full_caps(key) if waits else [],
        lane_ready=ready is not None,
        lane_waits_s=(now - ready.served_at).total_seconds() if ready and ready.served_at else 0.0,
        ahead_in_lane=_ahead_in_lane(database, row) if waits and row.crash_count == 0 else None,
        lanes_ahead=_lanes_before(database, ready) if ready else None,
        urgent_lanes=_urgent_lanes(database, ready) if ready else None,
    )


def is_handled(database: MemoryDatabase, queue: str, kind: str) -> bool:
    """Return whether a worker has reported within three minutes that it takes *kind* from *queue*."""
    handled_at = database.handled_at.get((queue, kind))
    return handled_at is not None and handled_at > database.now - seconds(HANDLED_FOR_S)


def _workers(database: MemoryDatabase, asker: UUID | None) -> int:
    """Return the number of live processes, without *asker*."""
    return sum(
        session.open
        and session.heartbeat_at + seconds(session.lease_s) >= database.now
        and session.session_id != asker
        for session in database.sessions.values()
    )


def _dead_letter_of(database: MemoryDatabase, row: JobRow) -> str | None:
    letters = [entry for entry in database.dead_letters.values() if entry.job_id == row.job_id]
    return str(letters[0].dead_letter_id) if letters else None


def _cancelled_because(row: JobRow) -> str | None:
    because = row.result.get("cancelled") if isinstance(row.result, dict) else None
    return because if isinstance(because, str) else None


def _ahead_in_lane(database: MemoryDatabase, row: JobRow) -> int:
    ahead = sum(
        other.state is JobState.AVAILABLE
        and other.crash_count == 0
        and lane_key(other) == lane_key(row)
        and (other.run_at, other.job_id) < (row.run_at, row.job_id)
        for other in database.jobs.values()
    )
    return min(ahead, MOST_COUNTED)


def _lanes_before(database: MemoryDatabase, lane: LaneRow) -> int:
    """Return the number of ready lanes in the priority class of *lane* that are served before it."""
    lanes = ready_lanes(database, lane.key.queue, lane.level)
    return min(sum(other.position < lane.position for other in lanes), MOST_COUNTED)


def _urgent_lanes(database: MemoryDatabase, lane: LaneRow) -> int:
    """Return the number of ready lanes of more urgent classes."""
    count = sum(len(ready_lanes(database, lane.key.queue, level)) for level in range(lane.level))
    return min(count, MOST_COUNTED)
