"""The plan of a refresh, where a clock or an import makes it unusual; the rest is walked in tests/refresh."""

from __future__ import annotations

from typing import Any

import pytest

from fairlead.policy.tokens.refresh import CoolDown, CredentialSnapshot, Plan, Refuse, Start, plan_refresh


def plan(newer_than: int | None = 2, **facts: Any) -> Plan:
    fields: dict[str, Any] = {
        "state": "active",
        "generation": 2,
        "refreshable": True,
        "expires_in_s": 600.0,
        "refreshed_age_s": None,
        "in_flight": None,
    }
    return plan_refresh(
        CredentialSnapshot(**(fields | facts)), newer_than, cooldown_s=30.0, min_remaining_s=60.0
    )


@pytest.mark.parametrize(
    ("age_s", "expected"),
    [
        (10.0, CoolDown(20.0)),
        (-5.0, CoolDown(30.0)),
        (-560.0, Start()),
        (30.0, Start()),
    ],
)
def test_a_clock_that_was_set_back_never_lengthens_the_cool_down(age_s: float, expected: Plan) -> None:
    assert plan(refreshed_age_s=age_s) == expected


def test_an_unknown_connection_without_a_rotation_is_sent_only_once_its_token_has_ended() -> None:
    assert plan(state="unknown") == Refuse("unknown")
    assert plan(state="unknown", expires_in_s=0.0) == Start()
