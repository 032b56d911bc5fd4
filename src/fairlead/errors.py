"""All errors of fairlead, as one tree with stable codes.

Each class carries the facts that a handler decides on, so that no message needs parsing.
Over 400 lines because the whole tree is read in one place.

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
            JobNotFinishedError
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
"""

from __future__ import annotations

from typing import Any, ClassVar

from fairlead._core.known_secrets import KNOWN_SECRETS


class FairleadError(Exception):
    """Base of all errors that fairlead raises.

    ``str(error)`` reads ``what happened (tenant=..., provider=...) hint: what to do``. It never holds a secret.

    Attributes:
        code: The stable code of the error.
        sent: Whether a request may have reached the provider.
        retryable: Whether the same request may succeed later by itself. Never with a permanent category.
        retry_after_s: Seconds until a retry makes sense; None if waiting does not help.
        http_status: The status that a web service returns to its own client.
        category: The category of the failure; None if no retry policy applies.
        reason: A stable code for handlers to decide by, if there is one.
    """

    code: ClassVar[str] = "internal_error"
    sent: ClassVar[bool] = False
    retryable: bool = False
    http_status: ClassVar[int] = 500
    default_hint: ClassVar[str] = "report this with the lines of the log around it"
    category: str | None = None

    def __init__(
        self,
        message: str,
        *,
        tenant: str | None = None,
        provider: str | None = None,
        hint: str | None = None,
        retry_after_s: float | None = None,
        category: str | None = None,
        reason: str | None = None,
    ) -> None:
        self.message = KNOWN_SECRETS.masked(message)  # it may repeat text of a provider
        super().__init__(self.message)
        self.tenant = tenant
        self.provider = provider
        self.hint = hint or type(self).default_hint
        self.retry_after_s = retry_after_s
        self.reason = reason  # a code that handlers decide by
        if category is not None:
            self.category = category
            self.retryable = self.retryable and category.startswith("transient")

    @property
    def subject(self) -> str:
        """The message with tenant and provider, without the hint."""
        fields = {"tenant": self.tenant, "provider": self.provider}
        subject = ", ".join(f"{name}={value!r}" for name, value in fields.items() if value)
        return f"{self.message} ({subject})" if subject else self.message

    def __str__(self) -> str:
        return f"{self.subject} hint: {self.hint}"


# ---- nothing was sent -------------------------------------------------------------------------


class RefusedError(FairleadError):
    """Nothing was sent. Retry after ``retry_after_s`` seconds; None means that waiting does not help."""

    code = "refused"
    retryable = True
    http_status = 503
    default_hint = "ask again after retry_after_s"


class RateLimitedError(RefusedError):
    """fairlead's own limit for a token endpoint refused the request before it was sent."""

    code = "rate_limited"
    http_status = 429
    category = "transient_rate_limit"


class RefreshInProgressError(RefusedError):
    """A refresh of this connection is in progress, and its result did not arrive in time."""

    code = "refresh_in_progress"
    category = "transient_network"
    default_hint = "ask again in a second; this is no fault of the credential"


class EndpointUnavailableError(RefusedError):
    """The breaker of this token endpoint is open after an outage; refreshes wait and none is lost."""

    code = "endpoint_unavailable"
    category = "transient_server"
    default_hint = "fairlead tries again by itself; `fairlead providers show` shows since when"


class LimitExceededError(RefusedError):
    """A limit of the provider or of this connection does not admit the call now."""

    code = "limit_exceeded"
    http_status = 429
    category = "transient_rate_limit"
    default_hint = "ask again after retry_after_s"


class BulkLimitReachedError(RefusedError):
    """This account already runs as many bulk operations as the provider allows.

    A job that lets this propagate is retried when one of them has ended.
    """

    code = "bulk_limit_reached"
    http_status = 429
    category = "transient_rate_limit"
    default_hint = "ask again after retry_after_s, or once the running one is done"


class BulkStillRunningError(RefusedError):
    """The bulk operation is still running at the provider.

    A job that lets this propagate is rescheduled and resumes it.
    """

    code = "bulk_still_running"
    http_status = 409
    category = "transient_server"
    default_hint = (
        "ask again after retry_after_s with operation.token; a job that lets it pass does so by itself"
    )


