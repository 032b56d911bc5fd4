"""All errors of fairlead, as one tree with stable codes.

A handler distinguishes two families: `RefusedError` (nothing was sent; retrying later is free) and `FailedError` (a
request was sent; it may have had its effect). All other errors are a wrong call or a wrong set-up. Each class
carries the facts that a handler decides on, so that no message needs parsing.

Over 400 lines because the whole tree is read in one place.
"""

from __future__ import annotations

from typing import Any, ClassVar

from fairlead._core.known_secrets import KNOWN


class FairleadError(Exception):
    """Base of all errors raised by fairlead.

    ``str(error)`` reads ``what happened (tenant=..., provider=...) hint: the way out``. It never holds
    a secret. ``code`` is stable; ``sent`` tells whether a request may have reached the provider;
    ``http_status`` is what a web service would answer its own caller; ``category`` is the
    category of the failure, or None where no retry policy applies. ``retryable``: asking again may help by
    itself; never where it is raised with a permanent category.
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
        self.message = KNOWN.masked(message)  # it may repeat text of a provider
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
        """What happened, with tenant and provider, and without the hint."""
        named = {"tenant": self.tenant, "provider": self.provider}
        where = ", ".join(f"{name}={value!r}" for name, value in named.items() if value)
        return f"{self.message} ({where})" if where else self.message

    def __str__(self) -> str:
        return f"{self.subject} hint: {self.hint}"


# ---- nothing was sent -------------------------------------------------------------------------


class RefusedError(FairleadError):
    """Nothing was sent; ``retry_after_s`` tells when asking again makes sense (None: not by waiting)."""

    code = "refused"
    retryable = True
    http_status = 503
    default_hint = "ask again after retry_after_s"


class RateLimitedError(RefusedError):
    """A limit of ours (cooldown, endpoint rate) refused the request before it was sent."""

    code = "rate_limited"
    http_status = 429
    category = "transient_rate_limit"


class RefreshInProgressError(RefusedError):
    """A refresh of this connection is under way, and its result did not arrive in time."""

    code = "refresh_in_progress"
    category = "transient_network"
    default_hint = "ask again in a second; this is no fault of the credential"


class EndpointUnavailableError(RefusedError):
    """The breaker of this token endpoint is open after an outage; refreshes wait, nothing is lost."""

    code = "endpoint_unavailable"
    category = "transient_server"
    default_hint = "fairlead tries again by itself; `fairlead providers show` tells since when"


class LimitExceededError(RefusedError):
    """A limit of the provider, or of this connection, leaves no room for the call now."""

    code = "limit_exceeded"
    http_status = 429
    category = "transient_rate_limit"
    default_hint = "ask again after retry_after_s"


class BulkLimitReachedError(RefusedError):
    """As many bulk operations of this shop run as the provider allows; a job that is told so waits, alone."""

    code = "bulk_limit_reached"
    http_status = 429
    category = "transient_rate_limit"
    default_hint = "ask again after retry_after_s, or once the running one is done"


class BulkStillRunningError(RefusedError):
    """A bulk operation runs still at the provider; a job that is told so comes back, and goes on with it."""

    code = "bulk_still_running"
    http_status = 409
    category = "transient_server"
    default_hint = (
        "ask again after retry_after_s with operation.token; a job that lets it pass does so by itself"
    )


class LimiterUnavailableError(RefusedError):
    """Redis does not answer as it should, so limits cannot be shared with the other processes."""

    code = "limiter_unavailable"
    category = "transient_network"
    default_hint = "check REDIS_URL with `fairlead doctor`; degraded_mode says what calls do meanwhile"


class EndpointPausedError(RefusedError):
    """The provider refused our client id or secret, so all refreshes of this app are paused."""

    code = "endpoint_paused"
    category = "permanent_config"
    default_hint = "correct client_id and client_secret in the settings, then `fairlead providers resume`"


class NotSentError(RefusedError):
    """No attempt was sent; ``reason``, which ends the code of a dead letter, says why."""

    code = "not_sent"
    category = "transient_network"
    default_hint = "check that this host can reach the provider's token endpoint"


class DeadlineExceededError(RefusedError):
    """What is left of a call's time is too little to begin with."""

    code = "deadline_exceeded"
    category = "transient_network"
    default_hint = "give the call more time, or begin it earlier in its job"


