"""When a worker stands still for a suspect, and what it begins meanwhile."""

from __future__ import annotations

import math

import pytest

from fairlead.engine.jobs.suspects import (
    CLAIM_RETRY_S,
    IDLE_WAIT_S,
    MAX_MISSED_CLAIMS,
    MAX_ROOM_S,
    MAX_SUSPECTS_TURN_S,
    SHORT_TIMEOUT_S,
    SUSPECTS_TURN_S,
    SuspectSchedule,
)

HOUR_S = 3600.0


def stood_in_vain(left_s: float) -> tuple[SuspectSchedule, float]:
    """Turns after a first try beside a job that may take *left_s* more; the time at which room is made."""
    turns = SuspectSchedule(0.0, poll_s=1.0)
    assert turns.should_claim(0.0)
    turns.record_claim_sent(0.0)
    assert turns.record_claimed(0.0)
    assert not turns.is_late(IDLE_WAIT_S - 0.1)
    assert turns.is_late(IDLE_WAIT_S)
    turns.record_idle_timeout(IDLE_WAIT_S, draw=0.5)
    now = IDLE_WAIT_S + 1.5 * IDLE_WAIT_S
    assert not turns.should_claim(now - 0.1)
    assert turns.max_run_s(now - 0.1) == math.inf  # other work as ever
    turns.update_room_end(now, lambda: left_s)
    assert turns.should_claim(now)
    turns.record_claim_sent(now)
    return turns, now


def test_room_comes_nearer_and_never_goes_back() -> None:
    turns, now = stood_in_vain(HOUR_S)
    assert not turns.record_claimed(now)  # whoever is alone may have it
    assert not turns.should_claim(now + IDLE_WAIT_S - 1)
    turns.update_room_end(now + 10, lambda: HOUR_S)
    assert turns.max_run_s(now + 10) == HOUR_S - 10
    turns.update_room_end(now + 20, lambda: 30.0)  # the long one has ended
    assert turns.max_run_s(now + 20) == 30
    assert turns.should_claim(now + 20 + IDLE_WAIT_S)
    assert turns.record_claimed(now + 20 + IDLE_WAIT_S)


def test_a_suspect_that_others_hold_for_a_moment_is_not_forgotten() -> None:
    turns, now = stood_in_vain(HOUR_S)
    turns.record_claimed(now)
    for later in range(1, int(MAX_ROOM_S)):
        turns.record_none_claimed(now + later)
        assert turns.has_pending
    turns.record_none_claimed(now + MAX_ROOM_S)
    assert not turns.has_pending
    assert turns.max_run_s(now + MAX_ROOM_S) == math.inf


def test_room_is_not_kept_for_nobody() -> None:
    turns, now = stood_in_vain(1.0)
    for _ in range(MAX_MISSED_CLAIMS - 1):
        turns.record_none_claimed(now)
        assert turns.has_pending
        assert not turns.should_claim(now)  # a look at a time
        assert turns.seconds_to_next_check(now) == CLAIM_RETRY_S
        now += CLAIM_RETRY_S
        assert turns.should_claim(now)
        turns.record_claim_sent(now)
    turns.record_none_claimed(now)
    assert not turns.has_pending


@pytest.mark.parametrize(
    ("took_s", "for_s"),
    [(0.0, SUSPECTS_TURN_S), (1.0, SUSPECTS_TURN_S), (10.0, 20.0), (14.0, 28.0), (40.0, MAX_SUSPECTS_TURN_S)],
)
def test_how_long_suspects_follow_each_other(took_s: float, for_s: float) -> None:
    turns = SuspectSchedule(0.0, poll_s=1.0)
    turns.record_claimed(0.0)
    turns.record_started(took_s)
    turns.record_ended(took_s + for_s - 0.1)
    assert turns.should_claim(took_s + for_s - 0.1)
    turns.record_claimed(took_s + for_s - 0.1)
    turns.record_started(took_s + for_s)
    over = took_s + for_s + 0.1
    turns.record_ended(over)
    assert not turns.should_claim(over + over - 0.1)  # others have as long as all that took
    assert turns.should_claim(over + over)


def test_after_long_room_short_kinds_have_the_turns_between() -> None:
    turns, start_mono = stood_in_vain(HOUR_S)
    turns.record_claimed(start_mono)
    turns.update_room_end(start_mono + HOUR_S, lambda: 0.0)
    now = start_mono + HOUR_S
    assert turns.record_claimed(now)
    turns.record_started(now)
    turns.record_ended(now + 100)
    assert turns.max_run_s(now + 101) == SHORT_TIMEOUT_S
    rest_s = 100 + SHORT_TIMEOUT_S
    assert turns.should_claim(now + 100 + rest_s)
    assert not turns.should_claim(now + 99 + rest_s)


def test_suspect_without_waiting_work_starts_no_pause() -> None:
    turns = SuspectSchedule(0.0, poll_s=1.0)
    turns.record_claimed(0.0)
    turns.record_started(0.0)
    turns.record_ended(30.0)
    assert not turns.should_claim(30.0)
    assert turns.skip_rest(30.0)
    assert turns.should_claim(30.0)
    turns.record_claimed(30.0)
    turns.record_started(30.0)
    turns.record_ended(60.0)
    turns.record_other_work()  # somebody had
    assert not turns.skip_rest(61.0)
    assert not turns.should_claim(61.0)