class LimiterUnavailableError(RefusedError):
    """Redis is unavailable, so limits cannot be shared with the other processes."""

    code = "limiter_unavailable"
    category = "transient_network"
    default_hint = "check REDIS_URL with `fairlead doctor`; degraded_mode says what calls do meanwhile"


class EndpointPausedError(RefusedError):
    """The provider refused our client id or secret, so all refreshes of this app are paused."""

    code = "endpoint_paused"
    category = "permanent_config"
    default_hint = "correct client_id and client_secret in the settings, then `fairlead providers resume`"


class NotSentError(RefusedError):
    """No attempt was sent. ``reason`` gives the cause, and the code of a dead letter ends with it."""

    code = "not_sent"
    category = "transient_network"
    default_hint = "check that this host can reach the provider's token endpoint"


class DeadlineExceededError(RefusedError):
    """The time that remains until the deadline of a call is too short to start it."""

    code = "deadline_exceeded"
    category = "transient_network"
    default_hint = "give the call more time, or begin it earlier in its job"


class MasterKeyElsewhereError(RefusedError):
    """This process lacks a master key. Another process has it and can do the work."""

    code = "master_key_elsewhere"
    category = "transient_network"
    default_hint = (
        "restart this process with every master key that is in use; `fairlead vault status` lists them"
    )


class JobNotFinishedError(RefusedError):
    """The job has not ended yet, so it has no result."""

    code = "job_not_finished"
    http_status = 409
    category = "transient_server"
    default_hint = "ask again, or give it more time"


class ReauthRequiredError(RefusedError):
    """The provider no longer accepts the grant, and only the customer can give a new one."""

    code = "reauth_required"
    retryable = False
    http_status = 401
    category = "permanent_auth"
    default_hint = "send the customer the link of `fairlead connections reauthorize`"
    account: str | None = None
    """The tenant's account at the provider; None if unknown."""


class NoRefreshTokenError(ReauthRequiredError):
    """The provider issued no refresh token, so the access token cannot be renewed."""

    code = "no_refresh_token"


class AccountMismatchError(ReauthRequiredError):
    """The provider returned the token of another account. It is stored sealed and not used."""

    code = "account_mismatch"


# ---- a request was sent ---------------------------------------------------------------------------


class FailedError(FairleadError):
    """A request was sent and did not succeed."""

    code = "failed"
    sent = True
    idempotent: bool = True
    http_status = 502
    default_hint = "see `fairlead connections show`"


class TransientFailureError(FailedError):
    """The provider did not process the request, or is failing for the moment."""

    code = "transient_failure"
    retryable = True
    http_status = 503
    category = "transient_server"
    default_hint = "fairlead tries again by itself"


class IssuerClockError(TransientFailureError):
    """The provider refused a signed assertion, and its clock differs from the database's.

    Either clock may be wrong. The error is permanent if they differ by more than an hour. The customer need
    not consent again.
    """

    code = "issuer_clock"
    category = "transient_network"
    default_hint = "run `fairlead doctor` and have NTP set the clock that is wrong; the grant is still valid"


class OutcomeUnknownError(FailedError):
    """A refresh was sent and no response arrived; recovery follows the provider's replay policy."""

    code = "outcome_unknown"
    retryable = True
    http_status = 503
    category = "transient_network"
    default_hint = (
        "fairlead resolves this by the provider's replay policy; the current token is served meanwhile"
    )


class RequestRejectedError(FailedError):
    """The provider refused the request because of its content, scope or client."""

    code = "request_rejected"
    category = "permanent_request"
    default_hint = "see the code and description in `fairlead dlq show`"


