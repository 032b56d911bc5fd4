"""When a worker stands still for a suspect, and what it begins meanwhile."""

from __future__ import annotations

import math

import pytest

from fairlead.engine.jobs.suspects import (
    ALONE_S,
    FORGET_S,
    LOOK_S,
    MOST_ALONE_S,
    MOST_MISSED,
    PATIENCE_S,
    SHORT_S,
    SuspectTurns,
)

HOUR_S = 3600.0


def stood_in_vain(left_s: float) -> tuple[SuspectTurns, float]:
    """Turns after a first try beside a job that may take *left_s* more; the time at which room is made."""
    turns = SuspectTurns(0.0, poll_s=1.0)
    assert turns.asks(0.0)
    turns.asked(0.0)
    assert turns.found(0.0)
    assert not turns.is_late(PATIENCE_S - 0.1)
    assert turns.is_late(PATIENCE_S)
    turns.gave_up(PATIENCE_S, draw=0.5)
    now = PATIENCE_S + 1.5 * PATIENCE_S
    assert not turns.asks(now - 0.1)
    assert turns.limit_s(now - 0.1) == math.inf  # other work as ever
    turns.look(now, lambda: left_s)
    assert turns.asks(now)
    turns.asked(now)
    return turns, now


def test_room_comes_nearer_and_never_goes_back() -> None:
    turns, now = stood_in_vain(HOUR_S)
    assert not turns.found(now)  # whoever is alone may have it
    assert not turns.asks(now + PATIENCE_S - 1)
    turns.look(now + 10, lambda: HOUR_S)
    assert turns.limit_s(now + 10) == HOUR_S - 10
    turns.look(now + 20, lambda: 30.0)  # the long one has ended
    assert turns.limit_s(now + 20) == 30
    assert turns.asks(now + 20 + PATIENCE_S)
    assert turns.found(now + 20 + PATIENCE_S)


def test_a_suspect_that_others_hold_for_a_moment_is_not_forgotten() -> None:
    turns, now = stood_in_vain(HOUR_S)
    turns.found(now)
    for later in range(1, int(FORGET_S)):
        turns.missed(now + later)
        assert turns.waiting
    turns.missed(now + FORGET_S)
    assert not turns.waiting
    assert turns.limit_s(now + FORGET_S) == math.inf


def test_room_is_not_kept_for_nobody() -> None:
    turns, now = stood_in_vain(1.0)
    for _ in range(MOST_MISSED - 1):
        turns.missed(now)
        assert turns.waiting
        assert not turns.asks(now)  # a look at a time
        assert turns.wait_s(now) == LOOK_S
        now += LOOK_S
        assert turns.asks(now)
        turns.asked(now)
    turns.missed(now)
    assert not turns.waiting


@pytest.mark.parametrize(
    ("took_s", "for_s"), [(0.0, ALONE_S), (1.0, ALONE_S), (10.0, 20.0), (14.0, 28.0), (40.0, MOST_ALONE_S)]
)
def test_how_long_suspects_follow_each_other(took_s: float, for_s: float) -> None:
    turns = SuspectTurns(0.0, poll_s=1.0)
    turns.found(0.0)
    turns.started(took_s)
    turns.ended(took_s + for_s - 0.1)
    assert turns.asks(took_s + for_s - 0.1)
    turns.found(took_s + for_s - 0.1)
    turns.started(took_s + for_s)
    over = took_s + for_s + 0.1
    turns.ended(over)
    assert not turns.asks(over + over - 0.1)  # others have as long as all that took
    assert turns.asks(over + over)


def test_after_long_room_short_kinds_have_the_turns_between() -> None:
    turns, began = stood_in_vain(HOUR_S)
    turns.found(began)
    turns.look(began + HOUR_S, lambda: 0.0)
    now = began + HOUR_S
    assert turns.found(now)
    turns.started(now)
    turns.ended(now + 100)
    assert turns.limit_s(now + 101) == SHORT_S
    rest_s = 100 + SHORT_S
    assert turns.asks(now + 100 + rest_s)
    assert not turns.asks(now + 99 + rest_s)


def test_nobody_waited() -> None:
    turns = SuspectTurns(0.0, poll_s=1.0)
    turns.found(0.0)
    turns.started(0.0)
    turns.ended(30.0)
    assert not turns.asks(30.0)
    assert turns.idle(30.0)
    assert turns.asks(30.0)
    turns.found(30.0)
    turns.started(30.0)
    turns.ended(60.0)
    turns.took()  # somebody had
    assert not turns.idle(61.0)
    assert not turns.asks(61.0)
