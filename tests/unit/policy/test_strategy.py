"""How long to wait before the next try, strategy by strategy (C4, R15)."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.policy.failures.backoff import Jitter
from fairlead.policy.failures.hint import DAILY_PARK_CAP_S, HINT_CAP_S
from fairlead.policy.failures.strategy import Next, Strategy, StrategyName
from fairlead.policy.providers.pattern import Pattern

ALL = [Strategy(name, delays_s=(7.0, 8.0) if name == "custom" else ()) for name in StrategyName]


@pytest.mark.parametrize(
    ("name", "delays_s"),
    [
        ("aggressive", [1, 2, 3, 3, 3]),
        ("standard", [5, 10, 20, 20, 20]),
        ("exponential", [1, 2, 4, 8, 16]),
        ("linear", [1, 2, 3, 4, 5]),
        ("constant", [1, 1, 1, 1, 1]),
        ("circuit_breaker", [60] * 5),
        ("parked", [900] * 5),
        ("none", [0] * 5),
    ],
)
def test_the_delays(name: str, delays_s: list[float]) -> None:
    assert [Strategy(StrategyName(name)).nominal_s(attempt) for attempt in range(5)] == delays_s


def test_delays_of_ones_own_and_the_last_repeats() -> None:
    custom = Strategy(StrategyName.CUSTOM, delays_s=(0.5, 9.0))
    assert [custom.nominal_s(attempt) for attempt in range(4)] == [0.5, 9, 9, 9]


@pytest.mark.parametrize(
    ("name", "delays_s"),
    [("exponential", [6, 12, 24, 30, 30]), ("linear", [6, 12, 18, 24, 30]), ("constant", [6] * 5)],
)
def test_base_cap_and_a_providers_factor(name: str, delays_s: list[float]) -> None:
    strategy = Strategy(StrategyName(name), base_s=4.0, cap_s=30.0)
    assert [strategy.nominal_s(attempt, factor=1.5) for attempt in range(5)] == delays_s


def test_a_providers_factor_leaves_listed_delays_as_they_are() -> None:
    assert Strategy(StrategyName.STANDARD).nominal_s(0, factor=1.5) == 5


def test_each_strategy_leads_to_its_next_step() -> None:
    next_by_name = {strategy.name.value: strategy.next for strategy in ALL}
    later = dict.fromkeys(("circuit_breaker", "parked"), Next.LATER)
    retried = ("aggressive", "standard", "exponential", "linear", "constant", "custom")
    assert next_by_name == {**dict.fromkeys(retried, Next.RETRY), **later, "none": Next.OVER}


def test_full_jitter_by_default_and_equal_for_a_limit() -> None:
    full, limit = Strategy(StrategyName.STANDARD), Strategy(StrategyName.STANDARD, jitter=Jitter.EQUAL)
    assert [full.delay_s(0, draw=draw) for draw in (0.0, 0.5)] == [0, 2.5]
    assert [limit.delay_s(0, draw=draw) for draw in (0.0, 0.5)] == [2.5, 3.75]


@pytest.mark.parametrize(
    ("strategy", "category", "jitter"),
    [
        ("standard", None, Jitter.EQUAL),
        ("exponential", None, Jitter.FULL),
        ("exponential", "transient_rate_limit", Jitter.EQUAL),
        ("standard", "transient_server", Jitter.FULL),
    ],
)
def test_a_rule_about_a_limit_spreads_equally(strategy: str, category: str | None, jitter: Jitter) -> None:
    fields = {"name": "a", "http_codes": [400], "patterns": ["x"], "strategy": strategy, "category": category}
    assert Pattern.model_validate(fields).as_strategy().jitter is jitter


# ---- R15


def test_retry_after_120_is_120_s_and_2_is_2_s() -> None:
    strategy = Strategy(StrategyName.AGGRESSIVE)
    assert strategy.delay_s(0, draw=0.0, hint_s=120.0) == 120
    assert strategy.delay_s(0, draw=0.0, hint_s=2.0) == 2


def test_a_hint_is_spread_over_a_tenth_or_the_delay_and_capped() -> None:
    strategy = Strategy(StrategyName.STANDARD)
    almost = math.nextafter(1.0, 0.0)
    assert strategy.delay_s(0, draw=almost, hint_s=2.0) == pytest.approx(7)
    assert strategy.delay_s(0, draw=almost, hint_s=600.0) == pytest.approx(660)
    assert strategy.delay_s(0, draw=0.0, hint_s=86_400.0) == HINT_CAP_S
    parked = Strategy(StrategyName.PARKED)
    assert parked.delay_s(0, draw=0.0, hint_s=30_000.0, daily=True) == 30_000
    assert parked.delay_s(0, draw=0.0, hint_s=900_000.0, daily=True) == DAILY_PARK_CAP_S
    assert parked.delay_s(0, draw=almost, hint_s=60.0) == pytest.approx(66)


def test_parks_of_many_do_not_end_at_once() -> None:
    parked = Strategy(StrategyName.PARKED)
    ends = {round(parked.delay_s(0, draw=draw / 10)) for draw in range(10)}
    assert (len(ends), min(ends)) == (10, 900)


@given(
    strategy=st.sampled_from(ALL),
    attempt=st.integers(0, 10_000),
    draw=st.floats(0, 1, exclude_max=True),
    hint_s=st.none() | st.floats(0, 1e10),
    daily=st.booleans(),
    factor=st.floats(0.1, 10),
)
def test_every_delay_can_be_slept(
    strategy: Strategy, attempt: int, draw: float, hint_s: float | None, daily: bool, factor: float
) -> None:
    delay_s = strategy.delay_s(attempt, draw=draw, hint_s=hint_s, daily=daily, factor=factor)
    assert 0 <= delay_s <= 1.1 * DAILY_PARK_CAP_S
    if hint_s is not None and strategy.next is not Next.OVER:
        assert delay_s >= min(hint_s, DAILY_PARK_CAP_S if daily else HINT_CAP_S)


# ---- what is refused


@pytest.mark.parametrize(
    "wrong",
    [
        {"base_s": 0.0},
        {"base_s": 31.0},
        {"cap_s": math.inf},
        {"name": StrategyName.CUSTOM},
        {"delays_s": (1.0,)},
        {"name": StrategyName.CUSTOM, "delays_s": (1.0, -1.0)},
        {"name": StrategyName.CUSTOM, "delays_s": (math.nan,)},
    ],
)
def test_a_strategy_that_cannot_be(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="hint"):
        Strategy(**wrong)  # type: ignore[arg-type]


def test_attempts_and_draws_are_checked() -> None:
    for strategy in ALL:
        with pytest.raises(ValueError, match="attempt -1"):
            strategy.nominal_s(-1)
        with pytest.raises(ValueError, match="draw"):
            strategy.delay_s(0, draw=1.0)
