"""``fairlead jobs``: look at jobs, hurry or cancel them (Q16)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from fairlead.cli.acts import Tally, on_each, parsed_id, record_act
from fairlead.cli.exits import Exit
from fairlead.cli.invocation import DryRun, Invocation, Limit, Yes, command, group
from fairlead.cli.output import Record
from fairlead.errors import InputInvalid, NotFound

if TYPE_CHECKING:
    from fairlead.app import Fairlead
    from fairlead.engine.ports import JobView
    from fairlead.runtime import Runtime

app = group("Look at jobs, hurry or cancel them.")

COLUMNS = ("job_id", "kind", "tenant", "provider", "state", "priority", "attempt", "run_at")

Ids = Annotated[list[str], typer.Argument(metavar="ID...", help="Ids of jobs.", show_default=False)]


@command(app, "list")
def list_jobs(
    call: Invocation,
    state: Annotated[
        str | None,
        typer.Option(
            "--state",
            help="available, running, completed, cancelled, discarded; or scheduled, retryable: not due yet.",
        ),
    ] = None,
    kind: Annotated[str | None, typer.Option("--kind", help="Only this kind.")] = None,
    tenant: Annotated[str | None, typer.Option("--tenant", "-t", help="Only this tenant's.")] = None,
    queue: Annotated[str | None, typer.Option("--queue", help="Only in this queue.")] = None,
    limit: Limit = 100,
) -> Exit | None:
    """List jobs, the newest first."""
    _check_state(state)

    async def work(fairlead: Fairlead) -> list[JobView]:
        return await fairlead.runtime.jobs.search(
            state=state, kind=kind, tenant_id=tenant, queue=queue, limit=limit
        )

    call.out.rows(map(as_record, call.with_fairlead(work)), COLUMNS, none="no such jobs")
    return None


@command(app, "show")
def show(
    call: Invocation, job_id: Annotated[str, typer.Argument(metavar="ID", help="Id of a job.")]
) -> Exit | None:
    """Show one job: what it is to do, and what happened to it, attempt by attempt."""
    wanted = parsed_id(job_id, "job")

    async def work(fairlead: Fairlead) -> JobView:
        return await _job(fairlead.runtime, str(wanted))

    call.out.record(as_record(call.with_fairlead(work)))
    return None


@command(app, "retry")
def retry(call: Invocation, job_ids: Ids, dry_run: DryRun = False) -> Exit | None:
    """Have waiting jobs run now instead of at their time."""

    async def work(fairlead: Fairlead) -> Tally:
        runtime = fairlead.runtime

        async def one(job_id: str) -> str:
            job = await _job(runtime, job_id)
            if job.state != "available":
                hint = (
                    "for a discarded one: `fairlead dlq redrive`" if job.state == "discarded" else "leave it"
                )
                raise InputInvalid(f"the job is {job.state}, not waiting", tenant=job.tenant_id, hint=hint)
            if dry_run:
                return "would be retried"
            if not await runtime.jobs.retry_now(job.job_id):
                return "started meanwhile"
            await _record(call, runtime, "job.retried", job)
            return "due now"

        return await on_each(job_ids, _named, one)

    return _told(call, call.with_fairlead(work))


@command(app, "cancel")
def cancel(
    call: Invocation,
    job_ids: Ids,
    reason: Annotated[str, typer.Option("--reason", help="Why; kept with the job.")] = "cancelled by hand",
    dry_run: DryRun = False,
    yes: Yes = False,
) -> Exit | None:
    """Cancel jobs: waiting ones never run, what a running one ends with is not accepted."""
    if not dry_run:
        call.confirm(f"Cancel {len(job_ids)} job(s)?", yes=yes)

    async def work(fairlead: Fairlead) -> Tally:
        runtime = fairlead.runtime

        async def one(job_id: str) -> str:
            job = await _job(runtime, job_id)
            if job.state not in {"available", "running"}:
                raise InputInvalid(f"the job is {job.state} already", tenant=job.tenant_id, hint="leave it")
            if dry_run:
                return "would be cancelled"
            if not await runtime.jobs.cancel(job.job_id, reason):
                return "ended meanwhile"
            await _record(call, runtime, "job.cancelled", job, reason=reason)
            return "cancelled"

        return await on_each(job_ids, _named, one)

    return _told(call, call.with_fairlead(work))


def as_record(job: JobView) -> Record:
    """A job as JSON has it."""
    return {
        "job_id": job.job_id,
        "kind": job.kind,
        "queue": job.queue,
        "tenant": job.tenant_id,
        "provider": job.provider,
        "state": job.label,
        "priority": job.priority,
        "attempt": job.attempt,
        "crash_count": job.crash_count,
        "created_at": job.created_at,
        "run_at": job.run_at,
        "finished_at": job.finished_at,
        "expires_at": job.expires_at,
        "unique_key": job.unique_key,
        "args": job.args,
        "failures": job.failures,
        "result": job.result,
    }


def _named(job_id: str) -> Record:
    return {"job_id": job_id}


def _check_state(state: str | None) -> None:
    from fairlead.policy.states import JobState

    known = [*JobState, "scheduled", "retryable"]
    if state is not None and state not in known:
        raise InputInvalid(f"{state!r} is no state of a job", hint=f"one of: {', '.join(known)}")


async def _job(runtime: Runtime, job_id: str) -> JobView:
    job = await runtime.jobs.get(parsed_id(job_id, "job"))
    if job is None:
        raise NotFound(f"there is no job {job_id}", hint="it may have been pruned; see `fairlead jobs list`")
    return job


async def _record(call: Invocation, runtime: Runtime, act: str, job: JobView, **details: str) -> None:
    told = {"job_id": str(job.job_id), "kind": job.kind, **details}
    await record_act(runtime, act, call.actor, told, tenant=job.tenant_id, provider=job.provider)


def _told(call: Invocation, tally: Tally) -> Exit:
    call.out.rows(tally.rows, ("job_id", "result", "error"))
    return tally.exit
