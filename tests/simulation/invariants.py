"""What must hold of a fleet at every moment, as folds over what is seen of it from outside (`watch.Told`).

    I2 newest lease   I3 done once   I4 calls at once   I5 calls in a window   I7 attempts and crashes
    I8 no starving    I9 own data    I10 few retries    I11 declared dead for a reason   I12 one probe

I1 and I6 look at what is stored, and at the issuer's ledger: `tests.simulation.endings`.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict, deque
from dataclasses import dataclass, field
from uuid import UUID

from fairlead.policy.retry import MAX_ATTEMPTS
from tests.simulation.providers import LITTLE, ROOMS, Room
from tests.simulation.watch import (
    NOBODY,
    Accepted,
    Arrived,
    Beat,
    Claimed,
    Closed,
    DeclaredLost,
    Freed,
    Invariant,
    Opened,
    ProbeEnded,
    ProbeGiven,
    Ran,
    Read,
    Struck,
    Told,
)

MAX_CRASHES = 3
JITTER_S = 0.2
"""By how much later than another a call may arrive that was admitted with it."""
AFTERWARDS_S = 5.0
"""What a freeze held up is sorted out so soon after it."""
REDIS = "redis"
"""Of the names of faults that leave each process alone with its share of the limits."""


class NewestLease:
    """I2: an outcome is accepted only under the lease that the job was last given, and that nobody ended.

    And no lease is run twice.
    """

    name = "I2"

    def __init__(self) -> None:
        self._held: dict[UUID, int] = {}
        self._ran: set[int] = set()

    def see(self, told: Told) -> str | None:
        match told.seen:
            case Claimed(job_id=job_id, lease_id=lease_id):
                self._held[job_id] = lease_id
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
    """I3: at most one accepted completion for each piece of work."""

    name = "I3"

    def __init__(self) -> None:
        self._done: set[int] = set()

    def see(self, told: Told) -> str | None:
        match told.seen:
            case Accepted(outcome="completed", work=int() as work):
                if work in self._done:
                    return f"work {work} was completed twice"
                self._done.add(work)
        return None


class Attempts:
    """I7: no job is run more often than its policy allows, or takes more processes along than it may.

    Its runs are counted as its handler tells them; what was given back, or ended by a crash, is no attempt.
    """

    name = "I7"

    def __init__(self) -> None:
        self._crashes: Counter[UUID] = Counter()
        self._attempts: Counter[UUID] = Counter()
        self._ran: set[int | None] = set()

    def see(self, told: Told) -> str | None:
        match told.seen:
            case Ran(job_id=job_id, lease_id=lease_id):
                self._ran.add(lease_id)
                self._attempts[job_id] += 1
                if self._attempts[job_id] > MAX_ATTEMPTS:
                    return f"job {job_id} is at its attempt {self._attempts[job_id]}"
            case Accepted(job_id=job_id, lease_id=lease_id, outcome=outcome):
                self._crashes.pop(job_id, None)
                self._hand_back(job_id, lease_id if outcome == "handed_back" else None)
            case Freed(job_id=job_id, lease_id=lease_id, crash=crash):
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


class OwnData:
    """I9: what is read for a tenant is the tenant's own."""

    name = "I9"

    def see(self, told: Told) -> str | None:
        match told.seen:
            case Read(asked=asked, told=tag) if asked != tag:
                return f"data of {tag!r} was read for {asked!r}"
        return None


class OneProbe:
    """I12: while a breaker is not closed one call of the whole fleet decides, and no second is let in."""

    name = "I12"

    def __init__(self) -> None:
        self._until: dict[str, float] = {}

    def see(self, told: Told) -> str | None:
        match told.seen:
            case ProbeGiven(breaker=breaker, for_s=for_s):
                if told.at < self._until.get(breaker, 0.0):
                    return f"a second probe of {breaker}"
                self._until[breaker] = told.at + for_s
            case ProbeEnded(breaker=breaker):
                self._until.pop(breaker, None)
            case Struck(fault=fault) if fault.startswith(REDIS):
                self._until.clear()  # what it had given is forgotten
        return None


