"""What happens to a worker and to the services beside it, as values (see ``fairlead.events``)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from uuid import UUID

from fairlead.events import Event


@dataclass(frozen=True, slots=True)
class StoreReachable(Event):
    """The database answers again after *away_s* seconds; work goes on."""

    name = "store_reachable"
    store: str
    away_s: float


@dataclass(frozen=True, slots=True)
class ServiceRecovered(Event):
    """A background service works again after *failed_s* seconds."""

    name = "service_recovered"
    service: str
    failed_s: float


@dataclass(frozen=True, slots=True)
class MemoryPressure(Event):
    """Memory passed a soft limit: ``warn``, ``full`` (no new jobs are claimed) or ``eased`` again."""

    name = "memory_pressure"
    level = "warning"
    stage: str
    used_bytes: int
    limit_bytes: int


@dataclass(frozen=True, slots=True)
class LoopStalled(Event):
    """The event loop did not run for *stall_s* seconds: some handler blocks it."""

    name = "loop_stalled"
    level = "warning"
    stall_s: float


@dataclass(frozen=True, slots=True)
class WorkerDraining(Event):
    """A worker stopped claiming; *running* jobs have *grace_s* seconds to end."""

    name = "worker_draining"
    running: int
    grace_s: float


@dataclass(frozen=True, slots=True)
class JobsHandedBack(Event):
    """Jobs were stopped and given back with their attempt; *reason* is ``drain`` or ``lease_lost``."""

    name = "jobs_handed_back"
    level = "warning"
    count: int
    reason: str


@dataclass(frozen=True, slots=True)
class HandlersStuck(Event):
    """Handlers of these *kinds* go on after they were cancelled; their jobs were handed back all the same."""

    name = "handlers_stuck"
    level = "error"
    kinds: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TimeoutIgnored(Event):
    """A handler still runs *over_s* seconds after its timeout; reported at 5 s, and each time that doubles.

    Its job stays running, and counts under caps, until the handler or its process ends.
    """

    name = "timeout_ignored"
    level = "error"
    job_id: UUID
    tenant: str
    provider: str | None
    kind: str
    timeout_s: float
    over_s: float


@dataclass(frozen=True, slots=True)
class GroupPaused(Event):
    """A handler asked for a pause (after a 429): no worker begins work of *scope* for *for_s* seconds."""

    name = "group_paused"
    tenant: str
    provider: str | None
    kind: str
    scope: str
    for_s: float
    reason: str


@dataclass(frozen=True, slots=True)
class GroupNotPaused(Event):
    """A pause that a handler asked for could not be made; its own job waits all the same."""

    name = "group_not_paused"
    level = "warning"
    tenant: str
    provider: str | None
    kind: str
    reason: str


@dataclass(frozen=True, slots=True)
class LanesAged(Event):
    """This many lanes waited so long for their turn that they moved into a more urgent class."""

    name = "lanes_aged"
    lanes: int


@dataclass(frozen=True, slots=True)
class LanesMended(Event):
    """A sweep put lanes right: *opened* for work that nobody would have found, *parked* for a pause, *woken*.

    A few after a crash, or after jobs that other programs enqueued, are nothing to worry about.
    """

    name = "lanes_mended"
    opened: int
    parked: int
    woken: int


@dataclass(frozen=True, slots=True)
class DeadLettersProcessed(Event):
    """One run of the dead-letter processor; *counts* by what was done."""

    name = "dead_letters_processed"
    counts: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class DeadLetterFailed(Event):
    """The processor could not handle one entry; the others were handled."""

    name = "dead_letter_failed"
    level = "error"
    dead_letter_id: str
    tenant: str
    provider: str | None
    reason: str


@dataclass(frozen=True, slots=True)
class DeadLettersFull(Event):
    """A queue's bound is full of open dead letters; new work of it is refused until somebody acts."""

    name = "dead_letters_full"
    level = "error"
    queue: str
    open: int
    bound: int


