"""What a switch reaches, and how limits come back step by step."""

from __future__ import annotations

import pytest

from fairlead.errors import InvalidInputError
from fairlead.policy.limits.override import (
    EVERYTHING,
    STEPS,
    OverrideScope,
    check_reason,
    rollout_position,
    rollout_share,
    scopes_covering,
)

CONNECTION = ("acme", "stripe", "default")
PINNED = 0.07594740497168262


@pytest.mark.parametrize("reach", [EVERYTHING, OverrideScope(provider="stripe"), OverrideScope(*CONNECTION)])
def test_each_reach_touches_the_connection_by_its_names(reach: OverrideScope) -> None:
    assert reach.names in scopes_covering(*CONNECTION)


@pytest.mark.parametrize(
    "reach",
    [
        OverrideScope(provider="shopify"),
        OverrideScope("acme", "stripe", "second"),
        OverrideScope("beta", "stripe", "default"),
    ],
)
def test_switch_of_another_name_does_not_apply(reach: OverrideScope) -> None:
    assert reach.names not in scopes_covering(*CONNECTION)


@pytest.mark.parametrize(
    "names",
    [("acme", None, None), ("acme", "stripe", None), (None, "stripe", "default"), (None, None, "default")],
)
def test_there_is_nothing_between(names: tuple[str | None, str | None, str | None]) -> None:
    with pytest.raises(InvalidInputError, match="one provider, or one connection"):
        OverrideScope(*names)


@pytest.mark.parametrize("names", [("a\nb", "stripe", "default"), ("a", "Stripe", "x"), (None, "", None)])
def test_names_are_checked(names: tuple[str | None, str | None, str | None]) -> None:
    with pytest.raises(InvalidInputError):
        OverrideScope(*names)


def test_the_share_only_grows_to_all() -> None:
    shares = [rollout_share(age_s / 10, 7.0) for age_s in range(-10, 400)]
    assert shares == sorted(shares)
    assert set(shares) == set(STEPS)
    assert shares[-1] == 1.0


def test_each_step_has_its_share_of_connections_and_keeps_those_of_the_last() -> None:
    positions = [rollout_position(f"tenant {number}", "stripe", "default") for number in range(10_000)]
    for share in STEPS:
        on = sum(position < share for position in positions) / len(positions)
        assert on == pytest.approx(share, abs=0.02)
    assert all(0 <= position < 1 for position in positions)


def test_a_place_never_changes_and_names_do_not_run_together() -> None:
    """Pinned: another version of fairlead in the same fleet must come to the same one."""
    assert rollout_position(*CONNECTION) == pytest.approx(PINNED, abs=1e-12)
    assert rollout_position("ab", "c", "d") != rollout_position("a", "bc", "d")


def test_a_reason_says_something() -> None:
    assert check_reason("vendor asked us to stop") == "vendor asked us to stop"
    for nothing in ("", "  ", "x" * 501, "a\x1bb"):
        with pytest.raises(InvalidInputError):
            check_reason(nothing)