@dataclass
class _Strikes:
    """Until when each process is kept from its work, by a fault of one of *kinds*."""

    kinds: tuple[str, ...]
    until: dict[str, float] = field(default_factory=dict)

    def see(self, told: Told) -> None:
        if isinstance(told.seen, Struck) and told.seen.fault.startswith(self.kinds):
            self.until[told.process] = max(self.until.get(told.process, 0.0), told.seen.until)

    def meets(self, process: str, since: float) -> bool:
        """Whether *process* was struck, or all were, at *since* or later."""
        return max(self.until.get(whom, -math.inf) for whom in (process, NOBODY)) >= since


class DeclaredDead:
    """I11: nobody is declared dead within his lease, or by silence that no fault explains."""

    name = "I11"

    def __init__(self) -> None:
        self._strikes = _Strikes(("kill", "freeze", "away", "restart", "cut"))
        self._leases: dict[UUID, tuple[str, float]] = {}
        self._beats: dict[UUID, float] = {}

    def see(self, told: Told) -> str | None:
        self._strikes.see(told)
        match told.seen:
            case Opened(session_id=session_id, lease_s=lease_s):
                self._leases[session_id] = told.process, lease_s
                self._beats[session_id] = told.at
            case Beat(session_id=session_id):
                self._beats[session_id] = told.at
            case DeclaredLost(session_id=session_id, proven=proven) if session_id in self._leases:
                return self._judge(session_id, told.at, proven=proven)
        return None

    def _judge(self, session_id: UUID, at: float, *, proven: bool) -> str | None:
        owner, lease_s = self._leases[session_id]
        silent_s = at - self._beats[session_id]
        if not self._strikes.meets(owner, at - 2 * lease_s):
            return (
                f"{owner} was declared dead after {silent_s:.1f} s of silence, and nothing had happened to it"
            )
        if not proven and silent_s < lease_s:
            return (
                f"{owner} was declared dead {silent_s:.1f} s after a sign of life, the lease is {lease_s:g} s"
            )
        return None


class OwnWork:
    """I11: a lease is ended by who holds it, or once he has gone or was declared dead."""

    name = "I11"

    def __init__(self) -> None:
        self._gone: set[UUID] = set()
        self._claims: dict[int, tuple[UUID, str]] = {}

    def see(self, told: Told) -> str | None:
        match told.seen:
            case Closed(session_id=session_id) | DeclaredLost(session_id=session_id):
                self._gone.add(session_id)
            case Claimed(lease_id=lease_id, session_id=session_id):
                self._claims[lease_id] = session_id, told.process
            case Freed(lease_id=int() as lease_id) if lease_id in self._claims:
                session_id, holder = self._claims.pop(lease_id)
                if session_id not in self._gone and holder != told.process:
                    return f"lease {lease_id} was taken from {holder}, who lives, by {told.process}"
        return None


# ---- limits --------------------------------------------------------------------------------------


class CallsAtOnce:
    """I4: of an account never more calls are in flight than it has slots, but for holders that stood still.

    No upstream checks a fence, so who is frozen beyond its lease may hold a slot that was given on. While
    Redis is away, and until leases of that time have ended, one process's share may be added (P8, P15).
    """

    name = "I4"

    def __init__(self, lease_s: float = 30.0) -> None:
        self._lease_s = lease_s
        self._frozen = _Strikes(("freeze",))
        self._alone = _Strikes((f"{REDIS}_away", f"{REDIS}_stall"))

    def see(self, told: Told) -> str | None:
        self._frozen.see(told)
        self._alone.see(told)
        if not isinstance(told.seen, Arrived):
            return None
        here, slots = told.seen.in_flight, _room(told.seen.account).slots
        if slots is None:
            return None
        excused = sum(self._frozen.meets(process, told.at - AFTERWARDS_S) for process in here)
        if self._alone.meets(NOBODY, told.at - self._lease_s):
            excused += slots // 2
        if len(here) <= slots + excused:
            return None
        return f"{len(here)} calls of {told.seen.account} in flight, {slots} may be"


