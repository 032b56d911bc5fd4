"""``fairlead jobs``: list and show jobs, run them now, cancel or pause them. Spec: Q16."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from fairlead.cli.jobs.explain import explain
from fairlead.cli.jobs.pauses import pause, pauses, resume
from fairlead.cli.jobs.views import JobId, job_record, read_job
from fairlead.cli.kit.changes import (
    AuditEntry,
    Change,
    ChangeOptions,
    ConfirmOptions,
    Done,
    Plan,
    Unchanged,
    change_each,
    parse_id,
)
from fairlead.cli.kit.exits import Exit
from fairlead.cli.kit.invocation import Invocation, Limit, command, group
from fairlead.errors import InvalidInputError
from fairlead.policy.jobs.states import JobState

if TYPE_CHECKING:
    from fairlead.assembly.runtime import Runtime
    from fairlead.engine.ports import JobView

app = group("List jobs, run them now, cancel or pause them.")

COLUMNS = ("job_id", "kind", "tenant", "provider", "group", "state", "priority", "attempt", "run_at")

JobIds = Annotated[
    list[str] | None, typer.Argument(metavar="[ID]...", help="Ids of jobs.", show_default=False)
]


@dataclass(frozen=True, slots=True)
class JobFilterOptions:
    """The options that choose jobs."""

    kind: Annotated[str | None, typer.Option("--kind", help="Only this kind.")] = None
    tenant: Annotated[str | None, typer.Option("--tenant", "-t", help="Only this tenant's.")] = None
    queue: Annotated[str | None, typer.Option("--queue", help="Only in this queue.")] = None

    async def search(self, runtime: Runtime, state: str | None, limit: int) -> list[JobView]:
        """Return at most *limit* jobs that match, the newest first."""
        return await runtime.jobs.search(
            state=state, kind=self.kind, tenant_id=self.tenant, queue=self.queue, limit=limit
        )


command(app, "explain")(explain)


@command(app, "list")
def list_jobs(
    call: Invocation,
    *,
    filter_: JobFilterOptions,
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
    states = [*JobState, "scheduled", "retryable"]
    if state is not None and state not in states:
        raise InvalidInputError(f"{state!r} is no state of a job", hint=f"one of: {', '.join(states)}")
    jobs = call.with_runtime(lambda runtime: filter_.search(runtime, state, limit))
    call.out.rows(map(job_record, jobs), COLUMNS, none="no such jobs")
    return None


@command(app, "show")
def show(call: Invocation, job_id: JobId) -> Exit | None:
    """Show one job: its arguments, its state, and what happened to it, attempt by attempt."""
    parse_id(job_id, "job")  # before the database is opened
    call.out.record(job_record(call.with_runtime(lambda runtime: read_job(runtime, job_id))))
    return None


@command(app, "retry")
def retry(
    call: Invocation,
    *,
    filter_: JobFilterOptions,
    job_ids: JobIds = None,
    state: Annotated[
        str | None, typer.Option("--state", help="scheduled or retryable. Default both.")
    ] = None,
    limit: Limit = 1000,
    options: ChangeOptions,
) -> Exit | None:
    """Run waiting jobs now instead of at their time: these, or all that match the filter, at most --limit.

    A discarded job does not wait: see `fairlead dlq redrive`.
    """
    selection = _Selection(job_ids, filter_, state, ("retryable", "scheduled"), limit)

    async def find(runtime: Runtime, job_id: str) -> Plan:
        job = await read_job(runtime, job_id)
        if job.state != "available":
            hint = "for a discarded one: `fairlead dlq redrive`" if job.state == "discarded" else "leave it"
            raise InvalidInputError(f"the job is {job.state}, not waiting", tenant=job.tenant_id, hint=hint)

        async def act() -> object:
            is_due = await runtime.jobs.retry_now(job.job_id, tenant_id=job.tenant_id)
            return None if is_due else Unchanged("started meanwhile")

        return Change("due now", act, audit=_audit("job.retried", job), planned="would be retried")

    question = None if job_ids else "Run {count} job(s) now?"
    return change_each(
        call, selection.choose, find, options, noun="job_id", question=question, none="no such jobs"
    )


@command(app, "cancel")
def cancel(
    call: Invocation,
    *,
    filter_: JobFilterOptions,
    job_ids: JobIds = None,
    reason: Annotated[
        str, typer.Option("--reason", help="Your reason; kept with the job.")
    ] = "cancelled by hand",
    state: Annotated[
        str | None,
        typer.Option(
            "--state",
            help="available (all that wait), scheduled, retryable or running. Default available.",
        ),
    ] = None,
    limit: Limit = 1000,
    options: ConfirmOptions,
) -> Exit | None:
    """Cancel these jobs, or all that match the filter, at most --limit.

    A waiting job never runs. A running one is asked to stop with its worker's next heartbeat, and counts as
    running until it has stopped. A job that starts or ends after the filter chose it is not cancelled.
    """
    states = ("available", "scheduled", "retryable", "running")
    selection = _Selection(job_ids, filter_, state, states, limit, default=("available",))
    only_in = None if job_ids else "running" if state == "running" else "available"

    async def find(runtime: Runtime, job_id: str) -> Plan:
        job = await read_job(runtime, job_id)
        if only_in is None and job.state not in {"available", "running"}:
            raise InvalidInputError(f"the job is {job.state} already", tenant=job.tenant_id, hint="leave it")

        async def act() -> object:
            became = await runtime.jobs.cancel(job.job_id, reason, tenant_id=job.tenant_id, state=only_in)
            if became is None:
                return Unchanged("unchanged: it started or ended meanwhile")
            return Done(None if became == "cancelled" else "asked to stop: it counts as running until then")

        return Change("cancelled", act, audit=_audit("job.cancelled", job, reason=reason))

    return change_each(
        call,
        selection.choose,
        find,
        options,
        noun="job_id",
        question="Cancel {count} job(s)?",
        none="no such jobs",
    )


command(app, "pause")(pause)
command(app, "resume")(resume)
command(app, "pauses")(pauses)


@dataclass(frozen=True, slots=True)
class _Selection:
    """Jobs named by their ids, or chosen by a filter; exactly one of the two.

    Attributes:
        states: The states that may be chosen.
        default: The states if none is chosen. Empty: all of *states*.
    """

    job_ids: list[str] | None
    filter_: JobFilterOptions
    state: str | None
    states: Sequence[str]
    limit: int
    default: Sequence[str] = ()

    def __post_init__(self) -> None:
        if self.state is not None and self.state not in self.states:
            hint = f"one of: {', '.join(self.states)}"
            raise InvalidInputError(f"jobs that are {self.state!r} cannot be chosen here", hint=hint)
        has_filter = self.state is not None or self.filter_ != JobFilterOptions()
        if bool(self.job_ids) == has_filter:
            hint = "a filter is --state, --kind, --tenant or --queue"
            raise InvalidInputError("name jobs by their ids, or choose them by a filter", hint=hint)

    async def choose(self, runtime: Runtime) -> list[str]:
        """Return the ids, at most *limit*."""
        if self.job_ids:
            return self.job_ids
        ids: list[str] = []
        for state in [self.state] if self.state else self.default or self.states:
            jobs = await self.filter_.search(runtime, state, self.limit - len(ids))
            ids += [str(job.job_id) for job in jobs]
            if len(ids) >= self.limit:
                break
        return ids


def _audit(action: str, job: JobView, **details: str) -> AuditEntry:
    details = {"job_id": str(job.job_id), "kind": job.kind, **details}
    return AuditEntry(action, details, tenant=job.tenant_id, provider=job.provider)
