"""The error of a job that is waited for."""

from __future__ import annotations

from fairlead.errors._base import FairleadError


class JobNotFinishedError(FairleadError):
    """The job has not ended yet, so it has no result. A handler that lets this pass runs again later."""

    code = "job_not_finished"
    retryable = True
    http_status = 409
    category = "transient_server"
    default_hint = "ask again later, or give your job more time"