class MasterKeyElsewhereError(RefusedError):
    """This process lacks a master key that another process holds, which can do the work."""

    code = "master_key_elsewhere"
    category = "transient_network"
    default_hint = (
        "restart this process with every master key that is in use; `fairlead vault status` lists them"
    )


class JobNotFinishedError(RefusedError):
    """A job whose result was asked for has not ended yet."""

    code = "job_not_finished"
    http_status = 409
    category = "transient_server"
    default_hint = "ask again, or give it more time"


class ReauthRequiredError(RefusedError):
    """The grant is gone; only the customer can give a new one."""

    code = "reauth_required"
    retryable = False
    http_status = 401
    category = "permanent_auth"
    default_hint = "send the customer the link of `fairlead connections reauthorize`"
    account: str | None = None
    """Which of the tenant's connections at the provider it is; None: unknown."""


class NoRefreshTokenError(ReauthRequiredError):
    """The provider gave no refresh token, so this token cannot be renewed."""

    code = "no_refresh_token"


class AccountMismatchError(ReauthRequiredError):
    """The provider answered with the token of another account; it is kept sealed, not used."""

    code = "account_mismatch"


# ---- a request left ---------------------------------------------------------------------------


class FailedError(FairleadError):
    """A request left and did not succeed."""

    code = "failed"
    sent = True
    idempotent: bool = True
    http_status = 502
    default_hint = "see `fairlead connections show`"


class TransientFailureError(FailedError):
    """The provider answered that it did not process the request, or failed for a while."""

    code = "transient_failure"
    retryable = True
    http_status = 503
    category = "transient_server"
    default_hint = "fairlead tries again by itself"


class IssuerClockError(TransientFailureError):
    """The provider refused a signed assertion while its clock and the database's differ.

    Either clock may be wrong. The error is permanent if they differ by more than an hour. The customer need
    not consent again.
    """

    code = "issuer_clock"
    category = "transient_network"
    default_hint = "run `fairlead doctor` and have NTP set the clock that is wrong; the grant is still valid"


class OutcomeUnknownError(FailedError):
    """A refresh was sent and its answer never came; recovery follows the provider's replay policy."""

    code = "outcome_unknown"
    retryable = True
    http_status = 503
    category = "transient_network"
    default_hint = (
        "fairlead resolves this by the provider's replay policy; the current token is served meanwhile"
    )


class RequestRejectedError(FailedError):
    """The provider understood and refused: wrong request, scope or client."""

    code = "request_rejected"
    category = "permanent_request"
    default_hint = "see the code and description in `fairlead dlq show`"


