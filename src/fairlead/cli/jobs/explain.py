"""``fairlead jobs explain``: why a job waits, and what happened to it, attempt by attempt. Spec: Q14."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from fairlead.cli.jobs.views import JobId, no_job
from fairlead.cli.kit.changes import parse_id
from fairlead.cli.kit.exits import Exit
from fairlead.cli.kit.invocation import Invocation
from fairlead.cli.kit.output import Record, fields_of
from fairlead.cli.processes import processes
from fairlead.policy.text.names import listed

if TYPE_CHECKING:
    from fairlead.assembly.runtime import Runtime
    from fairlead.engine.ports import Explanation

WAITS_FOR_WORKER = ("turn", "unseen", "suspect")
"""The reasons that end as soon as a healthy worker claims the job."""
ATTEMPTS = ("at", "attempt", "category", "code", "ran_s", "next_retry_s", "reason")


def explain(call: Invocation, job_id: JobId) -> Exit | None:
    """Explain why a job waits, until when, and how many jobs are ahead of it; then list its attempts.

    The reason is one of: finished, running, not_due, follows (it starts after the run that had its unique
    key), expired, paused, capped, no_worker, no_handler (no worker takes its kind), suspect, turn (other jobs
    are ahead of it), unseen (the next sweep makes its lane ready). Counts stop at 1,000. If no process claims
    jobs because of local faults, the detail names the faults.
    """
    wanted_id = parse_id(job_id, "job")

    async def work(runtime: Runtime) -> tuple[Explanation, list[str]]:
        explanation = await runtime.lanes.explain(wanted_id, asker=runtime.heartbeat.session_id)
        if explanation is None:
            raise no_job(job_id)
        return explanation, await _unhealthy(runtime, explanation)

    record = explanation_record(*call.with_runtime(work))
    if call.out.as_json:
        call.out.record(record)
        return None
    call.out.record({name: value for name, value in record.items() if name != "attempts"})
    if record["attempts"]:
        call.out.heading("attempts")
        call.out.rows(map(_for_people, record["attempts"]), ATTEMPTS)
    return None


async def _unhealthy(runtime: Runtime, explanation: Explanation) -> list[str]:
    """Return the problems of all processes, if none of them can take the job because of local faults."""
    if explanation.why not in WAITS_FOR_WORKER:
        return []
    alive = [process for process in await processes(runtime) if process["state"] == "alive"]
    if not all(process["trouble"] for process in alive):
        return []
    return [f"{process['host']} {process['pid']}: {process['trouble']}" for process in alive]


def _for_people(attempt: Record) -> Record:
    """Return *attempt* with its time as a datetime, so that it is printed like every other time."""
    try:
        return {**attempt, "at": datetime.fromisoformat(str(attempt.get("at")))}
    except ValueError:
        return attempt


def explanation_record(explanation: Explanation, unhealthy: Sequence[str] = ()) -> Record:
    """Return an explanation as a JSON record.

    *attempts* are those that failed, at most the last 20. *unhealthy* are the faults of the processes, if none can
    take the job.
    """
    job = explanation.job
    detail = explanation.detail
    if unhealthy:
        detail += f"; no process claims jobs, because none can connect to anything ({listed(unhealthy)})"
    return {
        **fields_of(job, "job_id kind queue tenant=tenant_id provider"),
        "group": job.group_key or None,
        **fields_of(job, "priority state=label"),
        **fields_of(explanation, "why"),
        "detail": detail,
        **fields_of(explanation, "until ahead_in_lane lanes_ahead running_on workers"),
        "unhealthy": list(unhealthy),
        **fields_of(job, "attempt crash_count created_at run_at finished_at expires_at attempts=failures"),
    }
