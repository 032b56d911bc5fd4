"""When a worker claims a suspect, how long it waits until it runs nothing else, and what may start meanwhile.

    claim > start nothing until idle > run suspects one by one > other work, for as long > claim
             └─ not idle in time: hand it back > other work > make room > claim

A *suspect* is a job that was running when its process crashed. While a process waits to be idle it starts
nothing, not even critical refreshes, so it waits for 15 s at most. What still runs then may run for an hour.
In that case the process *makes room*: it starts only jobs that end, by their timeout, before the last of its
running jobs must. That time never moves back, so each process becomes idle in the end, and works until then.
An internal kind counts as ending within 15 s, so tokens are refreshed meanwhile. No suspect is held while
room is made, and an idle process may take it. If 15 s were still too short after room was made, the next wait
is 15 s longer, up to a minute.

After making room for long, only short kinds start between suspects for as long again. Handlers that outlive
their timeouts keep a process from becoming idle, so it tries less and less often. All times are of the
monotonic clock, and nothing here waits. Spec: R3.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from fairlead.policy.jobs.lane import is_internal_kind

PATIENCE_S = 15.0
"""How long nothing starts while a process waits to be idle, at first. Most jobs end within it, and refreshes
can wait that long: they start minutes before a token expires."""
MOST_PATIENCE_S = 60.0
"""The longest such wait: all attempts of one refresh have 50 s (R9)."""
ALONE_S, MOST_ALONE_S = 5.0, 60.0
"""How long suspects may follow each other before other work starts again: 5 s, or twice the time it took to
become idle; at most 60 s."""
SHORT_S = 60.0
"""A kind of this timeout or less (the default) is short."""
FORGET_S = 300.0
"""How long room is made without a claimed suspect; another process may be holding it."""
MOST_MISSED, CHECK_S = 3, 1.0
"""How many claims in a row may fail after room was made, and the time between them: other processes hold
suspects for a moment to see whether there are any."""


def longest_run_s(kind: str, timeout_s: float) -> float:
    """Return the longest time that a job of *kind* is assumed to run.

    >>> longest_run_s("report", 3600.0), longest_run_s("token.refresh", 90.0)
    (3600.0, 15.0)
    """
    return min(timeout_s, PATIENCE_S) if is_internal_kind(kind) else timeout_s


class SuspectSchedule:
    """The alternation of suspects and other work in one worker."""

    def __init__(self, now: float, poll_s: float) -> None:
        self._poll_s = poll_s
        self._next = self._rest_until = self._short_until = now
        self._held_since: float | None = None  # a suspect that has not started
        self._still_since: float | None = None  # nothing else starts: for a suspect, or for the next ones
        self._alone_since: float | None = None
        self._failed = 0  # times that it was not idle in time
        self._untaken = False  # no other work was claimed since it may start again
        self._room_since: float | None = None
        self._room_by = math.inf
        self._seen_at = now
        self._missed = 0

    # ---- what to do now ------------------------------------------------------------------------

    @property
    def has_pending(self) -> bool:
        """True if there are suspects for which this process was not idle in time."""
        return self._failed > 0

    def should_claim(self, now: float) -> bool:
        """Return whether to claim a suspect, or the next one."""
        return now >= self._next or (self._makes_room(now) and self._missed == 0 and self._has_room(now))

    def observe(self, now: float, runs_s: Callable[[], float]) -> None:
        """Record how far making room has come.

        Args:
            now: The monotonic time.
            runs_s: Returns the most seconds that the running jobs may still take.
        """
        if self._makes_room(now):
            self._room_since = now if self._room_since is None else self._room_since
            self._room_by = min(self._room_by, now + runs_s())

    def max_run_s(self, now: float) -> float:
        """Return the longest time that a job which starts now may take."""
        if self._makes_room(now):
            return self._room_by - now
        return SHORT_S if now < self._short_until else math.inf

    def is_late(self, now: float) -> bool:
        """Return whether the held suspect has waited too long to start."""
        return self._held_since is not None and now >= self._held_since + self._patience_s

    def next_check_s(self, now: float) -> float:
        """Return the seconds until the next check at the latest."""
        if self._held_since is not None:
            return max(0.0, self._held_since + self._patience_s - now)
        return CHECK_S if self._missed else math.inf

    @property
    def _patience_s(self) -> float:
        return min(PATIENCE_S * max(1, self._failed), MOST_PATIENCE_S)

    def _makes_room(self, now: float) -> bool:
        return self._failed > 0 and now >= self._rest_until and self._still_since is None

    def _has_room(self, now: float) -> bool:
        return self._room_by - now <= PATIENCE_S

    # ---- what happened -------------------------------------------------------------------------

    def claim_sent(self, now: float) -> None:
        """Record that a suspect is being claimed."""
        self._next = now + self._poll_s

    def suspect_claimed(self, asked_at: float) -> bool:
        """Record a claimed suspect, and return whether to hold it. If not, an idle process may take it."""
        self._seen_at, self._missed = asked_at, 0
        if self._makes_room(asked_at) and not self._has_room(asked_at):
            self._next = asked_at + PATIENCE_S
            return False
        self._held_since = asked_at
        if self._still_since is None:
            self._still_since = asked_at if self._room_since is None else self._room_since
        return True

    def none_claimed(self, now: float) -> None:
        """Record that no suspect was claimed. Other processes may be holding it if room was made."""
        if self._makes_room(now):
            if self._has_room(now):
                self._missed += 1
                self._next = min(self._next, now + CHECK_S)
            if self._missed < MOST_MISSED and now < self._seen_at + FORGET_S:
                return
        self._failed = self._missed = 0
        self._short_until = self._rest_until = now
        self._end_turn()

    def suspect_started(self, now: float) -> None:
        """Record that the suspect starts alone; from now on it is not handed back."""
        self._held_since = None
        if self._alone_since is not None:
            return
        self._alone_since = now
        self._failed = min(self._failed, 1)
        if self._room_since is not None and now >= self._short_until:
            self._short_until = now + (now - self._room_since)

    def suspect_ended(self, now: float) -> None:
        """Record that the suspect ended. The next one follows at once, until other work has waited enough."""
        started = now if self._alone_since is None else self._alone_since
        took_s = 0.0 if self._still_since is None else min(started - self._still_since, SHORT_S)
        self._next = now
        if now - started >= min(max(ALONE_S, 2 * took_s), MOST_ALONE_S):
            self._rest(now, took_s + now - started)

    def timed_out(self, now: float, draw: float) -> None:
        """Record that the process was not idle in time. *draw* keeps processes from waiting in step."""
        assert self._held_since is not None
        stood_s = now - self._held_since
        self._failed += 1
        self._rest(now, stood_s * (self._failed + draw))

    def suspect_released(self) -> None:
        """Record that no suspect is held any more; the room that was made remains."""
        self._held_since = self._still_since = self._alone_since = None

    def other_work_started(self) -> None:
        """Record that other work was claimed."""
        self._untaken = False

    def worker_idle(self, now: float) -> bool:
        """Return whether suspects may follow at once, because no other work was available."""
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
