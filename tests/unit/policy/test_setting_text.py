"""Settings written in words become what the gate reads."""

from __future__ import annotations

import pytest

from fairlead.errors import InvalidInputError
from fairlead.policy.providers.call_settings import CallSettings
from fairlead.policy.providers.connection_calls import call_settings_of
from fairlead.policy.providers.connection_limits import ConnectionLimits, limits_of
from fairlead.policy.providers.profile_load import load_profiles
from fairlead.policy.providers.setting_text import parse_settings

WRITTEN = {
    "concurrency_limit": "5",
    "calls": '{"requests": {"limit": 50, "window_s": 10}}',
    "priority_classes": " 2 ",
    "minimum_slots": '{"1": 2}',
    "tenant_slots": "40",
    "max_wait_s": "60.5",
    "degraded_mode": "closed",
    "breaker_failures": "3",
    "breaker_open_s": "30",
    "bulk_operations": "2",
    "observe": "True",
}


def test_every_setting_of_the_gate_can_be_written_in_words() -> None:
    assert WRITTEN.keys() == ConnectionLimits.model_fields.keys()
    limits = limits_of(parse_settings(WRITTEN), tenant="acme", provider="shopify")
    assert (limits.concurrency_limit, limits.observe, limits.max_wait_s) == (5, True, 60.5)
    assert (limits.degraded_mode, limits.minimum_slots) == ("closed", {1: 2})
    assert limits.calls["requests"].limit == 50


def test_every_setting_of_failed_calls_can_be_written_in_words() -> None:
    written = {
        "strategy": "linear",
        "max_retries": "5",
        "initial_delay_s": "2",
        "max_delay_s": "9.5",
        "delays_s": "[]",
        "deadline_s": "20",
        "inline_wait_s": "0.5",
        "patterns": '[{"name": "a", "http_codes": [400], "patterns": ["busy"], "strategy": "none"}]',
        "pages": '{"rest": {"kind": "offset"}}',
        "hosts": '["files.example.com"]',
    }
    assert written.keys() == CallSettings.model_fields.keys()
    settings = call_settings_of(load_profiles()["shopify"], parse_settings(written), tenant="acme")
    assert (settings.strategy, settings.max_retries, settings.max_delay_s) == ("linear", 5, 9.5)
    assert settings.patterns[0].patterns == ("busy",)
    assert (settings.deadline_s, settings.inline_wait_s, settings.hosts) == (
        20.0,
        0.5,
        ("files.example.com",),
    )
    assert settings.pages["rest"].kind == "offset"


def test_unknown_setting_stays_text() -> None:
    assert parse_settings({"subject": "007", "note": "true", "scopes": "a.read, b.write c"}) == {
        "subject": "007",
        "note": "true",
        "scopes": ["a.read", "b.write", "c"],
    }


@pytest.mark.parametrize(
    ("name", "text", "hint"),
    [
        ("concurrency_limit", "five", "write a whole number: concurrency_limit=5"),
        ("concurrency_limit", "true", "write a whole number: concurrency_limit=5"),
        ("concurrency_limit", "2.5", "write a whole number: concurrency_limit=5"),
        ("concurrency_limit", "", "write a whole number: concurrency_limit=5"),
        ("max_wait_s", "'60'", "write a number: max_wait_s=2.5"),
        ("patterns", "{}", "write JSON: patterns='[...]'"),
        ("observe", "1", "write true or false: observe=true"),
        ("calls", "50/10s", "write JSON: calls='"),
        ("calls", "[" * 100_000, "write JSON: calls='"),
        ("minimum_slots", "[1]", "write JSON: minimum_slots='"),
    ],
)
def test_invalid_setting_text_is_refused_with_a_hint(name: str, text: str, hint: str) -> None:
    with pytest.raises(InvalidInputError) as refused:
        parse_settings({name: text})
    assert name in refused.value.message
    assert refused.value.hint.startswith(hint)


def test_a_secret_that_was_written_there_by_mistake_is_not_repeated() -> None:
    with pytest.raises(InvalidInputError) as refused:
        parse_settings({"concurrency_limit": "sk_live_1234"})
    assert "sk_live" not in str(refused.value)
