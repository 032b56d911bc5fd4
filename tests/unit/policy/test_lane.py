"""Shares and scopes: what may be set, and what a job moves its lane on."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.errors import InvalidInputError
from fairlead.policy.jobs.lane import (
    LONGEST_WAIT_S,
    MAX_CAP,
    MAX_WEIGHT,
    MIN_WEIGHT,
    QUANTUM,
    STRIDE,
    Scope,
    ScopeKind,
    check_cap,
    check_weight,
    connection_group,
    current_priority,
    stride,
)

PLAIN = [ScopeKind.QUEUE, ScopeKind.KIND, ScopeKind.PROVIDER]


def test_the_numbers_that_were_promised() -> None:
    assert (QUANTUM, LONGEST_WAIT_S, STRIDE) == (3, 300.0, 1000)


# ---- scopes ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", PLAIN)
def test_plain_names_are_checked_like_all_plain_names(kind: ScopeKind) -> None:
    assert Scope(kind, "mail").key == "mail"
    for name in ("", "Mail", "a b", "a/b", "a\n", "x" * 65):
        with pytest.raises(InvalidInputError, match=kind.value) as error:
            Scope(kind, name)
        assert error.value.hint


def test_a_tenant_may_be_called_almost_anything() -> None:
    for name in ("acme", "Ä b/c", "'; --", "é" * 100):
        assert Scope(ScopeKind.TENANT, name).key == name
    for name in ("", "a\n", "é" * 101):
        with pytest.raises(InvalidInputError, match="tenant"):
            Scope(ScopeKind.TENANT, name)


def test_a_group_belongs_to_a_tenant_or_to_all() -> None:
    assert Scope(ScopeKind.GROUP, "shopify/default", "acme").tenant == "acme"
    assert Scope(ScopeKind.GROUP, "shopify/default").tenant is None
    assert Scope(ScopeKind.GROUP, "x" * 400)
    for key, tenant in (("", None), ("x" * 401, None), ("a\0", "acme"), ("g", ""), ("g", "a\n")):
        with pytest.raises(InvalidInputError):
            Scope(ScopeKind.GROUP, key, tenant)


@pytest.mark.parametrize("kind", [*PLAIN, ScopeKind.TENANT])
def test_only_a_group_is_a_tenants_own(kind: ScopeKind) -> None:
    with pytest.raises(InvalidInputError, match="tenant's own") as error:
        Scope(kind, "mail", "acme")
    assert error.value.tenant == "acme"
    assert error.value.hint


def test_scopes_are_values_and_read_as_words() -> None:
    assert Scope(ScopeKind.GROUP, "g", "a") == Scope(ScopeKind.GROUP, "g", "a")
    assert (
        len({Scope(ScopeKind.GROUP, "g", "a"), Scope(ScopeKind.GROUP, "g"), Scope(ScopeKind.KIND, "g")}) == 3
    )
    assert str(Scope(ScopeKind.QUEUE, "mail")) == "queue 'mail'"
    assert str(Scope(ScopeKind.GROUP, "g", "a\u202eb")) == "group 'g' of tenant 'a\\u202eb'"


def test_the_group_of_a_connection() -> None:
    assert connection_group("shopify") == "shopify/default"
    assert connection_group("shopify", "eu") == "shopify/eu"
    assert Scope(ScopeKind.GROUP, connection_group("a" * 64, "b" * 64), "acme")


# ---- weights and caps ------------------------------------------------------------------------------


@pytest.mark.parametrize("weight", [MIN_WEIGHT, 0.5, 1, 3.0, MAX_WEIGHT])
def test_weights(weight: float) -> None:
    checked = check_weight(weight)
    assert checked == weight
    assert isinstance(checked, float)


@pytest.mark.parametrize("weight", [0, -1, 0.0009, 1000.1, math.nan, math.inf, True, "3", None, b"3"])
def test_invalid_weight_is_refused(weight: object) -> None:
    with pytest.raises(InvalidInputError, match="no weight") as error:
        check_weight(weight)
    assert error.value.hint


@pytest.mark.parametrize("cap", [1, 2, MAX_CAP])
def test_caps(cap: int) -> None:
    assert check_cap(cap) == cap


@pytest.mark.parametrize("cap", [0, -1, MAX_CAP + 1, 1.0, math.nan, True, "3", None])
def test_invalid_cap_is_refused(cap: object) -> None:
    with pytest.raises(InvalidInputError, match="no cap") as error:
        check_cap(cap)
    assert error.value.hint


def test_invalid_input_is_shown_short_and_plain() -> None:
    for check in (check_weight, check_cap):
        with pytest.raises(InvalidInputError) as error:
            check("\x1b[31m" + "x" * 1000)
        assert "\x1b" not in str(error.value)
        assert len(str(error.value)) < 300


# ---- strides ---------------------------------------------------------------------------------------

weights = st.floats(MIN_WEIGHT, MAX_WEIGHT)


@given(weights, weights)
def test_larger_weight_has_a_smaller_stride(weight: float, other: float) -> None:
    light, heavy = sorted((weight, other))
    assert 1 <= stride(heavy) <= stride(light) <= STRIDE / MIN_WEIGHT


@given(st.floats(MIN_WEIGHT, 20))
def test_up_to_twenty_a_share_is_right_within_two_percent(weight: float) -> None:
    assert abs(STRIDE / stride(weight) / weight - 1) <= 0.02


@given(st.integers(0, 10_000))
def test_the_priority_of_who_waits(rounds: int) -> None:
    assert current_priority(rounds) == max(1, 5 - rounds)
