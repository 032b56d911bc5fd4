"""The failure table of SPEC T, attempt by attempt; streaks, ceiling, hints, timeouts (R14, R15)."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.policy.failures.backoff import Jitter
from fairlead.policy.failures.category import RETRIED, TRANSIENT, Category, Failure, job_timeout
from fairlead.policy.failures.hint import DAILY_PARK_CAP_S, HINT_CAP_S
from fairlead.policy.failures.retry import (
    DEFAULT_POLICY,
    DEFAULT_RULES,
    MAX_ATTEMPTS,
    DiscardJob,
    NextStep,
    RetryAt,
    RetryPolicy,
    RetryRule,
    decide,
)

NETWORK, RATE, SERVER = Category.TRANSIENT_NETWORK, Category.TRANSIENT_RATE_LIMIT, Category.TRANSIENT_SERVER
ALMOST_ONE = math.nextafter(1.0, 0.0)


def failure(category: Category, **more: object) -> Failure:
    return Failure(category, "code", "it failed", **more)  # type: ignore[arg-type]


def delay_s(answer: RetryAt | DiscardJob) -> float:
    assert isinstance(answer, RetryAt)
    return answer.delay_s


# SPEC: category → attempts, and the nominal delay d of each of them
SPEC = {
    NETWORK: (5, [1, 2, 4, 8, 16]),
    RATE: (10, [5, 10, 20, 40, 60, 60, 60, 60, 60, 60]),
    SERVER: (3, [2, 4, 8]),
}
ROWS = [(category, streak, d) for category, (_, delays) in SPEC.items() for streak, d in enumerate(delays)]


@pytest.mark.parametrize(("category", "streak", "d"), ROWS)
def test_each_retry_of_the_table(category: Category, streak: int, d: float) -> None:
    answers = [
        decide(failure(category), {category: streak}, streak + 1, draw=draw)
        for draw in (0.0, 0.5, ALMOST_ONE)
    ]
    expected = [d / 2, d * 0.75, d] if category is RATE else [0, d / 2, d]
    assert [delay_s(answer) for answer in answers] == pytest.approx(expected)
    assert all(answer.streaks == {category: streak + 1} for answer in answers)


@pytest.mark.parametrize(("category", "attempts"), [(category, row[0]) for category, row in SPEC.items()])
def test_after_the_last_retry_it_is_dead(category: Category, attempts: int) -> None:
    answer = decide(failure(category), {category: attempts}, attempts + 1, draw=0)
    assert isinstance(answer, DiscardJob)
    assert answer.streaks == {category: attempts + 1}
    assert str(attempts) in answer.why
    assert answer.then is NextStep.REVIEW


@pytest.mark.parametrize(
    ("category", "then"),
    [
        (Category.PERMANENT_AUTH, NextStep.REAUTHORIZE),
        (Category.PERMANENT_CONFIG, NextStep.FIX),
        (Category.PERMANENT_PERMISSION, NextStep.FIX),
        (Category.PERMANENT_REQUEST, NextStep.REVIEW),
    ],
)
def test_permanent_failures_are_dead_at_once_hint_or_not(category: Category, then: NextStep) -> None:
    for hint_s in (None, 5.0):
        answer = decide(failure(category, hint_s=hint_s), {}, 1, draw=0)
        assert answer == DiscardJob({category: 1}, f"{category} is not retried", then)


def test_the_table_rules_all_eight_categories() -> None:
    assert set(DEFAULT_RULES) == set(Category)
    assert {category for category, rule in DEFAULT_RULES.items() if rule.attempts} == RETRIED
    handler = DEFAULT_RULES[Category.HANDLER_ERROR]
    assert (handler.attempts, handler.base_s, handler.cap_s, handler.jitter) == (3, 1.0, 30.0, Jitter.FULL)
    assert {category for category in Category if category.transient} == TRANSIENT


def test_mercado_libre_scales_the_base_by_one_and_a_half() -> None:
    assert delay_s(decide(failure(NETWORK), {}, 1, draw=0.5, factor=1.5)) == 0.75
    assert delay_s(decide(failure(NETWORK), {NETWORK: 4}, 5, draw=0.5, factor=1.5)) == 12
    assert delay_s(decide(failure(RATE), {RATE: 9}, 10, draw=ALMOST_ONE, factor=1.5)) == pytest.approx(60)


# ---- several categories in one life (R14) ------------------------------------------------------


def test_each_category_counts_against_its_own_limit() -> None:
    streaks: dict[str, int] = {}
    for attempt, category in enumerate([NETWORK, SERVER] * 3, start=1):  # 3 of each: SERVER's limit is 3
        answer = decide(failure(category), streaks, attempt, draw=0)
        assert isinstance(answer, RetryAt)
        streaks = dict(answer.streaks)
    assert streaks == {NETWORK: 3, SERVER: 3}
    assert isinstance(decide(failure(SERVER), streaks, 7, draw=0), DiscardJob)
    decision = decide(failure(NETWORK), streaks, 7, draw=0.5)
    assert delay_s(decision) == 4  # NETWORK's fourth, not the seventh of anything


def test_another_category_in_between_forgives_nothing() -> None:
    streaks: dict[str, int] = {NETWORK: 5, RATE: 2}
    assert isinstance(decide(failure(NETWORK), streaks, 8, draw=0), DiscardJob)


def test_streaks_are_not_changed_in_place_and_unknown_ones_are_kept() -> None:
    streaks = {"transient_network": 1, "from_a_newer_version": 4}
    answer = decide(failure(NETWORK), streaks, 6, draw=0)
    assert streaks["transient_network"] == 1
    assert answer.streaks == {"transient_network": 2, "from_a_newer_version": 4}


def test_the_ceiling_holds_over_all_categories() -> None:
    patient = RetryPolicy.uniform(20, base_s=1, cap_s=2, jitter=Jitter.FULL)
    assert isinstance(decide(failure(NETWORK), {NETWORK: 10}, 19, draw=0, policy=patient), RetryAt)
    answer = decide(failure(NETWORK), {NETWORK: 10}, 20, draw=0, policy=patient)
    assert isinstance(answer, DiscardJob)
    assert "ceiling" in answer.why


# ---- hints (R15) -------------------------------------------------------------------------------


@pytest.mark.parametrize("category", sorted(TRANSIENT))
def test_a_hint_rules_over_the_backoff(category: Category) -> None:
    answers = [decide(failure(category, hint_s=120.0), {}, 1, draw=draw) for draw in (0, 0.5)]
    assert [delay_s(answer) for answer in answers] == [120, 126]


def test_the_spread_of_a_short_hint_is_the_backoff() -> None:
    assert delay_s(decide(failure(RATE, hint_s=2.0), {RATE: 1}, 2, draw=0.5)) == 2 + 5


def test_a_daily_limit_parks_to_its_reset_within_a_day() -> None:
    parked = decide(failure(RATE, hint_s=36_000.0, daily_limit=True), {}, 1, draw=0)
    assert delay_s(parked) == 36_000
    assert delay_s(decide(failure(RATE, hint_s=36_000.0), {}, 1, draw=0)) == HINT_CAP_S
    assert delay_s(decide(failure(RATE, hint_s=1e9, daily_limit=True), {}, 1, draw=0)) == DAILY_PARK_CAP_S


# ---- timeouts (Q5) -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ran_s", "wait_s"), [(0, 60), (29.999, 60), (30, 180), (44.999, 180), (45, 300), (60, 300), (1e6, 300)]
)
def test_after_a_timeout_the_wait_goes_by_the_run_time(ran_s: float, wait_s: float) -> None:
    timed_out = job_timeout(ran_s, 60)
    assert timed_out.category is NETWORK
    assert timed_out.code == "job_timeout"
    assert delay_s(decide(timed_out, {}, 1, draw=0)) == wait_s
    assert delay_s(decide(timed_out, {}, 1, draw=ALMOST_ONE)) == pytest.approx(wait_s * 1.1)


def test_timeouts_count_as_network_failures() -> None:
    assert isinstance(decide(job_timeout(60, 60), {NETWORK: 5}, 6, draw=0), DiscardJob)


# ---- policies of kinds -------------------------------------------------------------------------


def test_mail_retries_four_times_spread_by_a_quarter() -> None:
    mail = RetryPolicy.uniform(4, base_s=1, cap_s=60, jitter=Jitter.PROPORTIONAL)
    assert mail.ceiling == 5
    for category in TRANSIENT:
        waits = [
            delay_s(decide(failure(category), {category: n}, n + 1, draw=0, policy=mail)) for n in range(4)
        ]
        assert waits == [0.75, 1.5, 3, 6]
        assert isinstance(decide(failure(category), {category: 4}, 5, draw=0, policy=mail), DiscardJob)
    dead = decide(failure(Category.PERMANENT_AUTH), {}, 1, draw=0, policy=mail)
    assert isinstance(dead, DiscardJob)
    assert dead.then is NextStep.REAUTHORIZE


@pytest.mark.parametrize(
    "row", [{"attempts": -1}, {"base_s": 0}, {"base_s": 31}, {"cap_s": math.inf}, {"base_s": math.nan}]
)
def test_an_impossible_rule_never_starts(row: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="hint:"):
        RetryRule(**row)  # type: ignore[arg-type]


def test_an_impossible_policy_never_starts() -> None:
    with pytest.raises(ValueError, match="permanent_auth"):
        RetryPolicy({key: rule for key, rule in DEFAULT_RULES.items() if key is not Category.PERMANENT_AUTH})
    for ceiling in (0, MAX_ATTEMPTS + 1):
        with pytest.raises(ValueError, match="hint:"):
            RetryPolicy(ceiling=ceiling)


def test_a_failure_says_why() -> None:
    with pytest.raises(ValueError, match="reason"):
        Failure(NETWORK, "code", "  ")


# ---- properties --------------------------------------------------------------------------------

failures = st.builds(
    Failure,
    category=st.sampled_from(Category),
    code=st.just("code"),
    reason=st.just("it failed"),
    hint_s=st.none() | st.floats(0, 1e11),
    daily_limit=st.booleans(),
)
streak_maps = st.dictionaries(st.sampled_from([c.value for c in Category]), st.integers(0, 25))


@given(failures, streak_maps, st.integers(1, 40), st.floats(0, 1, exclude_max=True), st.floats(0.5, 3))
def test_a_wait_keeps_its_bounds(
    failed: Failure, streaks: dict[str, int], attempts: int, draw: float, factor: float
) -> None:
    answer = decide(failed, streaks, attempts, draw=draw, factor=factor)
    assert answer.streaks[failed.category] == streaks.get(failed.category, 0) + 1
    if isinstance(answer, DiscardJob):
        assert answer.why
        return
    rule = DEFAULT_RULES[failed.category]
    assert streaks.get(failed.category, 0) < rule.attempts
    assert attempts < MAX_ATTEMPTS
    if failed.hint_s is None:
        assert 0 <= answer.delay_s <= rule.cap_s
    else:
        asked_s = min(failed.hint_s, DAILY_PARK_CAP_S if failed.daily_limit else HINT_CAP_S)
        assert asked_s <= answer.delay_s <= asked_s + max(rule.cap_s, asked_s / 10)


@given(st.lists(st.sampled_from(Category), min_size=1, max_size=60))
def test_every_life_ends(categories: list[Category]) -> None:
    streaks: dict[str, int] = {}
    for attempt, category in enumerate(categories, start=1):
        answer = decide(failure(category), streaks, attempt, draw=0.5, policy=DEFAULT_POLICY)
        if isinstance(answer, DiscardJob):
            return
        streaks = dict(answer.streaks)
    assert len(categories) < MAX_ATTEMPTS
