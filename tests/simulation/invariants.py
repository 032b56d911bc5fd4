"""What must hold of a fleet at every moment, as folds over what is seen of it from outside (`watch.Told`).

    I2 newest lease   I3 done once   I7 attempts and crashes   I8 no starving
    I9 own data       I11 declared dead for a reason

I4, I5, I10 and I12 are about calls: `tests.simulation.limits`. I1 and I6 look at what is stored, and at the
issuer's ledger: `tests.simulation.endings`.
"""

from __future__ import annotations

from collections import Counter
from uuid import UUID

from tests.simulation.limits import CallsAtOnce, CallsInAWindow, FewRetries, OneProbe
from tests.simulation.spells import Spells
from tests.simulation.watch import (
    Accepted,
    Beat,
    CalledOff,
    Claimed,
    Closed,
    DeclaredLost,
    Entry,
    Freed,
    Invariant,
    Opened,
    Ran,
    Read,
    Returned,
)

MAX_CRASHES = 3
MOST_RUNS = 20
"""Of one job, whatever it fails by (R14). This and the next are the specification's numbers, written here:
taken from the product they would hold it to whatever it does."""
RETRIES = {"transient_network": 5, "transient_rate_limit": 10, "transient_server": 3, "handler_error": 3}
"""How often a job is put off for failures of a category, each counted by itself; all others are final."""
GAP = 0.5
"""The part of a lease without the database after which nobody's silence before it counts (R2)."""
RUN_ALONE = ("sim.work", "sim.flood", "sim.slow", "sim.killer", "sim.poison", "sim.burst")
"""Kinds that no refusal of anybody fails: their timeout does, which counts as the network's, or the one that
always raises, whose errors are those of a handler."""
CALLED = ("transient_network", "transient_rate_limit", "transient_server")
MEETS = {
    **dict.fromkeys(RUN_ALONE, ("transient_network",)),
    "sim.poison": ("handler_error",),
    "sim.call": CALLED,
}
"""By which categories each kind of work may fail and be run again."""
RUNS = {kind: min(MOST_RUNS, 1 + sum(RETRIES[fault] for fault in faults)) for kind, faults in MEETS.items()}
"""So often each kind may be run."""


class NewestLease:
    """I2: an outcome is accepted only under the lease that the job was last given, and that nobody ended.

    And no lease is run twice, and no job given away that was called off.
    """

    name = "I2"

    def __init__(self) -> None:
        self._held: dict[UUID, int] = {}
        self._ran: set[int] = set()
        self._called_off: set[UUID] = set()

    def see(self, entry: Entry) -> str | None:
        match entry.seen:
            case Claimed(job_id=job_id, lease_id=lease_id):
                self._held[job_id] = lease_id
                if job_id in self._called_off:
                    return f"job {job_id} was called off, and given away under lease {lease_id}"
            case CalledOff(job_id=job_id):
                self._called_off.add(job_id)  # its lease stands until its run has ended
            case Freed(job_id=job_id):
                self._held.pop(job_id, None)
            case Ran(lease_id=lease_id):
                if lease_id in self._ran:
                    return f"lease {lease_id} was run twice"
                self._ran.add(lease_id)
            case Accepted(job_id=job_id, lease_id=lease_id, outcome=outcome):
                newest = self._held.pop(job_id, None)
                if newest != lease_id:
                    return f"{outcome} under lease {lease_id} was accepted, the newest is {newest}"
        return None


class DoneOnce:
    """I3: at most one accepted completion for each piece of work, and none that no handler came to."""

    name = "I3"

    def __init__(self) -> None:
        self._done: set[int] = set()
        self._returned: set[int] = set()

    def see(self, entry: Entry) -> str | None:
        match entry.seen:
            case Returned(lease_id=lease_id):
                self._returned.add(lease_id)
            case Accepted(outcome="completed", lease_id=lease_id, work=int() as work):
                if lease_id not in self._returned:
                    return f"work {work} was completed, and its handler never returned under lease {lease_id}"
                if work in self._done:
                    return f"work {work} was completed twice"
                self._done.add(work)
        return None


class Attempts:
    """I7: no job is run more often than its kind may fail, or takes more processes along than it may.

    Its runs are counted as its handler tells them; what was given back, or ended by a crash, is no attempt.
    Beside that each category has its own limit of failures for which the store puts a job off.
    """

    name = "I7"

    def __init__(self) -> None:
        self._crashes: Counter[UUID] = Counter()
        self._attempts: Counter[UUID] = Counter()
        self._retries: Counter[tuple[UUID, str]] = Counter()
        self._ran: set[int | None] = set()
        self._freed: set[int | None] = set()

    def see(self, entry: Entry) -> str | None:
        match entry.seen:
            case Ran(lease_id=lease_id) if lease_id in self._freed:
                return None  # it stood still, and begins what was given back meanwhile
            case Ran(job_id=job_id, lease_id=lease_id, kind=kind):
                self._ran.add(lease_id)
                self._attempts[job_id] += 1
                if self._attempts[job_id] > RUNS[kind]:
                    return f"job {job_id} ({kind}) is at its attempt {self._attempts[job_id]}"
            case Accepted(job_id=job_id, lease_id=lease_id, outcome=outcome):
                self._crashes.pop(job_id, None)
                self._hand_back(job_id, lease_id if outcome == "handed_back" else None)
                return self._put_off(entry.seen)
            case Freed(job_id=job_id, lease_id=lease_id, crash=crash):
                self._freed.add(lease_id)
                self._hand_back(job_id, lease_id)
                self._crashes[job_id] = self._crashes[job_id] + 1 if crash else 0
                if self._crashes[job_id] > MAX_CRASHES:
                    return f"job {job_id} took {self._crashes[job_id]} processes along"
        return None

    def _hand_back(self, job_id: UUID, lease_id: int | None) -> None:
        """What ran under *lease_id* counts as no attempt."""
        if lease_id in self._ran:
            self._ran.remove(lease_id)
            self._attempts[job_id] -= 1

    def _put_off(self, accepted: Accepted) -> str | None:
        if accepted.work is None or accepted.category is None:
            return None  # duties of the fleet have rules of their own
        failed = accepted.job_id, accepted.category
        self._retries[failed] += 1
        if self._retries[failed] <= RETRIES.get(accepted.category, 0):
            return None
        return f"job {accepted.job_id} is put off for its {accepted.category} number {self._retries[failed]}"


