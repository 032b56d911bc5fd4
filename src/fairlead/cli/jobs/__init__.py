"""``fairlead jobs``: look at jobs, hurry, cancel or hold them back (Q16)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from fairlead.cli.jobs.explain import explain
from fairlead.cli.jobs.pauses import pause, pauses, resume
from fairlead.cli.kit.bulk_actions import Tally, on_each, parse_id, record_act
from fairlead.cli.kit.exits import Exit
from fairlead.cli.kit.invocation import DryRun, Invocation, Limit, Yes, command, group
from fairlead.cli.kit.output import Record
from fairlead.errors import InvalidInputError, NotFoundError

if TYPE_CHECKING:
    from fairlead.app import Fairlead
    from fairlead.assembly.runtime import Runtime
    from fairlead.engine.ports import JobView

app = group("Look at jobs, hurry, cancel or hold them back.")

COLUMNS = ("job_id", "kind", "tenant", "provider", "group", "state", "priority", "attempt", "run_at")

Ids = Annotated[list[str] | None, typer.Argument(metavar="[ID]...", help="Ids of jobs.", show_default=False)]


@dataclass(frozen=True, slots=True)
class Fitting:
    """The options that choose jobs."""

    kind: Annotated[str | None, typer.Option("--kind", help="Only this kind.")] = None
    tenant: Annotated[str | None, typer.Option("--tenant", "-t", help="Only this tenant's.")] = None
    queue: Annotated[str | None, typer.Option("--queue", help="Only in this queue.")] = None


command(app, "explain")(explain)


@command(app, "list")
def list_jobs(
    call: Invocation,
    fitting: Fitting,
    state: Annotated[
        str | None,
        typer.Option(
            "--state",
            help="available, running, completed, cancelled, discarded; or scheduled, retryable: not due yet.",
        ),
    ] = None,
    limit: Limit = 100,
) -> Exit | None:
    """List jobs, the newest first."""
    _check_state(state)

    async def work(fairlead: Fairlead) -> list[JobView]:
        return await fairlead.runtime.jobs.search(
            state=state, kind=fitting.kind, tenant_id=fitting.tenant, queue=fitting.queue, limit=limit
        )

    call.out.rows(map(as_record, call.with_fairlead(work)), COLUMNS, none="no such jobs")
    return None


@command(app, "show")
def show(
    call: Invocation, job_id: Annotated[str, typer.Argument(metavar="ID", help="Id of a job.")]
) -> Exit | None:
    """Show one job: what it is to do, and what happened to it, attempt by attempt."""
    wanted = parse_id(job_id, "job")

    async def work(fairlead: Fairlead) -> JobView:
        return await _job(fairlead.runtime, str(wanted))

    call.out.record(as_record(call.with_fairlead(work)))
    return None


@command(app, "retry")
def retry(
    call: Invocation,
    fitting: Fitting,
    job_ids: Ids = None,
    state: Annotated[
        str | None,
        typer.Option("--state", help="scheduled or retryable. Default both."),
    ] = None,
    limit: Limit = 1000,
    dry_run: DryRun = False,
    yes: Yes = False,
) -> Exit | None:
    """Have waiting jobs run now instead of at their time: these, or all that fit the filter, at most --limit.

    What died is not waiting: see `fairlead dlq redrive`.
    """

    async def act(runtime: Runtime, job: JobView) -> str:
        if job.state != "available":
            hint = "for a discarded one: `fairlead dlq redrive`" if job.state == "discarded" else "leave it"
            raise InvalidInputError(f"the job is {job.state}, not waiting", tenant=job.tenant_id, hint=hint)
        if dry_run:
            return "would be retried"
        if not await runtime.jobs.retry_now(job.job_id, tenant_id=job.tenant_id):
            return "started meanwhile"
        await _record(call, runtime, "job.retried", job)
        return "due now"

    wanted = _Wanted(job_ids, fitting, state, ("retryable", "scheduled"), limit)
    return _on_jobs(
        call, wanted, act, ask=None if yes or dry_run or job_ids else "Have {count} job(s) run now?"
    )


@command(app, "cancel")
def cancel(
    call: Invocation,
    fitting: Fitting,
    job_ids: Ids = None,
    reason: Annotated[str, typer.Option("--reason", help="Why; kept with the job.")] = "cancelled by hand",
    state: Annotated[
        str | None,
        typer.Option(
            "--state",
            help="available (all that wait), scheduled, retryable or running. Default available.",
        ),
    ] = None,
    limit: Limit = 1000,
    dry_run: DryRun = False,
    yes: Yes = False,
) -> Exit | None:
    """Cancel these jobs, or all that match the filter, at most --limit.

    A waiting job never runs. A running one is asked to stop with its worker's next heartbeat, and counts as
    running until it has stopped. A job that starts or ends after the filter chose it is not cancelled.
    """
    chosen = None if job_ids else "running" if state == "running" else "available"

    async def act(runtime: Runtime, job: JobView) -> str:
        if chosen is None and job.state not in {"available", "running"}:
            raise InvalidInputError(f"the job is {job.state} already", tenant=job.tenant_id, hint="leave it")
        if dry_run:
            return "would be cancelled"
        became = await runtime.jobs.cancel(job.job_id, reason, tenant_id=job.tenant_id, state=chosen)
        if became is None:
            return "unchanged: it started or ended meanwhile"
        await _record(call, runtime, "job.cancelled", job, reason=reason)
        return became if became == "cancelled" else "asked to stop: it counts as running until then"

    known = ("available", "scheduled", "retryable", "running")
    wanted = _Wanted(job_ids, fitting, state, known, limit, default=("available",))
    return _on_jobs(call, wanted, act, ask=None if yes or dry_run else "Cancel {count} job(s)?")


command(app, "pause")(pause)
command(app, "resume")(resume)
command(app, "pauses")(pauses)


def as_record(job: JobView) -> Record:
    """A job as JSON has it."""
    return {
        "job_id": job.job_id,
        "kind": job.kind,
        "queue": job.queue,
        "tenant": job.tenant_id,
        "provider": job.provider,
        "group": job.group_key or None,
        "tags": job.tags,
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


def _check_state(state: str | None) -> None:
    from fairlead.policy.jobs.states import JobState

    known = [*JobState, "scheduled", "retryable"]
    if state is not None and state not in known:
        raise InvalidInputError(f"{state!r} is no state of a job", hint=f"one of: {', '.join(known)}")


# ---- which jobs, and what is done to each --------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Wanted:
    """Jobs by their ids, or those that fit a filter: one of the two must be given."""

    job_ids: list[str] | None
    fitting: Fitting
    state: str | None
    known: Sequence[str]  # states that may be chosen
    limit: int
    default: Sequence[str] = ()  # states if none is chosen; none: all that may be

    def __post_init__(self) -> None:
        if self.state is not None and self.state not in self.known:
            hint = f"one of: {', '.join(self.known)}"
            raise InvalidInputError(f"jobs that are {self.state!r} cannot be chosen here", hint=hint)
        filtered = self.state is not None or self.fitting != Fitting()
        if bool(self.job_ids) == filtered:
            hint = "a filter is --state, --kind, --tenant or --queue"
            raise InvalidInputError("name jobs by their ids, or choose them by a filter", hint=hint)

    async def find(self, runtime: Runtime) -> list[str]:
        """Their ids, at most *limit*."""
        if self.job_ids:
            return self.job_ids
        found: list[str] = []
        for state in [self.state] if self.state else self.default or self.known:
            jobs = await runtime.jobs.search(
                state=state,
                kind=self.fitting.kind,
                tenant_id=self.fitting.tenant,
                queue=self.fitting.queue,
                limit=self.limit - len(found),
            )
            found += [str(job.job_id) for job in jobs]
            if len(found) >= self.limit:
                break
        return found


Act = Callable[["Runtime", "JobView"], Awaitable[str]]


def _on_jobs(call: Invocation, wanted: _Wanted, act: Act, *, ask: str | None) -> Exit:
    """Do *act* to each; a person is asked first, where *ask* says how."""

    async def work(fairlead: Fairlead) -> Tally:
        runtime = fairlead.runtime
        job_ids = await wanted.find(runtime)
        if ask is not None and job_ids:
            call.confirm(ask.format(count=len(job_ids)), yes=False)

        async def one(job_id: str) -> str:
            return await act(runtime, await _job(runtime, job_id))

        return await on_each(job_ids, lambda job_id: {"job_id": job_id}, one)

    tally = call.with_fairlead(work)
    call.out.rows(tally.rows, ("job_id", "result", "error"), none="no such jobs")
    return tally.exit


async def _job(runtime: Runtime, job_id: str) -> JobView:
    job = await runtime.jobs.get(parse_id(job_id, "job"))
    if job is None:
        raise NotFoundError(
            f"there is no job {job_id}", hint="it may have been pruned; see `fairlead jobs list`"
        )
    return job


async def _record(call: Invocation, runtime: Runtime, act: str, job: JobView, **details: str) -> None:
    told = {"job_id": str(job.job_id), "kind": job.kind, **details}
    await record_act(runtime, act, call.actor, told, tenant=job.tenant_id, provider=job.provider)
