"""When a worker asks for a suspect, how long it waits to be alone with it, and what may begin meanwhile (R3).

    ask > stand still until alone > suspects, one after the other > other work, for as long > ask
             └─ not alone in time: hand it back > other work > make room > ask

Nothing begins while a process stands still, critical refreshes included; so it stands for 15 s. What it could
not wait for within these may run for an hour, by its kind's timeout. Then it *makes room*: it begins only
what ends, by its timeout, before the last of what runs already must. That moment never moves back, so each
process is alone in the end, however long its jobs are, and until then it works. A kind of our own counts as
ending within the 15 s: tokens are refreshed for as long as anything longer runs. Suspects are not held
meanwhile: a process that is alone sooner takes them. Where room was made and 15 s were still too few, as
beside refreshes at a slow provider, the next time is 15 s longer, up to a minute.

Where room was made for long, for as long again only short kinds begin between suspects, or every turn would
cost as much. Handlers that outlive their timeouts keep a process from being alone: it tries less and less
often. Times are of the monotonic clock; nothing here waits.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from fairlead.policy.jobs.lane import is_internal_kind

PATIENCE_S = 15.0
"""How long nothing begins while a process waits to be alone, at first. Most jobs end within it, and refreshes
bear it: they are begun minutes before a token expires."""
MOST_PATIENCE_S = 60.0
"""The most that it comes to: all tries of one refresh have 50 s (R9)."""
ALONE_S, MOST_ALONE_S = 5.0, 60.0
"""How long suspects may follow each other before other work has its turn again: 5 s, or twice what it took to
be alone, so that this is the smaller part; at most 60 s."""
SHORT_S = 60.0
"""A kind of this timeout or less (the default) is short."""
FORGET_S = 300.0
"""Room is made for so long without a suspect to be seen; another process may be holding it."""
MOST_MISSED, LOOK_S = 3, 1.0
"""How often it is asked in vain where room was made, and the time between: others take suspects for a moment,
to see that there are any."""


def longest_run_s(kind: str, timeout_s: float) -> float:
    """How long a job of *kind* is taken to run at most.

    >>> longest_run_s("report", 3600.0), longest_run_s("token.refresh", 90.0)
    (3600.0, 15.0)
    """
    return min(timeout_s, PATIENCE_S) if is_internal_kind(kind) else timeout_s


class SuspectSchedule:
    """The turns of suspects and of other work in one worker."""

    def __init__(self, now: float, poll_s: float) -> None:
        self._poll_s = poll_s
        self._next = self._rest_until = self._short_until = now
        self._held_since: float | None = None  # a suspect that has not begun
        self._still_since: float | None = None  # nothing else begins: for a suspect, or for those after it
        self._alone_since: float | None = None
        self._failed = 0  # times that it was not alone in time
        self._untaken = False  # nothing was found to do since other work had its turn
        self._room_since: float | None = None
        self._room_by = math.inf
        self._seen_at = now
        self._missed = 0

    # ---- what to do now ------------------------------------------------------------------------

    @property
    def has_pending(self) -> bool:
        """Suspects are known that this process could not be alone with."""
        return self._failed > 0

    def should_claim(self, now: float) -> bool:
        """Whether to ask for a suspect, or for the next."""
        return now >= self._next or (self._makes_room(now) and self._missed == 0 and self._has_room(now))

    def observe(self, now: float, runs_s: Callable[[], float]) -> None:
        """Note how far room has come; *runs_s*: how long what runs may take yet, at most."""
        if self._makes_room(now):
            self._room_since = now if self._room_since is None else self._room_since
            self._room_by = min(self._room_by, now + runs_s())

    def max_run_s(self, now: float) -> float:
        """The longest that a job which begins now may take."""
        if self._makes_room(now):
            return self._room_by - now
        return SHORT_S if now < self._short_until else math.inf

    def is_late(self, now: float) -> bool:
        """The suspect that is held has waited long enough to begin."""
        return self._held_since is not None and now >= self._held_since + self._patience_s

    def next_check_s(self, now: float) -> float:
        """When to look again at the latest."""
        if self._held_since is not None:
            return max(0.0, self._held_since + self._patience_s - now)
        return LOOK_S if self._missed else math.inf

    @property
    def _patience_s(self) -> float:
        return min(PATIENCE_S * max(1, self._failed), MOST_PATIENCE_S)

    def _makes_room(self, now: float) -> bool:
        return self._failed > 0 and now >= self._rest_until and self._still_since is None

    def _has_room(self, now: float) -> bool:
        return self._room_by - now <= PATIENCE_S

    # ---- what happened -------------------------------------------------------------------------

    def claim_sent(self, now: float) -> None:
        self._next = now + self._poll_s

    def suspect_claimed(self, asked_at: float) -> bool:
        """There was a suspect; whether to stand still for it. If not, it is for whoever is alone sooner."""
        self._seen_at, self._missed = asked_at, 0
        if self._makes_room(asked_at) and not self._has_room(asked_at):
            self._next = asked_at + PATIENCE_S
            return False
        self._held_since = asked_at
        if self._still_since is None:
            self._still_since = asked_at if self._room_since is None else self._room_since
        return True

    def none_claimed(self, now: float) -> None:
        """There was no suspect: go on as if there had never been one, unless others may be holding it."""
        if self._makes_room(now):
            if self._has_room(now):
                self._missed += 1
                self._next = min(self._next, now + LOOK_S)
            if self._missed < MOST_MISSED and now < self._seen_at + FORGET_S:
                return
        self._failed = self._missed = 0
        self._short_until = self._rest_until = now
        self._end_turn()

    def suspect_started(self, now: float) -> None:
        """The suspect begins, alone: from now on it is not handed back for its waiting."""
        self._held_since = None
        if self._alone_since is not None:
            return
        self._alone_since = now
        self._failed = min(self._failed, 1)
        if self._room_since is not None and now >= self._short_until:
            self._short_until = now + (now - self._room_since)

    def suspect_ended(self, now: float) -> None:
        """The suspect has ended. Most are innocent: the next follows at once, until others waited enough."""
        began = now if self._alone_since is None else self._alone_since
        took_s = 0.0 if self._still_since is None else min(began - self._still_since, SHORT_S)
        self._next = now
        if now - began >= min(max(ALONE_S, 2 * took_s), MOST_ALONE_S):
            self._rest(now, took_s + now - began)

    def timed_out(self, now: float, draw: float) -> None:
        """It was not alone in time. *draw* keeps processes from standing still all together."""
        assert self._held_since is not None
        stood_s = now - self._held_since
        self._failed += 1
        self._rest(now, stood_s * (self._failed + draw))

    def suspect_released(self) -> None:
        """The suspect is not held any more; the room that was made stays."""
        self._held_since = self._still_since = self._alone_since = None

    def other_work_started(self) -> None:
        """Other work was found."""
        self._untaken = False

    def worker_idle(self, now: float) -> bool:
        """Nothing runs, and nothing was to be had; whether suspects may follow, as nobody waited for them."""
        if self._untaken and now < self._rest_until:
            self._next = self._rest_until = now
            return True
        return False

    def _rest(self, now: float, for_s: float) -> None:
        self._next = self._rest_until = now + for_s
        self._untaken = True
        self._end_turn()

    def _end_turn(self) -> None:
        self.suspect_released()
        self._room_since, self._room_by = None, math.inf
