"""The stored form of a run's results and failures."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from uuid import UUID

from fairlead.engine.ports import FailureRecord, Job, Json
from fairlead.policy.failures.category import Category, Failure
from fairlead.policy.reasons.job_reasons import UNCLASSIFIED
from fairlead.policy.text.safe import safe_json, safe_text

MAX_RESULT_BYTES = 64 * 1024
"""The largest result of a job that is stored, as JSON."""


def failure_record(
    job: Job,
    failure: Failure,
    ran_s: float,
    *,
    next_retry_s: float | None = None,
    details: dict[str, Json] | None = None,
) -> FailureRecord:
    """Return the entry for one failed attempt in the history of *job*.

    Args:
        ran_s: How long the attempt took.
        next_retry_s: Seconds until the next attempt; None: there is none.
        details: More fields of the entry.
    """
    return FailureRecord(
        category=failure.category.value,
        code=failure.code,
        reason=safe_text(failure.reason),
        ran_s=round(ran_s, 3),
        attempt=job.attempt,
        next_retry_s=next_retry_s,
        details={
            **(details or {}),
            **({UNCLASSIFIED.code: True} if failure.unclassified else {}),
            **({"at": failure.at} if failure.at else {}),
            **({"traceback": failure.traceback} if failure.traceback else {}),
        },
    )


def connection_id_in_args(job: Job) -> UUID | None:
    """Return the id of the connection in the args of *job*, or None."""
    with suppress(ValueError, TypeError, AttributeError):
        return UUID(job.args["connection_id"]) if "connection_id" in job.args else None
    return None


def to_storable(result: object) -> Json:
    """Return *result* as JSON that the database accepts; other values are marked as ``unstorable``."""
    return None if result is None else json.loads(safe_json(result, MAX_RESULT_BYTES, marked=True))


def unclassified_failure(error: BaseException) -> Failure:
    """Return the failure for an error that no rule classifies. Never raise, even if *error*'s methods do."""
    reason = type(error).__name__
    with suppress(Exception):
        reason = safe_text(error)
    is_cancelled = issubclass(type(error), asyncio.CancelledError)  # the cancellation of something it awaited
    category = Category.TRANSIENT_NETWORK if is_cancelled else Category.HANDLER_ERROR
    return Failure(category, UNCLASSIFIED.code, reason, unclassified=True)
