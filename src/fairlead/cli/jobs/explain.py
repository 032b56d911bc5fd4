"""``fairlead jobs explain``: why a job waits, and what happened to it, attempt by attempt (Q14)."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Annotated

import typer

from fairlead.cli.kit.bulk_actions import parse_id
from fairlead.cli.kit.exits import Exit
from fairlead.cli.kit.invocation import Invocation
from fairlead.cli.kit.output import Record
from fairlead.errors import NotFoundError

if TYPE_CHECKING:
    from fairlead.app import Fairlead
    from fairlead.engine.ports import Explanation

ATTEMPTS = ("at", "attempt", "category", "code", "ran_s", "next_retry_s", "reason")


def explain(
    call: Invocation, job_id: Annotated[str, typer.Argument(metavar="ID", help="Id of a job.")]
) -> Exit | None:
    """Explain why a job waits, until when, and how many jobs are ahead of it; then list its attempts.

    The reason is one of: finished, running, not_due, follows (it starts after the run that had its unique
    key), expired, paused, capped, no_worker, no_handler (no worker takes its kind), suspect, turn (other jobs
    are ahead of it), unseen (the next sweep makes its lane ready). Counts stop at 1,000.
    """
    wanted = parse_id(job_id, "job")

    async def work(fairlead: Fairlead) -> Explanation:
        runtime = fairlead.runtime
        found = await runtime.lanes.explain(wanted, asker=runtime.heartbeat.session_id)
        if found is None:
            hint = "it may have been pruned; see `fairlead jobs list`"
            raise NotFoundError(f"there is no job {job_id}", hint=hint)
        return found

    told = as_record(call.with_fairlead(work))
    if call.out.as_json:
        call.out.record(told)
        return None
    call.out.record({name: value for name, value in told.items() if name != "attempts"})
    if told["attempts"]:
        call.out.heading("attempts")
        call.out.rows(map(_shown, told["attempts"]), ATTEMPTS)
    return None


def _shown(attempt: Record) -> Record:
    """As people read it: its moment as all other moments."""
    try:
        return {**attempt, "at": datetime.fromisoformat(str(attempt.get("at")))}
    except ValueError:
        return attempt


def as_record(found: Explanation) -> Record:
    """An explanation as JSON has it. *attempts* are those that failed; at most the last 20 are kept."""
    job = found.job
    return {
        "job_id": job.job_id,
        "kind": job.kind,
        "queue": job.queue,
        "tenant": job.tenant_id,
        "provider": job.provider,
        "group": job.group_key or None,
        "priority": job.priority,
        "state": job.label,
        "why": found.why,
        "detail": found.detail,
        "until": found.until,
        "ahead_in_lane": found.ahead_in_lane,
        "lanes_ahead": found.lanes_ahead,
        "running_on": found.running_on,
        "workers": found.workers,
        "attempt": job.attempt,
        "crash_count": job.crash_count,
        "created_at": job.created_at,
        "run_at": job.run_at,
        "finished_at": job.finished_at,
        "expires_at": job.expires_at,
        "attempts": job.failures,
    }