class CallFailedError(FailedError):
    """A call through a connection was sent, and its last attempt failed.

    Attributes:
        verdict: How the response was classified, and by which rule.
        response, raw_response: The response, if there was one.
        attempts: How often the request was sent.
        may_have_acted: Whether the provider may have executed it.
        idempotent: Whether a repetition is harmless; if not, the job is not retried.
        reason: A stable word.
    """

    code = "call_failed"
    default_hint = (
        "`fairlead config test-response` shows how an answer is judged; patterns of a connection change it"
    )
    account: str | None = None
    """The tenant's account at the provider; None if unknown."""

    def __init__(
        self,
        message: str,
        *,
        verdict: Any = None,
        response: Any = None,
        raw_response: Any = None,
        attempts: int = 0,
        may_have_acted: bool = True,
        **rest: Any,
    ) -> None:
        super().__init__(message, **rest)
        self.verdict = verdict
        self.response = response
        self.raw_response = raw_response
        self.attempts = attempts
        self.may_have_acted = may_have_acted

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle without the response, which may repeat secrets from the request."""
        return type(self), self.args, {**vars(self), "response": None, "raw_response": None}


class ResponseDecodingError(CallFailedError):
    """A call succeeded, but its response cannot be decoded, so the call is not repeated.

    ``reason`` is ``not_json``, ``not_xml`` or ``line_too_long``.
    """

    code = "response_undecodable"
    category = "permanent_request"
    default_hint = "read .text and .headers of the response; the provider may have executed the call"


class SlotLostError(FailedError):
    """A call was aborted because its slot was not renewed in time and may be in use by another call."""

    code = "slot_lost"
    retryable = True
    http_status = 503
    category = "transient_network"
    default_hint = "fairlead tries again by itself; a long call needs an event loop that nothing blocks"


# ---- a wrong call -----------------------------------------------------------------------------


class UsageError(FairleadError):
    """The call itself is wrong."""

    code = "usage_error"
    http_status = 400


class InvalidInputError(UsageError):
    """A name, argument or file is invalid. Nothing was changed."""

    code = "invalid_input"
    http_status = 422
    category = "permanent_request"
    default_hint = "correct what the message names, and try again"


class NotFoundError(UsageError):
    """The connection, job or entry does not exist."""

    code = "not_found"
    http_status = 404
    default_hint = "list what there is with `fairlead connections list`"


class ProviderNotFoundError(UsageError):
    """No provider profile has this name."""

    code = "provider_not_found"
    http_status = 404
    category = "permanent_config"
    default_hint = "see `fairlead providers list`, or add a profile file to the providers folder"


class JobFailedError(UsageError):
    """The job was cancelled or discarded, so it has no result."""

    code = "job_failed"
    http_status = 424
    category = "permanent_request"
    default_hint = "see `fairlead jobs show` and `fairlead dlq list`"


class SupersededError(UsageError):
    """A process that no longer owns the row tried to write it. The newer state stays."""

    code = "superseded"
    http_status = 409
    default_hint = "nothing to do: the newer owner's result counts"


# ---- a wrong set-up ---------------------------------------------------------------------------


class SetupError(FairleadError):
    """fairlead cannot work as it is set up."""

    code = "setup_error"


class InvalidConfigError(SetupError):
    """The settings are invalid. Nothing was started."""

    code = "invalid_config"
    category = "permanent_config"
    default_hint = "correct the settings named above; `fairlead doctor` checks them"


class MasterKeyMissingError(SetupError):
    """The process has no master key, or not the one that sealed this record. Data is untouched."""

    code = "master_key_missing"
    category = "permanent_config"
    default_hint = "set FAIRLEAD_MASTER_KEY or FAIRLEAD_MASTER_KEY_FILE to the key that sealed the data"


class MasterKeyMismatchError(SetupError):
    """The master key does not decrypt the data. Data is untouched."""

    code = "master_key_mismatch"
    category = "permanent_config"
    default_hint = "set FAIRLEAD_MASTER_KEY to the key that sealed the data; `fairlead vault verify` checks"


class CredentialUnreadableError(SetupError):
    """A sealed record was altered, or moved from another row. Data is untouched."""

    code = "credential_unreadable"
    category = "permanent_config"
    default_hint = "restore the row from a backup or reconnect this one account"


class DependencyUnavailableError(SetupError):
    """PostgreSQL, Redis or an optional package is unavailable."""

    code = "dependency_unavailable"
    retryable = True
    http_status = 503
    category = "transient_network"
    default_hint = "run `fairlead doctor`"


class MigrationRequiredError(SetupError):
    """The database schema is not the one that this version requires."""

    code = "migration_required"
    http_status = 503
    default_hint = "run `fairlead migrate`"


def all_errors() -> list[type[FairleadError]]:
    """Return the error classes of fairlead, parents first. docs/reference/errors.md is generated from them."""
    classes: list[type[FairleadError]] = [FairleadError]
    for cls in classes:  # the list grows during the loop
        classes.extend(sub for sub in cls.__subclasses__() if sub.__module__.startswith("fairlead."))
    return classes
