"""What must hold of calls, as they reach the upstream: as folds over what is told (`watch.Told`).

I4 calls at once   I5 calls in a window   I10 few retries   I12 one probe
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import defaultdict, deque
from dataclasses import dataclass, field

from tests.simulation.providers import LITTLE, ROOMS, Room
from tests.simulation.spells import Spells
from tests.simulation.watch import (
    NOBODY,
    Arrived,
    BreakerClosed,
    BreakerOpened,
    Entry,
    Kept,
    Left,
    SimulatedAdmission,
    Struck,
)

LEASE_S = 30.0
"""Of a slot."""
JITTER_S = 0.2
"""By how much later than another a call may arrive that was admitted with it."""
AFTERWARDS_S = 5.0
"""So soon after its return Redis counts for all again."""
OVERLAP_S = 0.5
"""Of the rate: while processes go away or come back, some keep to their share and some do not yet (R27)."""
MOST_SHARE = 1 / 2
"""Of a limit: what one process may keep to who knows of another."""
AT_ONCE_S = 0.1
"""Within it whoever goes on has ended what he may not go on with, and what he had sent has arrived."""
DEGRADED_FAULTS = ("redis_away", "redis_stall", "redis_lost")
"""Faults that leave a process alone with its share of the limits."""
FORGET = ("redis_loss", "redis_old")
"""Those by which Redis forgets what it knew."""


def _room(account: str) -> Room:
    return ROOMS.get(account.split("/", maxsplit=1)[0], LITTLE)


class CallsAtOnce:
    """I4: of an account never more calls are in flight than it has slots, but for holders that stood still.

    No upstream checks a fence: whose lease ended while it stood still may be there beside who has its slot
    now, until it goes on. While Redis is away, and until leases of that time have ended, one process's share
    may be added (P8, P15). Who stood still then and has not looked yet keeps to its share, too.
    """

    name = "I4"

    def __init__(self) -> None:
        self._frozen = Spells("freeze")
        self._alone = Spells(*DEGRADED_FAULTS)
        self._calls: dict[int, Entry] = {}
        self._leases: dict[int, float] = {}

    def see(self, entry: Entry) -> str | None:
        self._frozen.see(entry)
        self._alone.see(entry)
        match entry.seen:
            case Kept(slot=slot):
                self._leases[slot] = entry.at + LEASE_S
            case Left(number=number, how=how) if how != "died":  # what the dead asked for is worked on
                self._calls.pop(number, None)
            case Arrived(number=number):
                self._calls[number] = entry
                return self._judge(entry.seen, entry.at)
        return None

    def _judge(self, arrived: Arrived, at: float) -> str | None:
        here, slots = arrived.in_flight, _room(arrived.account).slots
        if slots is None or len(here) <= slots:
            return None
        calls = [self._calls[number] for number in here]
        excused = sum(self._lost_its_lease(call, at) or self._has_not_looked(call) for call in calls)
        if self._alone.anywhere(at - LEASE_S, at):
            excused += slots // 2
        if len(here) <= slots + excused:
            return None
        return f"{len(here)} calls of {arrived.account} in flight, {slots} may be"

    def _lost_its_lease(self, entry: Entry, at: float) -> bool:
        """Whether the lease of a call ended while its process stood still, which it does, or did just now."""
        assert isinstance(entry.seen, Arrived)
        admission = entry.seen.admission
        if admission is None or admission.slot is None:
            return False
        end = max(admission.at + LEASE_S, self._leases.get(admission.slot, 0.0))
        still = self._frozen.of(entry.process, end, end)
        return end <= at and any(spell.ended + AT_ONCE_S >= at for spell in still)

    def _has_not_looked(self, entry: Entry) -> bool:
        """Whether a call was let in by its process alone, which had stood still just then."""
        assert isinstance(entry.seen, Arrived)
        admission = entry.seen.admission
        if admission is None or not admission.alone:
            return False
        return bool(self._frozen.of(entry.process, admission.at - AFTERWARDS_S, admission.at))


@dataclass(slots=True)
class _Bucket:
    """One that begins full, as calls take from it: what is told late is put where it belongs."""

    most: float
    per_s: float
    taken: list[float] = field(default_factory=list)
    spare: list[float] = field(default_factory=list)
    """How far below empty each may find it."""
    levels: list[float] = field(default_factory=list)

    def take(self, at: float, spare: float) -> float:
        """One call of *at*: how much is missing for it, or for one after it; 0: nothing."""
        index = bisect_right(self.taken, at)
        self.taken.insert(index, at)
        self.spare.insert(index, spare)
        self.levels.insert(index, 0.0)
        missing = 0.0
        for number in range(index, len(self.taken)):
            self.levels[number] = level = self._before(number) - 1.0
            missing = max(missing, -level - self.spare[number])
        return missing if missing > 1e-6 else 0.0

    def _before(self, number: int) -> float:
        if number == 0:
            return self.most
        passed_s = self.taken[number] - self.taken[number - 1]
        return min(self.most, self.levels[number - 1] + passed_s * self.per_s)


class CallsInAWindow:
    """I5: in any window no more calls of an account arrive than its burst and its rate allow.

    Counted as a bucket that begins full. A call that a freeze held up counts when it was let in. While each
    process keeps to its share they may disagree for a moment on how many they are (P15). One who alone
    cannot reach Redis has its share beside the others, who have the whole (R27); so has who stood still and
    has not looked yet: as large a share as it had, which was the whole where it knew of nobody else.
    """

    name = "I5"

    def __init__(self) -> None:
        self._buckets: dict[tuple[str, str], _Bucket] = {}
        """Of an account, and of one process that has its share of it beside the others."""
        self._frozen = Spells("freeze")
        self._alone = Spells(*DEGRADED_FAULTS)

    def see(self, entry: Entry) -> str | None:
        self._frozen.see(entry)
        self._alone.see(entry)
        if not isinstance(entry.seen, Arrived):
            return None
        account, admission, room = entry.seen.account, entry.seen.admission, _room(entry.seen.account)
        if admission is None:
            return f"a call of {account} was let in by nobody"
        at = admission.at if self._frozen.of(entry.process, admission.at, entry.at) else entry.at
        share = self._beside(entry.process, at) if admission.alone else None
        key = account, NOBODY if share is None else entry.process
        if key not in self._buckets:
            most, per_s = room.burst + room.per_s * JITTER_S, room.per_s
            self._buckets[key] = _Bucket(most * (share or 1.0), per_s * (share or 1.0))
        spare = room.per_s * OVERLAP_S if self._alone.anywhere(at - AFTERWARDS_S, at) else 0.0
        missing = self._buckets[key].take(at, spare)
        if not missing:
            return None
        return f"{missing:.1f} calls of {account} beyond {room.burst:g} at once and {room.per_s:g}/s"

    def _beside(self, process: str, at: float) -> float | None:
        """The share that *process*, let in by itself, has beside the others; None: it is one of them."""
        if self._alone.meets_alone(process, at - AFTERWARDS_S, at):
            return MOST_SHARE
        return 1.0 if self._frozen.of(process, at - AFTERWARDS_S, at) else None


@dataclass(slots=True)
class _Window:
    """A breaker stands open from *began*, lets nobody through until *until*, and then one at a time."""

    began: float
    until: float
    ended: float = math.inf
    probe: SimulatedAdmission | None = None
    number: int = 0
    """Of the call that decides."""
    free_at: float = math.inf
    """When that call was over."""


class OneProbe:
    """I12: an open breaker lets nobody through, and then one call of the whole fleet, which decides.

    Asked of the calls that arrive. Who is alone while Redis is away has a breaker of his own.
    """

    name = "I12"

    def __init__(self) -> None:
        self._windows: dict[str, list[_Window]] = defaultdict(list)
        self._deciding: dict[int, _Window] = {}

    def see(self, entry: Entry) -> str | None:
        match entry.seen:
            case BreakerOpened(breaker=breaker, for_s=for_s):
                self._end(breaker, entry.at)
                self._windows[breaker].append(_Window(entry.at, entry.at + for_s))
            case BreakerClosed(breaker=breaker):
                self._end(breaker, entry.at)
            case Struck(fault=fault) if fault.startswith(FORGET):
                self._windows.clear()
                self._deciding.clear()
            case Left(number=number, how=how) if number in self._deciding:
                window = self._deciding.pop(number)
                assert window.probe is not None
                died_s = window.probe.decides_s if how == "died" else 0.0  # nobody told: its time must pass
                window.free_at = max(entry.at, window.probe.at + died_s)
            case Arrived(admission=SimulatedAdmission(alone=False) as admission, number=number):
                return self._judge(admission, number)
        return None

    def _end(self, breaker: str, at: float) -> None:
        for window in self._windows[breaker]:
            window.ended = min(window.ended, at)

    def _judge(self, admission: SimulatedAdmission, number: int) -> str | None:
        for window in self._windows[admission.breaker]:
            if window.began < admission.at < window.ended:
                return self._judge_in(window, admission, number)
        return None

    def _judge_in(self, window: _Window, admission: SimulatedAdmission, number: int) -> str | None:
        if admission.at < window.until - 1e-5:
            return f"{admission.breaker} is open, and let a call through"
        previous = window.probe
        if previous is not None and admission.at < previous.at:  # it was held up, and the other decides
            over = admission.at + admission.decides_s <= previous.at
            return None if over else f"a second call decides about {admission.breaker}"
        if previous is not None and admission.at < min(window.free_at, previous.at + previous.decides_s):
            return f"a second call decides about {admission.breaker}"
        self._deciding.pop(window.number, None)
        window.probe, window.number, window.free_at = admission, number, math.inf
        self._deciding[number] = window
        return None


class FewRetries:
    """I10: retries of one process never become the load of an account.

    Its budget (policy/limits/retry_budget.py) gives three each second, or a share of the calls.
    """

    name = "I10"
    window_s = 3.0
    most = 12
    """Three in each second that a window meets."""
    share = 0.2

    def __init__(self) -> None:
        self._sent: set[str] = set()
        self._seen: dict[tuple[str, str], deque[tuple[float, bool]]] = defaultdict(deque)

    def see(self, entry: Entry) -> str | None:
        if not isinstance(entry.seen, Arrived) or not entry.seen.call:
            return None
        call, is_retry = entry.seen.call, entry.seen.call in self._sent
        if entry.seen.status == 401:  # a newer token is no retry
            self._sent.discard(call)
        else:
            self._sent.add(call)
        lately = self._seen[entry.process, entry.seen.account]
        lately.append((entry.at, is_retry))
        while lately[0][0] < entry.at - self.window_s:
            lately.popleft()
        retries = sum(again for _, again in lately)
        if retries <= self.most + self.share * (len(lately) - retries):
            return None
        return f"{retries} of {len(lately)} calls of {entry.seen.account} in {self.window_s:g} s were retries"