@dataclass(frozen=True, slots=True)
class GateDegraded(Event):
    """This process keeps to its share of each limit: Redis does not answer, or somebody wants it so."""

    name = "gate_degraded"
    level = "warning"
    reason: str


@dataclass(frozen=True, slots=True)
class GateRestored(Event):
    """After *away_s* seconds limits are the fleet's again."""

    name = "gate_restored"
    away_s: float


@dataclass(frozen=True, slots=True)
class GateSlow(Event):
    """Redis took *took_s* seconds to answer; beyond 0.8 s this process keeps to its share."""

    name = "gate_slow"
    level = "warning"
    took_s: float


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
    bucket: str
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
    bucket: str
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


@dataclass(frozen=True, slots=True)
class GateWouldRefuse(Event):
    """A connection in observe mode: this call would have been refused, and was let through."""

    name = "gate_would_refuse"
    tenant: str
    provider: str
    reason: str
    retry_after_s: float | None


@dataclass(frozen=True, slots=True)
class ServedFromMemory(Event):
    """The database is away: calls of this connection go by the *what* that was read *age_s* ago.

    *what*: ``connection`` (its settings) or ``token``. For five minutes at most, and no token past its end.
    """

    name = "served_from_memory"
    tenant: str
    provider: str
    what: str
    age_s: float


@dataclass(frozen=True, slots=True)
class GateBreakerOpened(Event):
    """A destination fails: calls of this connection to *host* are refused for *open_s*, then one is tried.

    *cause* is the code of the last failure (``http_500``). Without Redis each process has its own breakers.
    """

    name = "gate_breaker_opened"
    level = "warning"
    tenant: str
    provider: str
    bucket: str
    host: str
    open_s: float
    cause: str = ""


@dataclass(frozen=True, slots=True)
class GateBreakerClosed(Event):
    """The call that was tried did well: calls to *host* come back, 2 in the first second, then twice as many.

    A breaker that somebody closes by hand is told by the audit instead.
    """

    name = "gate_breaker_closed"
    tenant: str
    provider: str
    bucket: str
    host: str


@dataclass(frozen=True, slots=True)
class GateBypassed(Event):
    """The gate is disabled by hand: since the last look *calls* went past their limits."""

    name = "gate_bypassed"
    level = "warning"
    provider: str
    calls: int


@dataclass(frozen=True, slots=True)
class BulkAdopted(Event):
    """A bulk operation that was found running, begun by nobody known here, was given a place."""

    name = "bulk_adopted"
    tenant: str
    provider: str
    running_id: str


@dataclass(frozen=True, slots=True)
class TenantRapid(Event):
    """A tenant asked *refused* times within a second for what it was refused; it is put off locally."""

    name = "tenant_rapid"
    level = "warning"
    tenant: str
    provider: str
    refused: int


@dataclass(frozen=True, slots=True)
class TenantWallMissing(Event):
    """Only the statements keep tenants apart: row-level security does not, for this process. See *advice*."""

    name = "tenant_wall_missing"
    level = "warning"
    advice: str


@dataclass(frozen=True, slots=True)
class TenantWallRaised(Event):
    """Row-level security keeps tenants apart from now on, in this process, too."""

    name = "tenant_wall_raised"


@dataclass(frozen=True, slots=True)
class GateNotPersistent(Event):
    """Redis writes no append-only file: a restart forgets open breakers, waits and lines. See *advice*."""

    name = "gate_not_persistent"
    level = "warning"
    server: str
    advice: str


@dataclass(frozen=True, slots=True)
class GateMaintained(Event):
    """The hourly look after the gate's keys, over the last hour as far as the logs of pools reach.

    *orphans*: leases that ended because nobody gave them back; *promoted*: who went first because he had
    waited too long; *cleaned*: keys without an end of their life that were given one. *keys* and *size_bytes*
    are ours (None: the server does not tell), *used_bytes* is the server's. *complete* False: there are more.
    """

    name = "gate_maintained"
    orphans: int
    promoted: int
    cleaned: int
    keys: int
    size_bytes: int | None
    used_bytes: int
    complete: bool
