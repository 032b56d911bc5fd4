"""The levels of what holds for calls: profile, connection (K2)."""

from __future__ import annotations

from typing import Any

import pytest

from fairlead.errors import InvalidConfigError
from fairlead.policy.calls.classify.rules import rules_of
from fairlead.policy.providers.connection_calls import call_settings_of, describe_settings
from fairlead.policy.providers.profile import Profile
from fairlead.policy.providers.profile_load import load_profiles
from fairlead.policy.providers.setting_names import check_setting_names

STRIPE = load_profiles()["stripe"]
HASTY = STRIPE.overlay(
    {"client": {"deadline_s": 9.0, "max_retries": 1, "strategy": "linear", "inline_wait_s": 0.5}}
)


def effective_settings(profile: Profile, **settings: Any) -> tuple[object, ...]:
    call_settings = call_settings_of(profile, settings, tenant="acme")
    return (
        call_settings.deadline_s,
        call_settings.max_retries,
        call_settings.strategy.value,
        call_settings.inline_wait_s,
    )


def test_a_connection_rules_over_its_profile_and_that_over_the_defaults() -> None:
    assert effective_settings(STRIPE) == (60.0, 3, "exponential", 2.0)
    assert effective_settings(HASTY) == (9.0, 1, "linear", 0.5)
    assert effective_settings(HASTY, max_retries=5, inline_wait_s=0) == (9.0, 5, "linear", 0.0)


def test_a_number_of_retries_that_somebody_gave_is_the_most_that_any_pattern_has() -> None:
    assert rules_of(STRIPE).most_retries == 10
    assert rules_of(HASTY).most_retries == 1
    assert rules_of(HASTY, {"max_retries": 0}).most_retries == 0


def test_people_are_told_from_where_each_setting_is() -> None:
    description = describe_settings(HASTY, {"max_retries": 5}, tenant="acme")
    assert description["max_retries"] == {"value": 5, "from": "connection"}
    assert description["deadline_s"] == {"value": 9.0, "from": "profile"}
    assert description["inline_wait_s"] == {"value": 0.5, "from": "profile"}
    assert description["max_delay_s"] == {"value": 30.0, "from": "default"}


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"deadline_s": 0.0}, "deadline_s"),
        ({"deadline_s": 4000.0}, "deadline_s"),
        ({"initial_delay_s": 4000.0, "max_delay_s": 5000.0}, "initial_delay_s"),
        ({"inline_wait_s": 61.0}, "inline_wait_s"),
        ({"inline_wait_s": -1.0}, "inline_wait_s"),
        ({"pages": {"rest": {"kind": "guess"}}}, "pages"),
        ({"pages": {"soap": {"kind": "offset"}}}, "it has: rest"),
        ({"hosts": ["https://a.example.com"]}, "hosts"),
        ({"hosts": ["*.com"]}, "hosts"),
        ({"strategy": "custom"}, "custom"),
        ({"max_retries": 11}, "max_retries"),
    ],
)
def test_impossible_call_setting_is_refused_with_a_hint(settings: dict[str, Any], expected: str) -> None:
    with pytest.raises(InvalidConfigError, match="hint:") as refused:
        call_settings_of(STRIPE, settings, tenant="acme")
    assert expected in str(refused.value)
    assert "acme" in str(refused.value)


def test_a_slip_in_a_name_is_told_and_a_note_of_ones_own_is_kept() -> None:
    check_setting_names(
        ["max_retries", "note", "subject", "owner", "concurrency_limit"], tenant="acme", provider="stripe"
    )
    for slip, intended in {"max_retrys": "max_retries", "concurency_limit": "concurrency_limit"}.items():
        with pytest.raises(InvalidConfigError, match=f"did you mean {intended}"):
            check_setting_names([slip], tenant="acme", provider="stripe")