class OwnData:
    """I9: what is read for a tenant is the tenant's own."""

    name = "I9"

    def see(self, entry: Entry) -> str | None:
        match entry.seen:
            case Read(asked=requested, told=tag) if requested != tag:
                return f"data of {tag!r} was read for {requested!r}"
        return None


class DeclaredDead:
    """I11: nobody is declared dead within his lease, or by silence that no fault explains.

    While the database is away from all nobody is heard, so the silence of all counts from its return (R2). A
    session that was opened after its caller had given it up is nobody's: he lives on in another.
    """

    name = "I11"

    def __init__(self) -> None:
        self._strikes = Spells("kill", "freeze", "away", "restart", "cut")
        self._outages = Spells("away")
        self._leases: dict[UUID, tuple[str, float]] = {}
        self._beats: dict[UUID, float] = {}
        self._lives_in: dict[str, UUID] = {}
        self._silent: set[UUID] = set()

    def see(self, entry: Entry) -> str | None:
        self._strikes.see(entry)
        self._outages.see(entry)
        match entry.seen:
            case Opened(session_id=session_id, lease_s=lease_s):
                self._leases[session_id] = entry.process, lease_s
                self._beats[session_id] = entry.at
                self._silent.add(session_id)
            case Beat(session_id=session_id):
                self._beats[session_id] = entry.at
                self._lives_in[entry.process] = session_id
                self._silent.discard(session_id)
            case DeclaredLost(session_id=session_id, proven=proven) if session_id in self._leases:
                return self._judge(session_id, entry.at, proven=proven)
        return None

    def _judge(self, session_id: UUID, at: float, *, proven: bool) -> str | None:
        owner, lease_s = self._leases[session_id]
        heard_s = self._outages.ended_for_all(GAP * lease_s)
        silent_s = at - max(self._beats[session_id], heard_s)
        lives_in = self._lives_in.get(owner)
        is_nobodys = session_id in self._silent and lives_in is not None
        if is_nobodys and silent_s >= lease_s and self._beats[lives_in] > self._beats[session_id]:
            return None
        if not self._strikes.of(owner, at - 2 * lease_s, at):
            return (
                f"{owner} was declared dead after {silent_s:.1f} s of silence, and nothing had happened to it"
            )
        if not proven and silent_s < lease_s:
            return (
                f"{owner} was declared dead {silent_s:.1f} s after it was heard, or could not be:"
                f" the lease is {lease_s:g} s"
            )
        return None


class OwnWork:
    """I11: a lease is ended by who holds it, or once he has gone or was declared dead."""

    name = "I11"

    def __init__(self) -> None:
        self._gone: set[UUID] = set()
        self._claims: dict[int, tuple[UUID, str]] = {}

    def see(self, entry: Entry) -> str | None:
        match entry.seen:
            case Closed(session_id=session_id) | DeclaredLost(session_id=session_id):
                self._gone.add(session_id)
            case Claimed(lease_id=lease_id, session_id=session_id):
                self._claims[lease_id] = session_id, entry.process
            case Freed(lease_id=int() as lease_id) if lease_id in self._claims:
                session_id, holder = self._claims.pop(lease_id)
                if session_id not in self._gone and holder != entry.process:
                    return f"lease {lease_id} was taken from {holder}, who lives, by {entry.process}"
        return None


class NobodyStarves:
    """I8: while a job of a tenant waits, others are served so often at most.

    Counted in claims and not in seconds: who is not served because nobody is does not starve. What was given
    back waits for other reasons, and so do calls: only the first claim of plain work counts.
    """

    name = "I8"

    def __init__(self, bound: int = 25, kinds: tuple[str, ...] = ("sim.work", "sim.flood")) -> None:
        self._bound = bound
        self._kinds = kinds
        self._claims: list[tuple[float, str]] = []
        self._known: set[UUID] = set()

    def see(self, entry: Entry) -> str | None:
        if not isinstance(entry.seen, Claimed) or entry.seen.kind not in self._kinds:
            return None
        claimed, again = entry.seen, entry.seen.job_id in self._known
        self._known.add(claimed.job_id)
        due = entry.at - claimed.waited_s
        ahead = sum(at > due and tenant != claimed.tenant for at, tenant in self._claims)
        self._claims.append((entry.at, claimed.tenant))
        if again or ahead <= self._bound:
            return None
        return f"a job of {claimed.tenant} waited {claimed.waited_s:.1f} s while {ahead} of others were begun"


def watching() -> tuple[Invariant, ...]:
    """All of them, as new."""
    return (
        NewestLease(), DoneOnce(), CallsAtOnce(), CallsInAWindow(), Attempts(), NobodyStarves(), OwnData(),
        FewRetries(), DeclaredDead(), OwnWork(), OneProbe(),
    )  # fmt: skip