class CallFailedError(FailedError):
    """A call through a connection was sent and failed, after all its attempts.

    Attributes:
        verdict: What the response meant, and by which rule.
        answer, reply: The response, if there was one.
        attempts: How often the request was sent.
        may_have_acted: Whether the provider may have executed it.
        idempotent: Whether repeating it is harmless; otherwise its job is not retried.
        reason: A stable word.
    """

    code = "call_failed"
    default_hint = (
        "`fairlead config test-response` shows how an answer is judged; patterns of a connection change it"
    )
    account: str | None = None
    """Which of the tenant's connections at the provider it is; None: unknown."""

    def __init__(
        self,
        message: str,
        *,
        verdict: Any = None,
        answer: Any = None,
        reply: Any = None,
        attempts: int = 0,
        may_have_acted: bool = True,
        **rest: Any,
    ) -> None:
        super().__init__(message, **rest)
        self.verdict = verdict
        self.answer = answer
        self.reply = reply
        self.attempts = attempts
        self.may_have_acted = may_have_acted

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle without the response, in which a provider may repeat secrets that it was sent."""
        return type(self), self.args, {**vars(self), "answer": None, "reply": None}


class ResponseDecodingError(CallFailedError):
    """A call was done, and its answer is not what it was read as: no JSON, no XML, a line too long.

    ``reason`` says which: ``not_json``, ``not_xml``, ``line_too_long``. Nothing sends the call again.
    """

    code = "response_undecodable"
    category = "permanent_request"
    default_hint = "look at .text and .headers of the response; what was asked for may be done"


# ---- a wrong call -----------------------------------------------------------------------------


class UsageError(FairleadError):
    """The call itself cannot be served."""

    code = "usage_error"
    http_status = 400


class InvalidInputError(UsageError):
    """A name, argument or file is not acceptable; nothing was changed."""

    code = "invalid_input"
    http_status = 422
    category = "permanent_request"
    default_hint = "correct what the message names, and try again"


class NotFoundError(UsageError):
    """There is no such connection, job or entry."""

    code = "not_found"
    http_status = 404
    default_hint = "list what there is with `fairlead connections list`"


class ProviderNotFoundError(UsageError):
    """There is no profile of this name."""

    code = "provider_not_found"
    http_status = 404
    category = "permanent_config"
    default_hint = "see `fairlead providers list`, or add a profile file to the providers folder"


class JobFailedError(UsageError):
    """A job whose result was asked for was cancelled or discarded: there is none."""

    code = "job_failed"
    http_status = 424
    category = "permanent_request"
    default_hint = "see `fairlead jobs show` and `fairlead dlq list`"


class SlotLostError(FailedError):
    """A call was ended because its slot was not renewed in time: another call may run in it by now."""

    code = "slot_lost"
    retryable = True
    http_status = 503
    category = "transient_network"
    default_hint = "fairlead tries again by itself; a long call needs an event loop that nothing blocks"


class SupersededError(UsageError):
    """A superseded owner tried to write; the newer state stands."""

    code = "superseded"
    http_status = 409
    default_hint = "nothing to do: the newer owner's result counts"


# ---- a wrong set-up ---------------------------------------------------------------------------


class SetupError(FairleadError):
    """fairlead cannot work as it is set up."""

    code = "setup_error"


class InvalidConfigError(SetupError):
    """The settings cannot be used; nothing was started."""

    code = "invalid_config"
    category = "permanent_config"
    default_hint = "correct the settings named above; `fairlead doctor` checks them"


class MasterKeyMissingError(SetupError):
    """No master key, or not the one that sealed this record. Data is untouched."""

    code = "master_key_missing"
    category = "permanent_config"
    default_hint = "set FAIRLEAD_MASTER_KEY or FAIRLEAD_MASTER_KEY_FILE to the key that sealed the data"


class MasterKeyMismatchError(SetupError):
    """The master key does not open the data. Data is untouched."""

    code = "master_key_mismatch"
    category = "permanent_config"
    default_hint = "set FAIRLEAD_MASTER_KEY to the key that sealed the data; `fairlead vault verify` checks"


class CredentialUnreadableError(SetupError):
    """A sealed record fails its check: altered, or moved from another row. Data is untouched."""

    code = "credential_unreadable"
    category = "permanent_config"
    default_hint = "restore the row from a backup or reconnect this one account"


class DependencyUnavailableError(SetupError):
    """PostgreSQL, Redis or an optional package is not there."""

    code = "dependency_unavailable"
    retryable = True
    http_status = 503
    category = "transient_network"
    default_hint = "run `fairlead doctor`"


class MigrationRequiredError(SetupError):
    """The database schema is not the one this version needs."""

    code = "migration_required"
    http_status = 503
    default_hint = "run `fairlead migrate`"


def all_errors() -> list[type[FairleadError]]:
    """Every error class of ours, parents first: the source of docs/reference/errors.md."""
    found: list[type[FairleadError]] = [FairleadError]
    for cls in found:  # which grows meanwhile
        found.extend(sub for sub in cls.__subclasses__() if sub.__module__.startswith("fairlead."))
    return found
