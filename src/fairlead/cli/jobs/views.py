"""Jobs on the command line: how they are named and shown."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from fairlead.cli.kit.changes import parse_id
from fairlead.cli.kit.output import Record, fields_of
from fairlead.errors import NotFoundError

if TYPE_CHECKING:
    from fairlead.assembly.runtime import Runtime
    from fairlead.engine.ports import JobView

JobId = Annotated[str, typer.Argument(metavar="ID", help="Id of a job.")]


async def read_job(runtime: Runtime, job_id: str) -> JobView:
    """Return the job of this id.

    Raises:
        NotFoundError: There is none.
    """
    job = await runtime.jobs.get(parse_id(job_id, "job"))
    if job is None:
        raise no_job(job_id)
    return job


def no_job(job_id: str) -> NotFoundError:
    """Return the error for an id without a job."""
    return NotFoundError(
        f"there is no job {job_id}", hint="it may have been pruned; see `fairlead jobs list`"
    )


def job_record(job: JobView) -> Record:
    """Return a job as a JSON record."""
    return {
        **fields_of(job, "job_id kind queue tenant=tenant_id provider"),
        "group": job.group_key or None,
        **fields_of(
            job,
            "tags state=label priority attempt crash_count created_at run_at finished_at expires_at"
            " unique_key args failures result",
        ),
    }
