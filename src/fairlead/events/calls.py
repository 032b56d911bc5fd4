"""Events of calls to providers' APIs."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from fairlead.events.base import Event


@dataclass(frozen=True, slots=True)
class CallAttempted(Event):
    """An attempt of a call was sent, or the call was refused.

    Under load successes and refusals are sampled; failures of attempts that were sent are not.

    Attributes:
        attempt: How many attempts were sent so far; 0 for a refused call.
        status: The HTTP status, or None without a response.
        rule: The rule that classified the response; ``refused``, ``slot lost`` or ``cancelled`` otherwise.
        then: What follows, in *delay_s* seconds.
        waited_s: Time spent so far on credentials, limits and retry delays.
        sent_s: Time spent so far on sent attempts.
        code: The stable code of the outcome, mostly the provider's own.
        gate: ``fleet``, ``local`` (without Redis) or ``off`` (no limits) for an admitted call, the limit that
            refused a refused one, else empty.
        unclassified: No rule matched the response.
        stands_for: How many such events this one stands for.
    """

    name = "call_attempted"
    level = "debug"
    tenant: str
    provider: str
    account: str
    host: str
    operation: str
    attempt: int
    status: int | None
    rule: str
    category: str | None
    then: str
    delay_s: float
    waited_s: float
    sent_s: float
    code: str = ""
    gate: str = ""
    job_id: UUID | None = None
    unclassified: bool = False
    stands_for: int = 1


@dataclass(frozen=True, slots=True)
class CallsFailed(Event):
    """Calls of a connection to a host failed for good; emitted at most every 10 s per rule.

    Cancelled calls are not counted, nor calls that their job repeats later. *code*, *category* and
    *unclassified* are those of the last failure.

    Attributes:
        failed: Calls that failed by *rule* since the previous event.
    """

    name = "calls_failed"
    level = "warning"
    tenant: str
    provider: str
    account: str
    host: str
    rule: str
    code: str
    category: str | None
    failed: int
    unclassified: bool


@dataclass(frozen=True, slots=True)
class ResponsesUnclassified(Event):
    """Responses of a provider matched no rule; emitted at most every 10 s per provider.

    Attributes:
        status: The HTTP status of the last one.
        code: The code in the body of the last one.
        responses: How many since the previous event.
        total: How many since this process started.
    """

    name = "responses_unclassified"
    level = "warning"
    provider: str
    status: int | None
    code: str
    responses: int
    total: int
