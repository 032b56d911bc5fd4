"""Windows of T2 against DEFAULTS §1, to the second, and their order for every life there is."""

from __future__ import annotations

import math
from collections import Counter
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.policy.providers.profile_load import load_profiles
from fairlead.policy.tokens.window import Windows, jitter_fraction, windows

PROFILES = load_profiles()
HOUR, MINUTE = 3600.0, 60.0

lives = st.floats(0.01, 10 * 366 * 86_400)
jitters = st.floats(0, 1, exclude_max=True)


def _critical_s(at: Windows) -> float:
    return at.expires_in_s - at.critical_in_s


@pytest.mark.parametrize(
    ("name", "variant", "ttl_s", "lead_s", "buffer_s", "critical_s"),
    [
        ("mercadolibre", None, 6 * HOUR, 30 * MINUTE, 10 * MINUTE, 5 * MINUTE),
        ("mercadolibre", None, 10_800, 30 * MINUTE, 10 * MINUTE, 5 * MINUTE),
        ("shopify", "online", 24 * HOUR, 60 * MINUTE, 15 * MINUTE, 10 * MINUTE),
        ("shopify", None, HOUR, 10 * MINUTE, 200, 100),
        ("xero", None, 30 * MINUTE, 5 * MINUTE, 100, 60),
        ("generic_oauth2", None, 24 * HOUR, 30 * MINUTE, 10 * MINUTE, 5 * MINUTE),
        ("generic_oauth2", None, 2 * HOUR, 20 * MINUTE, 400, 200),
        ("generic_oauth2", None, 5 * MINUTE, 150, 50, 50),  # OpenFGA #388: a fixed lead left nothing of 300 s
        ("generic_oauth2", None, 8, 4, 4 / 3, 4 / 3),  # floors of minutes yield to TTL/2
        ("mercadolibre", None, 10 * MINUTE, 5 * MINUTE, 100, 50),  # explicit ones shrink with their lead
    ],
)
def test_windows_by_the_defaults_page(
    name: str, variant: str | None, ttl_s: float, lead_s: float, buffer_s: float, critical_s: float
) -> None:
    at = windows(PROFILES[name].variant(variant), ttl_s, 0.0)
    assert at.lead_s == pytest.approx(lead_s)
    assert at.buffer_s == pytest.approx(buffer_s)
    assert _critical_s(at) == pytest.approx(critical_s)
    assert at.due_in_s == at.urgent_in_s == pytest.approx(ttl_s - lead_s)


def test_a_demo_profile_has_windows_of_seconds() -> None:
    demo = PROFILES["mercadolibre"].overlay({"windows": {"lead_s": 3, "buffer_s": 1, "critical_s": 0.5}})
    at = windows(demo, 8, 0.5)
    assert (at.lead_s, at.buffer_s, _critical_s(at)) == (3, 1, 0.5)
    assert at.due_in_s == pytest.approx(8 - 3 - 0.5 * 8 / 30)


@given(st.sampled_from(sorted(PROFILES)), lives, jitters)
def test_due_urgent_critical_expiry_stand_in_order(name: str, ttl_s: float, jitter: float) -> None:
    at = windows(PROFILES[name], ttl_s, jitter)
    assert 0 < at.due_in_s <= at.urgent_in_s <= at.critical_in_s < at.expires_in_s
    assert 0 < at.buffer_s <= at.lead_s <= ttl_s / 2


@given(lives, jitters)
def test_jitter_only_makes_a_refresh_earlier_by_at_most_a_thirtieth(ttl_s: float, jitter: float) -> None:
    calm, spread = (windows(PROFILES["mercadolibre"], ttl_s, share) for share in (0.0, jitter))
    assert spread.due_in_s <= calm.due_in_s
    assert calm.due_in_s - spread.due_in_s <= ttl_s / 30 * (1 + 1e-9)
    assert (spread.urgent_in_s, spread.critical_in_s) == (calm.urgent_in_s, calm.critical_in_s)


def test_ten_thousand_connections_of_one_minute_spread_over_the_jitter_window() -> None:
    ttl_s = 6 * HOUR
    fractions = [jitter_fraction(str(UUID(int=number))) for number in range(10_000)]
    due = [windows(PROFILES["mercadolibre"], ttl_s, fraction).due_in_s for fraction in fractions]
    assert max(due) - min(due) >= 0.8 * ttl_s / 30
    per_minute = Counter(int(at // 60) for at in due)
    assert max(per_minute.values()) <= 1_000  # 12 minutes of jitter: about 833 a minute


def test_jitter_is_stable_and_in_range() -> None:
    connection = "0192d3b0-0000-7000-8000-000000000001"
    assert jitter_fraction(connection) == jitter_fraction(connection) == 0.26425747542072
    assert all(0 <= jitter_fraction(str(number)) < 1 for number in range(1_000))


@pytest.mark.parametrize("ttl_s", [0, -1, math.nan, math.inf])
def test_only_a_token_that_expires_has_windows(ttl_s: float) -> None:
    with pytest.raises(ValueError, match="hint:"):
        windows(PROFILES["xero"], ttl_s, 0.0)


@pytest.mark.parametrize("jitter", [-0.1, 1.0, math.nan])
def test_jitter_outside_its_range_is_a_bug_of_the_caller(jitter: float) -> None:
    with pytest.raises(ValueError, match="hint:"):
        windows(PROFILES["xero"], 60, jitter)
