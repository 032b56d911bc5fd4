"""An entry's life under the processor (Q9, Q10, R14, R19), how it is closed, and the bound of a queue."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.errors import InvalidInputError
from fairlead.policy.failures.category import TRANSIENT, Category
from fairlead.policy.jobs.dead_letter import (
    Abandon,
    Action,
    Bound,
    Closed,
    DeadLetterRules,
    LastNotice,
    RedriveNow,
    StartReauth,
    WaitForPerson,
    WaitUntil,
    action_in_s,
    bound_verdict,
    check_closing,
    first_action,
    next_action,
)
from fairlead.policy.jobs.states import DeadLetterStatus, Resolution

T0 = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)
MINUTE, DAY = timedelta(minutes=1), timedelta(days=1)
OTHERS = sorted(set(Category) - TRANSIENT - {Category.PERMANENT_AUTH})


@dataclass(frozen=True)
class Entry:
    category: str = "transient_network"
    code: str = "timeout"
    status: str = "pending_review"
    replays: int = 0
    replay_job_id: object | None = None
    reauth_started_at: datetime | None = None
    last_notice_at: datetime | None = None
    first_at: datetime = T0
    last_at: datetime = T0
    regranted: bool = False


AUTH = Entry(category="permanent_auth", code="invalid_grant", reauth_started_at=T0)


RULES = DeadLetterRules(redrive_after_s=6 * 3600.0)
HOUR = timedelta(hours=1)

# ---- transient entries -------------------------------------------------------------------------


@pytest.mark.parametrize("category", sorted(TRANSIENT))
def test_a_transient_entry_is_replayed_after_its_cool_down(category: str) -> None:
    entry = Entry(category=category)
    assert next_action(entry, T0) == WaitUntil(T0 + 5 * MINUTE)
    assert next_action(entry, T0 + 5 * MINUTE) == RedriveNow()
    assert next_action(entry, T0 + 59 * MINUTE) == RedriveNow()


@pytest.mark.parametrize("minutes", [60, 61, 24 * 60])
def test_an_hour_old_it_waits_for_a_person(minutes: int) -> None:
    assert next_action(Entry(), T0 + minutes * MINUTE) == WaitForPerson(T0 + 7 * DAY)


def test_the_cool_down_counts_from_its_last_death() -> None:
    entry = Entry(replays=1, last_at=T0 + 20 * MINUTE)
    assert next_action(entry, T0 + 24 * MINUTE) == WaitUntil(T0 + 25 * MINUTE)
    assert next_action(entry, T0 + 25 * MINUTE) == RedriveNow()


def test_a_cool_down_that_ends_beyond_the_hour_is_not_waited_for() -> None:
    assert next_action(Entry(last_at=T0 + 56 * MINUTE), T0 + 57 * MINUTE) == WaitForPerson(T0 + 7 * DAY)


def test_the_last_replay_can_be_kept_for_the_end_of_a_long_outage() -> None:
    assert next_action(Entry(replays=1), T0 + 5 * MINUTE, RULES) == RedriveNow()
    entry = Entry(replays=2, last_at=T0 + 30 * MINUTE)
    late = T0 + 30 * MINUTE + 6 * HOUR
    assert next_action(entry, T0 + 40 * MINUTE, RULES) == WaitUntil(late)
    assert next_action(entry, late, RULES) == RedriveNow()
    assert next_action(entry, T0 + 40 * MINUTE) == RedriveNow()  # without the setting: within the window
    assert next_action(replace(entry, replays=3), late, RULES) == WaitForPerson(T0 + 7 * DAY)


def test_a_kept_replay_is_made_however_old_the_entry_is_but_not_beyond_its_end() -> None:
    assert next_action(Entry(), T0 + 2 * DAY, RULES) == RedriveNow()  # the processor was away
    again = Entry(replays=2, last_at=T0 + 7 * DAY - HOUR)
    assert next_action(again, T0 + 7 * DAY - HOUR, RULES) == WaitForPerson(T0 + 7 * DAY)
    for code in ("poison", "expired"):
        assert next_action(Entry(code=code), T0 + 7 * HOUR, RULES) == WaitForPerson(T0 + 7 * DAY)
    off = DeadLetterRules(max_replays=0, redrive_after_s=60.0)
    assert next_action(Entry(), T0 + HOUR, off) == WaitForPerson(T0 + 7 * DAY)


@pytest.mark.parametrize(("replays", "expected"), [(2, RedriveNow()), (3, WaitForPerson(T0 + 7 * DAY))])
def test_three_replays_at_most(replays: int, expected: Action) -> None:
    assert next_action(Entry(replays=replays), T0 + 10 * MINUTE) == expected


@pytest.mark.parametrize("code", ["poison", "expired"])
def test_job_that_kills_workers_or_is_out_of_time_is_never_replayed(code: str) -> None:
    assert next_action(Entry(code=code), T0 + 10 * MINUTE) == WaitForPerson(T0 + 7 * DAY)


def test_a_running_replay_is_waited_for_and_never_abandoned() -> None:
    for age in (10 * MINUTE, 8 * DAY):
        now = T0 + age
        assert next_action(Entry(replays=1, replay_job_id="job"), now) == WaitUntil(now + 5 * MINUTE)
        assert next_action(replace(AUTH, replay_job_id="job"), now) == WaitUntil(now + 5 * MINUTE)


def test_replays_can_be_switched_off() -> None:
    rules = DeadLetterRules(max_replays=0)
    assert next_action(Entry(), T0 + 10 * MINUTE, rules) == WaitForPerson(T0 + 7 * DAY)


def test_a_processor_each_quarter_of_an_hour_finds_time_for_three_replays() -> None:
    for phase_s in range(0, 900, 60):
        entry, attempt_count = Entry(), 0
        for run in range(8):
            now = T0 + timedelta(seconds=phase_s + 900 * run)
            if next_action(entry, now) == RedriveNow():
                attempt_count += 1
                entry = replace(
                    entry, replays=attempt_count, last_at=now + MINUTE
                )  # it fails within a minute
        assert attempt_count == 3, phase_s


# ---- entries for a person ----------------------------------------------------------------------


@pytest.mark.parametrize("category", OTHERS)
def test_permanent_entries_wait_for_a_person(category: str) -> None:
    for age in (timedelta(0), MINUTE, 6 * DAY):
        assert next_action(Entry(category=category), T0 + age) == WaitForPerson(T0 + 7 * DAY)


@pytest.mark.parametrize("category", [*OTHERS, *sorted(TRANSIENT)])
def test_after_seven_days_they_are_abandoned_with_a_reason(category: str) -> None:
    answer = next_action(Entry(category=category), T0 + 7 * DAY)
    assert isinstance(answer, Abandon)
    assert "7 days" in answer.reason


# ---- auth entries ------------------------------------------------------------------------------


def test_reauthorisation_is_started_once() -> None:
    assert next_action(replace(AUTH, reauth_started_at=None), T0) == StartReauth()
    assert next_action(replace(AUTH, reauth_started_at=None), T0 + 30 * DAY) == StartReauth()
    assert next_action(AUTH, T0) == WaitForPerson(T0 + 6 * DAY)


def test_work_that_asked_for_a_grant_is_done_once_it_is_there() -> None:
    assert next_action(replace(AUTH, regranted=True), T0 + 8 * DAY) == RedriveNow()
    assert isinstance(next_action(replace(AUTH, regranted=True, replay_job_id=1), T0), WaitUntil)


def test_an_auth_entry_ends_only_after_a_last_notice() -> None:
    assert next_action(AUTH, T0 + 6 * DAY) == LastNotice(abandon_at=T0 + 7 * DAY)
    entry = replace(AUTH, last_notice_at=T0 + 6 * DAY)
    assert next_action(entry, T0 + 6.5 * DAY) == WaitForPerson(T0 + 7 * DAY)
    assert isinstance(next_action(entry, T0 + 7 * DAY), Abandon)


def test_a_processor_that_was_away_still_gives_the_customer_a_day() -> None:
    assert next_action(AUTH, T0 + 20 * DAY) == LastNotice(abandon_at=T0 + 21 * DAY)
    entry = replace(AUTH, last_notice_at=T0 + 20 * DAY)
    assert next_action(entry, T0 + 20.5 * DAY) == WaitForPerson(T0 + 21 * DAY)
    assert isinstance(next_action(entry, T0 + 21 * DAY), Abandon)


# ---- closed entries, first actions, times ------------------------------------------------------


@pytest.mark.parametrize("status", ["auto_resolved", "manual_resolved", "abandoned"])
@pytest.mark.parametrize("category", Category)
def test_a_closed_entry_is_left_alone(status: str, category: str) -> None:
    assert next_action(Entry(category=category, status=status), T0 + 30 * DAY) == Closed()


@pytest.mark.parametrize(
    ("category", "code", "in_s"),
    [
        (Category.TRANSIENT_SERVER, "http_503", 300),
        (Category.TRANSIENT_NETWORK, "poison", 7 * 86_400),
        (Category.PERMANENT_AUTH, "invalid_grant", 0),
        (Category.PERMANENT_CONFIG, "invalid_client", 7 * 86_400),
    ],
)
def test_when_the_processor_first_looks(category: Category, code: str, in_s: float) -> None:
    assert action_in_s(first_action(category, code, T0), T0) == in_s


def test_when_the_processor_looks_again() -> None:
    assert action_in_s(WaitUntil(T0 + MINUTE), T0) == 60
    assert action_in_s(WaitForPerson(T0 - MINUTE), T0) == 0
    assert action_in_s(Closed(), T0) is None
    for action in (RedriveNow(), StartReauth(), Abandon("old"), LastNotice(T0)):
        assert action_in_s(action, T0) == 0


# ---- closing and bounds ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "fitting"),
    [
        ("pending_review", set()),
        ("auto_resolved", {"redrive", "reauthorize", "manual_refresh"}),
        ("manual_resolved", {"redrive", "reauthorize", "manual_refresh", "config_fix"}),
        ("abandoned", {"abandoned"}),
    ],
)
def test_which_resolution_fits_which_status(status: str, fitting: set[str]) -> None:
    for resolution in Resolution:
        if resolution in fitting:
            check_closing(DeadLetterStatus(status), resolution, "ana", "the shop was closed")
        else:
            with pytest.raises(InvalidInputError, match="hint: fitting resolutions"):
                check_closing(DeadLetterStatus(status), resolution, "ana", "the shop was closed")


@pytest.mark.parametrize(("by", "reason"), [("", "x"), ("ana", ""), ("ana", " \n"), (" ", "x")])
def test_an_entry_is_closed_only_with_an_author_and_a_reason(by: str, reason: str) -> None:
    with pytest.raises(InvalidInputError, match=r"without an? (author|reason)"):
        check_closing(DeadLetterStatus.ABANDONED, Resolution.ABANDONED, by, reason)


@pytest.mark.parametrize(
    ("open_entries", "closed_entries", "verdict"),
    [
        (0, 0, Bound(0, refuse=False)),
        (9_999, 1, Bound(0, refuse=False)),
        (5_000, 6_000, Bound(1_000, refuse=False)),
        (9_999, 500, Bound(499, refuse=False)),
        (10_000, 0, Bound(0, refuse=True)),
        (10_000, 7, Bound(7, refuse=True)),
        (12_000, 7, Bound(7, refuse=True)),
    ],
)
def test_the_bound_prunes_closed_entries_only(open_entries: int, closed_entries: int, verdict: Bound) -> None:
    assert bound_verdict(open_entries, closed_entries) == verdict


@pytest.mark.parametrize(
    "change",
    [
        {"notice_before_s": 8 * 86_400.0},
        {"notice_before_s": 0.0},
        {"abandon_after_s": -1.0},
        {"cool_down_s": -1.0},
        {"replay_window_s": -1.0},
        {"max_replays": -1},
        {"max_replays": 4},
        {"batch": 0},
        {"batch": 20_000},
    ],
    ids=str,
)
def test_impossible_rules_never_start(change: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="hint:"):
        DeadLetterRules(**change)  # type: ignore[arg-type]


# ---- a whole life ------------------------------------------------------------------------------


@settings(max_examples=80)
@given(
    category=st.sampled_from(Category),
    step_s=st.integers(600, 86_400),
    replay_s=st.integers(1, 7200),
    code=st.sampled_from(["timeout", "poison"]),
)
def test_an_entry_nobody_touches_is_replayed_three_times_at_most_told_once_and_ends(
    category: Category, step_s: int, replay_s: int, code: str
) -> None:
    """The processor runs each *step_s*, and every replay fails after *replay_s*."""
    entry, now = Entry(category=category, code=code), T0
    done: list[Action] = []
    while not done or not isinstance(done[-1], Abandon):
        now += timedelta(seconds=step_s)
        if entry.replay_job_id is not None and now >= entry.last_at + timedelta(seconds=replay_s):
            entry = replace(entry, replay_job_id=None, last_at=entry.last_at + timedelta(seconds=replay_s))
        action = next_action(entry, now)
        if action_in_s(action, now) == 0:
            done.append(action)
        if isinstance(action, RedriveNow):
            entry = replace(entry, replays=entry.replays + 1, replay_job_id="job", last_at=now)
        elif isinstance(action, StartReauth):
            entry = replace(entry, reauth_started_at=now)
        elif isinstance(action, LastNotice):
            entry = replace(entry, last_notice_at=now)
        assert now < T0 + 12 * DAY, "it never ends"
    kinds = [type(action).__name__ for action in done]
    assert kinds.count("RedriveNow") <= 3
    assert bool(entry.replays) <= (category in TRANSIENT and code != "poison")
    auth = category is Category.PERMANENT_AUTH
    assert kinds.count("StartReauth") == kinds.count("LastNotice") == int(auth)
    assert now - T0 >= 7 * DAY