class CallsInAWindow:
    """I5: in any window no more calls of an account arrive than its burst and its rate allow.

    Counted as a bucket that begins full. What a freeze held up was counted when it was let through. While
    each process keeps to its share they may disagree for a moment on how many they are (P15).
    """

    name = "I5"

    def __init__(self) -> None:
        self._levels: dict[str, tuple[float, float]] = {}
        self._frozen = _Strikes(("freeze",))
        self._alone = _Strikes((f"{REDIS}_away", f"{REDIS}_stall"))

    def see(self, told: Told) -> str | None:
        self._frozen.see(told)
        self._alone.see(told)
        if not isinstance(told.seen, Arrived) or self._frozen.meets(told.process, told.at - AFTERWARDS_S):
            return None
        account, room = told.seen.account, _room(told.seen.account)
        most = room.burst + room.per_s * JITTER_S
        level, at = self._levels.get(account, (most, told.at))
        level = min(most, level + (told.at - at) * room.per_s) - 1.0
        self._levels[account] = level, told.at
        spare = room.burst if self._alone.meets(NOBODY, told.at - AFTERWARDS_S) else 0.0
        if level >= -spare - 1e-6:
            return None
        return f"{-level:.1f} calls of {account} beyond {room.burst:g} at once and {room.per_s:g}/s"


def _room(account: str) -> Room:
    return ROOMS.get(account.split("/", maxsplit=1)[0], LITTLE)


class FewRetries:
    """I10: retries of one process never become the load of an account.

    Its budget (policy/gate/retries.py) gives three each second, or a share of the calls.
    """

    name = "I10"
    window_s = 3.0
    most = 12
    """Three in each second that a window meets."""
    share = 0.2

    def __init__(self) -> None:
        self._sent: set[str] = set()
        self._seen: dict[tuple[str, str], deque[tuple[float, bool]]] = defaultdict(deque)

    def see(self, told: Told) -> str | None:
        if not isinstance(told.seen, Arrived) or not told.seen.call:
            return None
        call, is_retry = told.seen.call, told.seen.call in self._sent
        if told.seen.status == 401:  # a newer token is no retry
            self._sent.discard(call)
        else:
            self._sent.add(call)
        lately = self._seen[told.process, told.seen.account]
        lately.append((told.at, is_retry))
        while lately[0][0] < told.at - self.window_s:
            lately.popleft()
        retries = sum(again for _, again in lately)
        if retries <= self.most + self.share * (len(lately) - retries):
            return None
        return f"{retries} of {len(lately)} calls of {told.seen.account} in {self.window_s:g} s were retries"


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

    def see(self, told: Told) -> str | None:
        if not isinstance(told.seen, Claimed) or told.seen.kind not in self._kinds:
            return None
        claimed, again = told.seen, told.seen.job_id in self._known
        self._known.add(claimed.job_id)
        due = told.at - claimed.waited_s
        ahead = sum(at > due and tenant != claimed.tenant for at, tenant in self._claims)
        self._claims.append((told.at, claimed.tenant))
        if again or ahead <= self._bound:
            return None
        return f"a job of {claimed.tenant} waited {claimed.waited_s:.1f} s while {ahead} of others were begun"


def watching() -> tuple[Invariant, ...]:
    """All of them, as new."""
    return (
        NewestLease(), DoneOnce(), CallsAtOnce(), CallsInAWindow(), Attempts(), NobodyStarves(), OwnData(),
        FewRetries(), DeclaredDead(), OwnWork(), OneProbe(),
    )  # fmt: skip
