"""Jobs between Python and their rows: columns of arrays in, values of the port out."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from fairlead.adapters.postgres.driver import Row
from fairlead.adapters.postgres.jsonb import decoded, encoded, tamed
from fairlead.engine.ports import Completed, Discarded, FailureRecord, Job, JobView, NewJob, Rescheduled
from fairlead.errors import InvalidInputError
from fairlead.policy.jobs.job import LONGEST_DELAY_S
from fairlead.policy.jobs.payload import encode_args
from fairlead.policy.text.safe import safe_text

ARGS, STREAKS = 10, 11
"""The positions of args and streaks among the columns of a claimed job."""
RUN_JOB_FIELDS = "job_id kind tenant_id queue priority delay_s unique_key"
"""The fields that a schedule sets in its jobs."""
MAX_CODE_BYTES = 200
MAX_DETAILS_BYTES = 4 * 1024


def new_job_columns(jobs: Sequence[NewJob]) -> dict[str, list[Any]]:
    """Return the parameters of job_enqueue; raise InvalidInputError for args that cannot be stored."""
    return {
        "job_ids": [job.job_id for job in jobs],
        "kinds": [job.kind for job in jobs],
        "tenant_ids": [job.tenant_id for job in jobs],
        "queues": [job.queue for job in jobs],
        "providers": [job.provider for job in jobs],
        "group_keys": [job.group_key for job in jobs],
        "priorities": [job.priority for job in jobs],
        "delays_s": [job.delay_s for job in jobs],
        "args": [job.args_json or args_text(job.args, job.tenant_id) for job in jobs],
        "unique_keys": [job.unique_key for job in jobs],
        "unique_for_s": [job.unique_for_s for job in jobs],
        "unique_while": [job.unique_while for job in jobs],
        "expires_in_s": [job.expires_in_s for job in jobs],
        "tags": [encoded(job.tags) if job.tags else None for job in jobs],
        "replay_of": [job.replay_of for job in jobs],
    }


def plain_job_columns(jobs: Sequence[NewJob]) -> dict[str, list[Any]]:
    """Return the parameters of job_enqueue_plain."""
    columns = new_job_columns(jobs)
    for name in ("unique_keys", "unique_for_s", "unique_while"):
        del columns[name]
    lanes: dict[tuple[object, ...], UUID] = {}
    columns["lane_ids"] = lane_ids = []
    for job in jobs:
        key = (job.tenant_id, job.group_key, job.kind, job.queue, job.provider, job.priority)
        lane_id = lanes.get(key)
        if lane_id is None:
            lanes[key] = lane_id = lane_id_of(job)
        lane_ids.append(lane_id)
    return columns


def one_job_values(job: NewJob) -> dict[str, Any]:
    """Return the parameters of job_enqueue_one."""
    names = "job_id kind tenant_id queue provider group_key priority delay_s expires_in_s tags replay_of"
    return job_values(job, names) | {"lane_id": lane_id_of(job)}


def job_values(job: NewJob, names: str) -> dict[str, Any]:
    """Return the fields *names* and the args of *job* as parameters of a statement."""
    values = {name: getattr(job, name) for name in names.split()}
    return values | {"args": job.args_json or args_text(job.args, job.tenant_id)}


def lane_id_of(job: NewJob) -> UUID:
    """Return the lane of *job*, as the SQL function of this name does."""
    names = f"{job.queue}/{job.kind}/{job.provider or ''}/{job.priority}/{len(job.tenant_id)}/"
    digest = hashlib.sha256(f"{names}{job.tenant_id}{job.group_key}".encode()).digest()
    return UUID(bytes=digest[:16])


def args_text(args: Mapping[str, Any], tenant: str) -> str:
    """Return args as JSON; raise InvalidInputError with the path of a value that cannot be stored."""
    try:
        return encoded(args)
    except ValueError as error:
        encode_args(args, tenant=tenant)  # raises with the exact reason
        raise InvalidInputError(f"args: {error}", tenant=tenant) from None


def failure_text(failure: FailureRecord) -> str:
    """Return one failed attempt as JSON. It never fails, and only the details may be truncated."""
    fields = {
        "category": failure.category,
        "code": safe_text(failure.code, MAX_CODE_BYTES, mask_known=False) if failure.code else "unknown",
        "reason": safe_text(failure.reason),
        "ran_s": failure.ran_s,
        "attempt": failure.attempt,
        "next_retry_s": failure.next_retry_s,
    }
    details = tamed(dict(failure.details), MAX_DETAILS_BYTES)
    return f'{tamed(fields).removesuffix("}")},"details":{details}}}'


def results_text(outcomes: Sequence[Completed]) -> str | None:
    """Return the results of *outcomes* as a JSON object by lease id; None without results."""
    results = [f'"{o.lease_id}":{tamed(o.result)}' for o in outcomes if o.result is not None]
    return "{" + ",".join(results) + "}" if results else None


def cancel_text(reason: str) -> str:
    """Return the result of a cancelled job as JSON."""
    return tamed({"cancelled": safe_text(reason)})


def rescheduled_columns(outcomes: Sequence[Rescheduled]) -> dict[str, list[Any]]:
    """Return the parameters of job_reschedule except ids and leases."""
    return {
        "delays_s": [None if o.delay_s is None else min(o.delay_s, LONGEST_DELAY_S) for o in outcomes],
        "failures": [None if o.failure is None else failure_text(o.failure) for o in outcomes],
        "streaks": [tamed(dict(o.streaks)) if o.failure or o.streaks else None for o in outcomes],
        "call_waited_s": [o.call_waited_s for o in outcomes],
        "args": [None if o.args is None else encoded(o.args) for o in outcomes],
    }


def discarded_columns(outcomes: Sequence[Discarded]) -> dict[str, list[Any]]:
    """Return the parameters of job_discard except ids and leases."""
    return {
        "dead_letter_ids": [outcome.dead_letter_id for outcome in outcomes],
        "failures": [failure_text(outcome.failure) for outcome in outcomes],
        "connection_ids": [outcome.connection_id for outcome in outcomes],
        "token_expires_ats": [outcome.token_expires_at for outcome in outcomes],
        "actions_in_s": [outcome.action_in_s for outcome in outcomes],
        "args": [None if outcome.args is None else encoded(outcome.args) for outcome in outcomes],
    }


def claimed_job(row: Row) -> Job:
    """Return the job in a row of a claim, which has the job's fields in order."""
    columns = [*row.values()]
    columns[ARGS] = decoded(columns[ARGS])
    columns[STREAKS] = {} if columns[STREAKS] == "{}" else decoded(columns[STREAKS])
    return Job(*columns)


def job_view(row: Row) -> JobView:
    """Return the job in a row of job_get or job_search."""
    return JobView(**with_values(row, "args", "failures", "result"))


def with_values(row: Row, *columns: str) -> dict[str, Any]:
    """Return *row* as a dict with its jsonb *columns* decoded."""
    fields = dict(row.items())
    return fields | {column: decoded(fields[column]) for column in columns}
