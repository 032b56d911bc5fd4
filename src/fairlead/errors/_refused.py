"""Errors before a request is sent: a retry is free."""

from __future__ import annotations

from fairlead.errors._base import FairleadError


class RefusedError(FairleadError):
    """Nothing was sent. Retry after ``retry_after_s`` seconds; None means that waiting does not help."""

    code = "refused"
    retryable = True
    http_status = 503
    default_hint = "try again after retry_after_s"


class RateLimitedError(RefusedError):
    """fairlead's own limit for a token endpoint refused the request before it was sent."""

    code = "rate_limited"
    http_status = 429
    category = "transient_rate_limit"


class RefreshInProgressError(RefusedError):
    """A refresh of this connection is in progress, and its result did not arrive in time."""

    code = "refresh_in_progress"
    category = "transient_network"
    default_hint = "ask again in a second; your credential is not at fault"


class EndpointUnavailableError(RefusedError):
    """The breaker of this token endpoint is open after an outage; refreshes wait and none is lost."""

    code = "endpoint_unavailable"
    category = "transient_server"
    default_hint = "fairlead retries by itself; `fairlead providers show` shows since when"


class LimitExceededError(RefusedError):
    """A limit of the provider or of this connection does not admit the call now."""

    code = "limit_exceeded"
    http_status = 429
    category = "transient_rate_limit"
    default_hint = "try again after retry_after_s"


class BulkLimitReachedError(RefusedError):
    """This account already runs as many bulk operations as the provider allows.

    A job that lets this propagate is retried when one of them has ended.
    """

    code = "bulk_limit_reached"
    http_status = 429
    category = "transient_rate_limit"
    default_hint = "try again after retry_after_s, or once the running one is done"


class BulkStillRunningError(RefusedError):
    """The bulk operation is still running at the provider.

    A job that lets this propagate is rescheduled and resumes it.
    """

    code = "bulk_still_running"
    http_status = 409
    category = "transient_server"
    default_hint = (
        "try again after retry_after_s with operation.token; your job does so if it lets this error pass"
    )


class LimiterUnavailableError(RefusedError):
    """Redis is unavailable, so limits cannot be shared with the other processes."""

    code = "limiter_unavailable"
    category = "transient_network"
    default_hint = "check REDIS_URL with `fairlead doctor`; degraded_mode says what calls do meanwhile"


class EndpointPausedError(RefusedError):
    """The provider refused the client id or secret of your app, so all refreshes of this app are paused."""

    code = "endpoint_paused"
    category = "permanent_config"
    default_hint = "correct client_id and client_secret in your settings, then `fairlead providers resume`"


class NotSentError(RefusedError):
    """No attempt was sent. ``reason`` gives the cause, and the code of a dead letter ends with it."""

    code = "not_sent"
    category = "transient_network"
    default_hint = "check that this host can reach the provider's token endpoint"


class DeadlineExceededError(RefusedError):
    """The time that remains until the deadline of a call is too short to start it."""

    code = "deadline_exceeded"
    category = "transient_network"
    default_hint = "give your call more time, or start it earlier in its job"


class MasterKeyElsewhereError(RefusedError):
    """This process lacks a master key. Another process has it and can do the work."""

    code = "master_key_elsewhere"
    category = "transient_network"
    default_hint = (
        "restart this process with every master key that is in use; `fairlead vault status` lists them"
    )


class ReauthRequiredError(RefusedError):
    """The provider no longer accepts the grant, and only the customer can give a new one."""

    code = "reauth_required"
    retryable = False
    http_status = 401
    category = "permanent_auth"
    default_hint = "send your customer the link of `fairlead connections reauthorize`"
    account: str | None = None
    """The tenant's account at the provider; None if unknown."""


class NoRefreshTokenError(ReauthRequiredError):
    """The provider issued no refresh token, so the access token cannot be renewed."""

    code = "no_refresh_token"


class AccountMismatchError(ReauthRequiredError):
    """The provider returned the token of another account. It is stored sealed and not used."""

    code = "account_mismatch"
