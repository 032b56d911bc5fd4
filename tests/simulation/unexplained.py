"""What no fault of its seed explains: errors that the engine catches, tells, and goes on after.

A service outlives whatever a pass meets, a worker whatever a job raises, so a bug in there ends no process
and loses no job: it is told, and work is late. Here it breaks the seed. Each way to fail has the faults that
may bring it about; where none of them is on, or nobody knows the way, it is a bug.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from uuid import UUID

from fairlead.events import (
    DeadLetterFailed,
    Event,
    GroupPauseFailed,
    JobDiscarded,
    JobFinished,
    ResponsesUnclassified,
    ServiceFailed,
    TokenRefreshFailed,
)
from fairlead.testing.ledger import Ledger, posts_of
from tests.simulation.spells import Spells
from tests.simulation.swarm import FAULTS
from tests.simulation.watch import (
    Accepted,
    Broken,
    CalledOff,
    DeclaredLost,
    Entry,
    Freed,
    SlotExpired,
    Struck,
    TimedOut,
)

STILL = frozenset({"freeze", "stop"})
STORE = frozenset({"cut", "lost_commit", "slow_store", "late_store", "database_away"})
REDIS = frozenset({"redis_loss", "redis_old", "redis_stall", "redis_away", "redis_lost"})
DEATHS = frozenset({"kill", "points", "killer", "restart"})
API = frozenset({"storm", "ill", "slow_calls", "cut_calls"})
ISSUER = frozenset(name for name in FAULTS if name.startswith("issuer_"))
ANY = frozenset(FAULTS)

NO_TOKEN = ISSUER | STORE | STILL | DEATHS | {"disk_full"}
"""What may keep a fresh token from who needs one."""
CAUSES: Mapping[str, Collection[str]] = {
    "http_429": {"storm"},
    "http_503": {"ill"},
    "reset": {"cut_calls"},
    "timeout": STILL
    | {"slow_calls"}
    | ISSUER
    | STORE
    | REDIS,  # who waited for a token or a turn has little left
    "job_timeout": ANY - {"kill", "killer", "poison", "jump"},
    "deadline_exceeded": NO_TOKEN | API | REDIS,
    "dependency_unavailable": STORE,
    "slot_lost": STILL | REDIS | STORE,
    "limiter_unavailable": REDIS | STILL,
    "needs_reauth": NO_TOKEN,
    "reauth_required": NO_TOKEN,
    "transient_failure": ISSUER,
    "outcome_unknown": NO_TOKEN,
    "endpoint_unavailable": ISSUER,
    "not_sent_connect": {"issuer_down"},
    "not_sent_timeout": STILL | STORE,
    "poison": DEATHS | STILL | STORE,
}
"""By the code of a failure, what may be behind it. *poison* is one that took its processes along."""
REFRESHES: Mapping[str, Collection[str]] = {
    "temporarily_unavailable": {"issuer_ill"},
    "rate_limited": {"issuer_busy"},
    "the answer did not come": ISSUER | STILL,
    "invalid_grant": NO_TOKEN,
    "connect": {"issuer_down"},
    "timeout": STILL | STORE,
}
"""The same for what a refresh met."""
UNWRITTEN = "could not be written before the stop; their jobs run again"
PLAIN: Mapping[str, Collection[str]] = {
    "job_timeout": STILL,
    "poison": CAUSES["poison"],
}
"""Work that asks nobody for anything fails in no other way."""
PLAIN_KINDS = ("sim.work", "sim.flood", "sim.killer")
KINDS: Mapping[str, Mapping[str, Collection[str]]] = {
    **dict.fromkeys(PLAIN_KINDS, PLAIN),
    "sim.slow": {**PLAIN, "job_timeout": {"slow_jobs"}},
    "sim.poison": {**PLAIN, "value_error": {"poison"}},
}


def bug_in(event: Event, faults: Collection[str]) -> str | None:
    """What is wrong with what the engine told, in a world that has *faults*; None: nothing is."""
    match event:
        case (
            JobFinished(kind=kind, code=str() as code, reason=reason)
            | JobDiscarded(kind=kind, code=code, reason=reason)
        ):
            return _unless(f"{kind} failed with {code} ({reason})", KINDS.get(kind, CAUSES), code, faults)
        case TokenRefreshFailed(code=code):
            return _unless(f"a refresh failed with {code}", REFRESHES, code, faults)
        case ServiceFailed(service="worker", reason=reason) if reason.endswith(UNWRITTEN):
            return None if not STORE.isdisjoint(faults) else reason
        case ServiceFailed(service=name, reason=reason):
            return f"{name} failed: {reason}"
        case DeadLetterFailed(reason=reason) | GroupPauseFailed(reason=reason):
            return None if not STORE.isdisjoint(faults) else reason
        case ResponsesUnclassified(status=status):
            return f"no rule knew the answer {status}"
    return None


def _unless(
    label: str, causes: Mapping[str, Collection[str]], code: str, faults: Collection[str]
) -> str | None:
    possible = causes.get(code)
    if possible is None:
        return f"{label}, and nothing here may do that"
    return f"{label}, and no fault did that" if set(possible).isdisjoint(faults) else None


class Calm:
    """A fleet without faults: no process dies or is declared lost, and every job completes.

    A job that its customer called off may end as cancelled.
    """

    name = "calm"

    def __init__(self) -> None:
        self._called_off: set[UUID] = set()

    def see(self, entry: Entry) -> str | None:
        match entry.seen:
            case CalledOff(job_id=job_id):
                self._called_off.add(job_id)
            case Accepted(job_id=job_id, outcome="cancelled") if job_id in self._called_off:
                return None
            case Struck(fault=fault):
                return f"{fault} struck {entry.process or 'all'}, and no fault is on"
            case DeclaredLost(session_id=session_id):
                return f"session {session_id} was declared lost"
            case Freed(job_id=job_id):
                return f"job {job_id} was taken from its process"
            case Accepted(job_id=job_id, outcome=outcome) if outcome not in ("completed", "handed_back"):
                return f"job {job_id} was {outcome}"
        return None


class LeftToItsLease:
    """A slot is given back by who holds it; its lease is for holders that died or stood still.

    Nobody can give back what Redis has forgotten, or while it is away; and an old state has leases that were
    given back. The slot of a call that had no answer by its deadline stays until its lease ends, since the
    provider may still be at work on it (docs/explanation/gate.md); its lease is not renewed any more. That
    holds only after a fair trial: a call that was sent with little time left gives its slot back.
    """

    name = "slots"
    lease_s = 30.0
    back_s = 30.0
    """So long after a fault a lease may still be granted to what it held up."""
    fair_s = 5.0
    """Of the 60 s of each call here: so much must be left when it is sent, or its timeout says nothing."""
    under_way_s = 1.0
    """How long after the end of its call a renewal that was already sent may still reach Redis."""

    def __init__(self) -> None:
        self._holders = Spells("kill", "freeze")
        self._redis = Spells("redis")
        self._kept_until_s: dict[int, float] = {}
        """By the id of a lease: when it ends at the latest, where its call timed out after a fair trial."""

    def see(self, entry: Entry) -> str | None:
        self._holders.see(entry)
        self._redis.see(entry)
        if isinstance(entry.seen, TimedOut) and entry.seen.given_s >= self.fair_s:
            self._kept_until_s[entry.seen.slot] = entry.at + self.lease_s + self.under_way_s
        if not isinstance(entry.seen, SlotExpired):
            return None
        ended_s = entry.seen.ended_s
        if ended_s <= self._kept_until_s.get(entry.seen.slot, -math.inf):
            return None
        since_s = ended_s - self.lease_s - self.back_s
        if self._holders.of(entry.process, since_s, ended_s) or self._redis.anywhere(since_s, entry.at):
            return None
        return f"a slot of {entry.seen.key} was left by {entry.process} to the end of its lease"


def sent_twice(ledger: Ledger, now: float) -> Broken | None:
    """Where nothing is lost each generation is presented once, unless its answer left it as it is."""
    names_seen = set()
    for post in posts_of(ledger):
        presented = post.provider, post.connection, post.generation
        if presented in names_seen:
            why = f"generation {post.generation} of {post.connection} was presented again"
            return Broken("calm", now, why)
        if not post.unrotated:
            names_seen.add(presented)
    return None
