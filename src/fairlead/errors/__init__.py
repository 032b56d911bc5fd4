"""All errors of fairlead, as one tree with stable codes.

Each class carries the facts that a handler decides on, so that no message needs parsing.

    FairleadError
        RefusedError: nothing was sent, so retrying later is free
            RateLimitedError
            RefreshInProgressError
            EndpointUnavailableError
            LimitExceededError
            BulkLimitReachedError
            BulkStillRunningError
            LimiterUnavailableError
            EndpointPausedError
            NotSentError
            DeadlineExceededError
            MasterKeyElsewhereError
            ReauthRequiredError
                NoRefreshTokenError
                AccountMismatchError
        FailedError: a request was sent and may have had its effect
            TransientFailureError
                IssuerClockError
            OutcomeUnknownError
            RequestRejectedError
            CallFailedError
                ResponseDecodingError
            SlotLostError
        UsageError: a wrong call
            InvalidInputError
            NotFoundError
            ProviderNotFoundError
            JobFailedError
            SupersededError
        SetupError: a wrong set-up
            InvalidConfigError
            MasterKeyMissingError
            MasterKeyMismatchError
            CredentialUnreadableError
            DependencyUnavailableError
            MigrationRequiredError
        JobNotFinishedError: a job has no result yet
"""

from __future__ import annotations

from fairlead.errors._base import (
    FairleadError,
)
from fairlead.errors._failed import (
    CallFailedError,
    FailedError,
    IssuerClockError,
    OutcomeUnknownError,
    RequestRejectedError,
    ResponseDecodingError,
    SlotLostError,
    TransientFailureError,
)
from fairlead.errors._jobs import JobNotFinishedError
from fairlead.errors._refused import (
    AccountMismatchError,
    BulkLimitReachedError,
    BulkStillRunningError,
    DeadlineExceededError,
    EndpointPausedError,
    EndpointUnavailableError,
    LimiterUnavailableError,
    LimitExceededError,
    MasterKeyElsewhereError,
    NoRefreshTokenError,
    NotSentError,
    RateLimitedError,
    ReauthRequiredError,
    RefreshInProgressError,
    RefusedError,
)
from fairlead.errors._setup import (
    CredentialUnreadableError,
    DependencyUnavailableError,
    InvalidConfigError,
    MasterKeyMismatchError,
    MasterKeyMissingError,
    MigrationRequiredError,
    SetupError,
)
from fairlead.errors._usage import (
    InvalidInputError,
    JobFailedError,
    NotFoundError,
    ProviderNotFoundError,
    SupersededError,
    UsageError,
)

__all__ = [
    "AccountMismatchError",
    "BulkLimitReachedError",
    "BulkStillRunningError",
    "CallFailedError",
    "CredentialUnreadableError",
    "DeadlineExceededError",
    "DependencyUnavailableError",
    "EndpointPausedError",
    "EndpointUnavailableError",
    "FailedError",
    "FairleadError",
    "InvalidConfigError",
    "InvalidInputError",
    "IssuerClockError",
    "JobFailedError",
    "JobNotFinishedError",
    "LimitExceededError",
    "LimiterUnavailableError",
    "MasterKeyElsewhereError",
    "MasterKeyMismatchError",
    "MasterKeyMissingError",
    "MigrationRequiredError",
    "NoRefreshTokenError",
    "NotFoundError",
    "NotSentError",
    "OutcomeUnknownError",
    "ProviderNotFoundError",
    "RateLimitedError",
    "ReauthRequiredError",
    "RefreshInProgressError",
    "RefusedError",
    "RequestRejectedError",
    "ResponseDecodingError",
    "SetupError",
    "SlotLostError",
    "SupersededError",
    "TransientFailureError",
    "UsageError",
    "all_errors",
]


def all_errors() -> list[type[FairleadError]]:
    """Return the error classes of fairlead, parents first. docs/reference/errors.md is generated from them."""
    classes: list[type[FairleadError]] = [FairleadError]
    for cls in classes:  # the list grows during the loop
        classes.extend(sub for sub in cls.__subclasses__() if sub.__module__.startswith("fairlead."))
    return classes


for _error in all_errors():  # tracebacks, pickles and docs name the public module
    _error.__module__ = __name__
del _error
