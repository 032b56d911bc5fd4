"""Errors after a request was sent: it may have had its effect."""

from __future__ import annotations

from typing import Any

from fairlead.errors._base import FairleadError


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
    default_hint = "fairlead retries by itself"


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
        "see with `fairlead config test-response` how the response is classified; your patterns can change it"
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
    default_hint = "fairlead retries by itself; check that nothing of yours blocks the event loop"
