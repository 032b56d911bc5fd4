"""Events of calls to providers' APIs."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from fairlead.events.base import Event


@dataclass(frozen=True, slots=True)
class CallAttempted(Event):
    """A call was sent once more, or refused: *status* None without an answer, *rule* what judged it.

    *rule* is `refused` where it was not sent, `slot lost` where that ended it, and `cancelled` where its
    caller was cancelled while it was under way: what became of it is not known.
    *then*: what follows, in *delay_s*. *attempt*: how often it was sent; 0 for one that never was.
    *waited_s*: for credentials, limits and retries so far, *sent_s*: under way. *code*: the stable word for
    what happened, mostly the provider's own. *gate*: which let it through, `fleet`, `local` (Redis was away)
    or `off` (no limits); of a refusal by limits which of them; empty where none was asked. *unclassified*: no
    rule knew the answer. *stands_for*: under load one of so many is told; failures of what was sent all are.
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
    """Calls that were sent failed for good: *failed* by *rule* since it was told last, at most each 10 s.

    *code*, *category* and *unclassified* are those of the last one. A call whose caller was cancelled is none
    of them, nor is one that its job comes back for, as after a vendor's limit.
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
class AnswersUnclassified(Event):
    """Answers to calls that no rule knew: *answers* since it was told last, at most each 10 s of a provider.

    *total* counts all of this process since it began. *status* and *code* are those of the last one, for
    whoever writes a rule.
    """

    name = "answers_unclassified"
    level = "warning"
    provider: str
    status: int | None
    code: str
    answers: int
    total: int
