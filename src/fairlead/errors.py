"""All errors of fairlead, as one tree with stable codes.

A handler distinguishes two families: *Refused* (nothing was sent; retrying later is free) and *Failed* (a
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
    hint: ClassVar[str] = "report this with the lines of the log around it"
    category: str | None = None

    def __init__(
        self,
        what: str,
        *,
        tenant: str | None = None,
        provider: str | None = None,
        hint: str | None = None,
        retry_after_s: float | None = None,
        category: str | None = None,
        reason: str | None = None,
    ) -> None:
        self.what = KNOWN.masked(what)  # it may repeat text of a provider
        super().__init__(self.what)
        self.tenant = tenant
        self.provider = provider
        self.way_out = hint or type(self).hint
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
        return f"{self.what} ({where})" if where else self.what

    def __str__(self) -> str:
        return f"{self.subject} hint: {self.way_out}"


# ---- nothing was sent -------------------------------------------------------------------------


class Refused(FairleadError):
    """Nothing was sent; ``retry_after_s`` tells when asking again makes sense (None: not by waiting)."""

    code = "refused"
    retryable = True
    http_status = 503
    hint = "ask again after retry_after_s"


class RateLimited(Refused):
    """A limit of ours (cooldown, endpoint rate) refused the request before it was sent."""

    code = "rate_limited"
    http_status = 429
    category = "transient_rate_limit"


class RefreshInProgress(Refused):
    """A refresh of this connection is under way, and its result did not arrive in time."""

    code = "refresh_in_progress"
    category = "transient_network"
    hint = "ask again in a second; this is no fault of the credential"


class EndpointUnavailable(Refused):
    """The breaker of this token endpoint is open after an outage; refreshes wait, nothing is lost."""

    code = "endpoint_unavailable"
    category = "transient_server"
    hint = "fairlead tries again by itself; `fairlead providers show` tells since when"


class GateClosed(Refused):
    """A limit of the provider, or of this connection, leaves no room for the call now."""

    code = "gate_closed"
    http_status = 429
    category = "transient_rate_limit"
    hint = "ask again after retry_after_s"


class BulkBusy(Refused):
    """As many bulk operations of this shop run as the provider allows; a job that is told so waits, alone."""

    code = "bulk_busy"
    http_status = 429
    category = "transient_rate_limit"
    hint = "ask again after retry_after_s, or once the running one is done"


class BulkUnfinished(Refused):
    """A bulk operation runs still at the provider; a job that is told so comes back, and goes on with it."""

    code = "bulk_unfinished"
    http_status = 409
    category = "transient_server"
    hint = "ask again after retry_after_s with operation.token; a job that lets it pass does so by itself"


class GateUnavailable(Refused):
    """Redis does not answer as it should, so limits cannot be shared with the other processes."""

    code = "gate_unavailable"
    category = "transient_network"
    hint = "check REDIS_URL with `fairlead doctor`; degraded_mode says what calls do meanwhile"


class EndpointPaused(Refused):
    """The provider refused our client id or secret, so all refreshes of this app are paused."""

    code = "endpoint_paused"
    category = "permanent_config"
    hint = "correct client_id and client_secret in the settings, then `fairlead providers resume`"


class NotSent(Refused):
    """No attempt was sent; ``reason``, which ends the code of a dead letter, says why."""

    code = "not_sent"
    category = "transient_network"
    hint = "check that this host can reach the provider's token endpoint"


class DeadlineTooShort(Refused):
    """What is left of a call's time is too little to begin with."""

    code = "deadline_too_short"
    category = "transient_network"
    hint = "give the call more time, or begin it earlier in its job"


class MasterKeyElsewhereError(Refused):
    """This process lacks a master key that another process holds, which can do the work."""

    code = "master_key_elsewhere"
    category = "transient_network"
    hint = "restart this process with every master key that is in use; `fairlead vault status` lists them"


class JobUnfinished(Refused):
    """A job whose result was asked for has not ended yet."""

    code = "job_unfinished"
    http_status = 409
    category = "transient_server"
    hint = "ask again, or give it more time"


class ReauthRequired(Refused):
    """The grant is gone; only the customer can give a new one."""

    code = "reauth_required"
    retryable = False
    http_status = 401
    category = "permanent_auth"
    hint = "send the customer the link of `fairlead connections reauthorize`"
    bucket: str | None = None
    """Which of the tenant's connections at the provider it is; None: unknown."""


class NoRefreshToken(ReauthRequired):
    """The provider gave no refresh token, so this token cannot be renewed."""

    code = "no_refresh_token"


class AccountMismatch(ReauthRequired):
    """The provider answered with the token of another account; it is kept sealed, not used."""

    code = "account_mismatch"


# ---- a request left ---------------------------------------------------------------------------


class Failed(FairleadError):
    """A request left and did not succeed."""

    code = "failed"
    sent = True
    repeatable: bool = True
    http_status = 502
    hint = "see `fairlead connections show`"


class TransientFailure(Failed):
    """The provider answered that it did not process the request, or failed for a while."""

    code = "transient_failure"
    retryable = True
    http_status = 503
    category = "transient_server"
    hint = "fairlead tries again by itself"


class IssuerClockError(TransientFailure):
    """The provider refused a signed assertion while its clock and the database's differ.

    Either clock may be wrong. The error is permanent if they differ by more than an hour. The customer need
    not consent again.
    """

    code = "issuer_clock"
    category = "transient_network"
    hint = "run `fairlead doctor` and have NTP set the clock that is wrong; the grant is still valid"


