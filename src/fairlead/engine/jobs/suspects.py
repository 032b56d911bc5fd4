"""The decision when a worker claims suspects, how long it waits to be idle, and what may start meanwhile.

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
monotonic clock, and nothing here waits.

Spec: R3.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from fairlead.policy.jobs.lane import is_internal_kind

IDLE_WAIT_S = 15.0
"""How long nothing starts while a process waits to be idle, at first.

Most jobs end within it, and refreshes can wait that long: they start minutes before a token expires.
"""
MAX_IDLE_WAIT_S = 60.0
"""The longest such wait: all attempts of one refresh have 50 s (R9)."""
SUSPECTS_TURN_S, MAX_SUSPECTS_TURN_S = 5.0, 60.0
"""How long suspects may follow each other before other work starts again.

It is 5 s, or twice the time that the process took to become idle; at most 60 s.
"""
SHORT_TIMEOUT_S = 60.0
"""A kind of this timeout or less (the default) is short."""
MAX_ROOM_S = 300.0
"""The longest time for which a process makes room without claiming a suspect; another one may hold it."""
MAX_MISSED_CLAIMS, CLAIM_RETRY_S = 3, 1.0
"""How many claims in a row may return nothing after room was made, and the time between them.

Other processes hold suspects for a moment to see whether there are any.
"""


def longest_run_s(kind: str, timeout_s: float) -> float:
    """Return the longest time that a job of *kind* is assumed to run.

    An internal job is assumed to end within 15 s whatever its timeout, so that tokens are refreshed while the
    process makes room.

    >>> longest_run_s("report", 3600.0), longest_run_s("token.refresh", 90.0)
    (3600.0, 15.0)
    """
    return min(timeout_s, IDLE_WAIT_S) if is_internal_kind(kind) else timeout_s


class SuspectSchedule:
    """The state that decides when one worker runs suspects and when it runs other work.

    The caller reports what happened by the `record_...` methods, and asks before each claim.

    Args:
        now_mono: The time at which the worker starts.
        poll_s: The least seconds between two claims of suspects that return none.
    """

    def __init__(self, now_mono: float, poll_s: float) -> None:
        self._poll_s = poll_s
        self._next_claim_mono = self._other_work_until_mono = self._short_kinds_until_mono = now_mono
        self._held_since_mono: float | None = None  # when the held suspect was claimed
        self._nothing_starts_since_mono: float | None = None  # other work has been stopped for suspects
        self._suspects_since_mono: float | None = None  # when the first suspect of this turn started
        self._idle_timeouts = 0  # how often the process was not idle in time
        self._is_other_work_missing = False  # none was claimed since it was allowed again
        self._room_since_mono: float | None = None
        self._room_by_mono = math.inf
        self._last_claimed_mono = now_mono
        self._missed_claims = 0

    # ---- what to do now ------------------------------------------------------------------------

    @property
    def has_pending(self) -> bool:
        """True if there are suspects for which this process was not idle in time."""
        return self._idle_timeouts > 0

    def should_claim(self, now_mono: float) -> bool:
        """Return whether to claim a suspect, or the next one.

        It is time for a claim, or the process has made room before that, and no claim with room returned none.
        """
        return now_mono >= self._next_claim_mono or (
            self._makes_room(now_mono) and self._missed_claims == 0 and self._has_room(now_mono)
        )

    def update_room_end(self, now_mono: float, max_remaining_s: Callable[[], float]) -> None:
        """Update the time by which all running jobs must have ended, if the process makes room.

        Args:
            now_mono: The monotonic time.
            max_remaining_s: Returns the most seconds that the running jobs may still take.
        """
        if self._makes_room(now_mono):
            self._room_since_mono = now_mono if self._room_since_mono is None else self._room_since_mono
            self._room_by_mono = min(self._room_by_mono, now_mono + max_remaining_s())

    def max_run_s(self, now_mono: float) -> float:
        """Return the most seconds that a job which starts now may take; infinite: any job may start."""
        if self._makes_room(now_mono):
            return self._room_by_mono - now_mono
        return SHORT_TIMEOUT_S if now_mono < self._short_kinds_until_mono else math.inf

    def is_late(self, now_mono: float) -> bool:
        """Return whether the held suspect has waited too long for the process to become idle."""
        return self._held_since_mono is not None and now_mono >= self._held_since_mono + self._idle_wait_s

    def seconds_to_next_check(self, now_mono: float) -> float:
        """Return within how many seconds the caller must check again; infinite: at its next poll."""
        if self._held_since_mono is not None:
            return max(0.0, self._held_since_mono + self._idle_wait_s - now_mono)
        return CLAIM_RETRY_S if self._missed_claims else math.inf

    @property
    def _idle_wait_s(self) -> float:
        """How long a held suspect waits for the process to become idle."""
        return min(IDLE_WAIT_S * max(1, self._idle_timeouts), MAX_IDLE_WAIT_S)

    def _makes_room(self, now_mono: float) -> bool:
        """Return whether only jobs may start that end before the running ones must."""
        return (
            self._idle_timeouts > 0
            and now_mono >= self._other_work_until_mono
            and self._nothing_starts_since_mono is None
        )

    def _has_room(self, now_mono: float) -> bool:
        """Return whether the running jobs end soon enough to claim a suspect."""
        return self._room_by_mono - now_mono <= IDLE_WAIT_S

    # ---- what happened -------------------------------------------------------------------------

    def record_claim_sent(self, now_mono: float) -> None:
        """Record that a claim for a suspect is being sent."""
        self._next_claim_mono = now_mono + self._poll_s

    def record_claimed(self, claimed_mono: float) -> bool:
        """Record that a suspect was claimed, and return whether to hold it until the process is idle.

        If not, because the process still makes room for it, the caller hands it back, so that an idle process may
        take it.

        Args:
            claimed_mono: When the claim was sent.
        """
        self._last_claimed_mono, self._missed_claims = claimed_mono, 0
        if self._makes_room(claimed_mono) and not self._has_room(claimed_mono):
            self._next_claim_mono = claimed_mono + IDLE_WAIT_S
            return False
        self._held_since_mono = claimed_mono
        if self._nothing_starts_since_mono is None:
            self._nothing_starts_since_mono = (
                claimed_mono if self._room_since_mono is None else self._room_since_mono
            )
        return True

    def record_none_claimed(self, now_mono: float) -> None:
        """Record that there was no suspect to claim, and end the turn of suspects.

        If room was made, claim a few times more, because other processes may hold the suspect.
        """
        if self._makes_room(now_mono):
            if self._has_room(now_mono):
                self._missed_claims += 1
                self._next_claim_mono = min(self._next_claim_mono, now_mono + CLAIM_RETRY_S)
            if self._missed_claims < MAX_MISSED_CLAIMS and now_mono < self._last_claimed_mono + MAX_ROOM_S:
                return
        self._idle_timeouts = self._missed_claims = 0
        self._short_kinds_until_mono = self._other_work_until_mono = now_mono
        self._end_suspects_turn()

    def record_started(self, now_mono: float) -> None:
        """Record that the suspect starts alone; from now on it is not handed back."""
        self._held_since_mono = None
        if self._suspects_since_mono is not None:
            return
        self._suspects_since_mono = now_mono
        self._idle_timeouts = min(self._idle_timeouts, 1)
        if self._room_since_mono is not None and now_mono >= self._short_kinds_until_mono:
            self._short_kinds_until_mono = now_mono + (now_mono - self._room_since_mono)

    def record_ended(self, now_mono: float) -> None:
        """Record that the suspect ended.

        The next one follows at once, or other work gets its turn if suspects have had theirs.
        """
        started = now_mono if self._suspects_since_mono is None else self._suspects_since_mono
        took_s = (
            0.0
            if self._nothing_starts_since_mono is None
            else min(started - self._nothing_starts_since_mono, SHORT_TIMEOUT_S)
        )
        self._next_claim_mono = now_mono
        if now_mono - started >= min(max(SUSPECTS_TURN_S, 2 * took_s), MAX_SUSPECTS_TURN_S):
            self._start_other_work_turn(now_mono, took_s + now_mono - started)

    def record_idle_timeout(self, now_mono: float, draw: float) -> None:
        """Record that the process was not idle in time. *draw* keeps processes from waiting in step."""
        assert self._held_since_mono is not None
        waited_s = now_mono - self._held_since_mono
        self._idle_timeouts += 1
        self._start_other_work_turn(now_mono, waited_s * (self._idle_timeouts + draw))

    def record_released(self) -> None:
        """Record that no suspect is held any more. What was reached by making room remains."""
        self._held_since_mono = self._nothing_starts_since_mono = self._suspects_since_mono = None

    def record_other_work(self) -> None:
        """Record that other work was claimed."""
        self._is_other_work_missing = False

    def skip_rest(self, now_mono: float) -> bool:
        """End the turn of other work if none was available, and return whether it ended."""
        if self._is_other_work_missing and now_mono < self._other_work_until_mono:
            self._next_claim_mono = self._other_work_until_mono = now_mono
            return True
        return False

    def _start_other_work_turn(self, now_mono: float, for_s: float) -> None:
        """Give other work a turn of *for_s* seconds, in which no suspect is claimed."""
        self._next_claim_mono = self._other_work_until_mono = now_mono + for_s
        self._is_other_work_missing = True
        self._end_suspects_turn()

    def _end_suspects_turn(self) -> None:
        """Forget the held suspect and the room that was made."""
        self.record_released()
        self._room_since_mono, self._room_by_mono = None, math.inf