class OutcomeUnknown(Failed):
    """A refresh was sent and its answer never came; recovery follows the provider's replay policy."""

    code = "outcome_unknown"
    retryable = True
    http_status = 503
    category = "transient_network"
    hint = "fairlead resolves this by the provider's replay policy; the current token is served meanwhile"


class RequestRejected(Failed):
    """The provider understood and refused: wrong request, scope or client."""

    code = "request_rejected"
    category = "permanent_request"
    hint = "see the code and description in `fairlead dlq show`"


class CallFailed(Failed):
    """A call through a connection was sent and failed, after all its attempts.

    Attributes:
        verdict: What the response meant, and by which rule.
        answer, reply: The response, if there was one.
        attempts: How often the request was sent.
        may_have_acted: Whether the provider may have executed it.
        repeatable: Whether repeating it is harmless; otherwise its job is not retried.
        reason: A stable word.
    """

    code = "call_failed"
    hint = "`fairlead config test-response` shows how an answer is judged; patterns of a connection change it"
    bucket: str | None = None
    """Which of the tenant's connections at the provider it is; None: unknown."""

    def __init__(
        self,
        what: str,
        *,
        verdict: Any = None,
        answer: Any = None,
        reply: Any = None,
        attempts: int = 0,
        may_have_acted: bool = True,
        **rest: Any,
    ) -> None:
        super().__init__(what, **rest)
        self.verdict = verdict
        self.answer = answer
        self.reply = reply
        self.attempts = attempts
        self.may_have_acted = may_have_acted

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle without the response, in which a provider may repeat secrets that it was sent."""
        return type(self), self.args, {**vars(self), "answer": None, "reply": None}


class AnswerUnreadable(CallFailed):
    """A call was done, and its answer is not what it was read as: no JSON, no XML, a line too long.

    ``reason`` says which: ``not_json``, ``not_xml``, ``line_too_long``. Nothing sends the call again.
    """

    code = "answer_unreadable"
    category = "permanent_request"
    hint = "look at .text and .headers of the response; what was asked for may be done"


# ---- a wrong call -----------------------------------------------------------------------------


class CallerError(FairleadError):
    """The call itself cannot be served."""

    code = "caller_error"
    http_status = 400


class InputInvalid(CallerError):
    """A name, argument or file is not acceptable; nothing was changed."""

    code = "input_invalid"
    http_status = 422
    category = "permanent_request"
    hint = "correct what the message names, and try again"


class NotFound(CallerError):
    """There is no such connection, job or entry."""

    code = "not_found"
    http_status = 404
    hint = "list what there is with `fairlead connections list`"


class ProviderNotFound(CallerError):
    """There is no profile of this name."""

    code = "provider_not_found"
    http_status = 404
    category = "permanent_config"
    hint = "see `fairlead providers list`, or add a profile file to the providers folder"


class JobFailed(CallerError):
    """A job whose result was asked for was cancelled or discarded: there is none."""

    code = "job_failed"
    http_status = 424
    category = "permanent_request"
    hint = "see `fairlead jobs show` and `fairlead dlq list`"


class SlotLost(Failed):
    """A call was ended because its slot was not renewed in time: another call may run in it by now."""

    code = "slot_lost"
    retryable = True
    http_status = 503
    category = "transient_network"
    hint = "fairlead tries again by itself; a long call needs an event loop that nothing blocks"


class StaleWrite(CallerError):
    """A superseded owner tried to write; the newer state stands."""

    code = "stale_write"
    http_status = 409
    hint = "nothing to do: the newer owner's result counts"


# ---- a wrong set-up ---------------------------------------------------------------------------


class SetupError(FairleadError):
    """fairlead cannot work as it is set up."""

    code = "setup_error"


class ConfigInvalid(SetupError):
    """The settings cannot be used; nothing was started."""

    code = "config_invalid"
    category = "permanent_config"
    hint = "correct the settings named above; `fairlead doctor` checks them"


class KeyMissing(SetupError):
    """No master key, or not the one that sealed this record. Data is untouched."""

    code = "key_missing"
    category = "permanent_config"
    hint = "set FAIRLEAD_MASTER_KEY or FAIRLEAD_MASTER_KEY_FILE to the key that sealed the data"


class KeyWrong(SetupError):
    """The master key does not open the data. Data is untouched."""

    code = "key_wrong"
    category = "permanent_config"
    hint = "set FAIRLEAD_MASTER_KEY to the key that sealed the data; `fairlead vault verify` checks"


class CredentialUnreadable(SetupError):
    """A sealed record fails its check: altered, or moved from another row. Data is untouched."""

    code = "credential_unreadable"
    category = "permanent_config"
    hint = "restore the row from a backup or reconnect this one account"


class DependencyUnavailable(SetupError):
    """PostgreSQL, Redis or an optional package is not there."""

    code = "dependency_unavailable"
    retryable = True
    http_status = 503
    category = "transient_network"
    hint = "run `fairlead doctor`"


class MigrationNeeded(SetupError):
    """The database schema is not the one this version needs."""

    code = "migration_needed"
    http_status = 503
    hint = "run `fairlead migrate`"


def all_errors() -> list[type[FairleadError]]:
    """Every error class of ours, parents first: the source of docs/reference/errors.md."""
    found: list[type[FairleadError]] = [FairleadError]
    for cls in found:  # which grows meanwhile
        found.extend(sub for sub in cls.__subclasses__() if sub.__module__.startswith("fairlead."))
    return found
