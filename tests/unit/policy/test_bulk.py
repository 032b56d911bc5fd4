"""Bulk operations as profiles declare them, and the token of a place."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from fairlead.policy.limits.bulk_token import BulkToken, is_running_id, parse_token
from fairlead.policy.providers.profile_limits import BulkConfig
from fairlead.policy.providers.profile_load import load_profiles

SHOPIFY = load_profiles([])["shopify"].limits.bulk


@pytest.mark.parametrize(
    ("version", "capacity", "is_separate"),
    [("2019-10", 1, True), ("2025-10", 1, True), ("2026-01", 5, False), ("unstable", 5, False)],
)
def test_shopify_allows_one_of_each_type_and_from_2026_01_on_five(
    version: str, capacity: int, is_separate: bool
) -> None:
    assert SHOPIFY is not None
    rule = SHOPIFY.for_version(version)
    assert rule is not None
    assert (rule.capacity, rule.per_kind) == (capacity, is_separate)


@pytest.mark.parametrize("version", ["", "2026", "2026-1", "26-01", "2026-01-01", "v3", "2026-01\n"])
def test_invalid_version_has_no_bulk_rule(version: str) -> None:
    assert SHOPIFY is not None
    assert SHOPIFY.for_version(version) is None


def test_a_version_older_than_all_rules_has_none() -> None:
    bulk = BulkConfig.model_validate(
        {"kinds": ["query"], "api_version": "2026-01", "versions": [{"since": "2026-01", "capacity": 1}]}
    )
    assert bulk.for_version("2025-10") is None


@pytest.mark.parametrize(
    "change",
    [
        {"versions": []},
        {"versions": [{"since": "2026-01", "capacity": 1}, {"capacity": 5}]},
        {"versions": [{"since": "2026-01", "capacity": 1}, {"since": "2026-01", "capacity": 5}]},
        {"versions": [{"capacity": 0}]},
        {"versions": [{"since": "soon", "capacity": 1}]},
        {"api_version": "2025-10", "versions": [{"since": "2026-01", "capacity": 1}]},
        {"kinds": []},
        {"lease_s": 5.0},
    ],
)
def test_an_impossible_table_is_refused(change: dict[str, object]) -> None:
    limits = {"kinds": ["query"], "api_version": "2026-01", "versions": [{"capacity": 1}]}
    BulkConfig.model_validate(limits)
    with pytest.raises(ValidationError):
        BulkConfig.model_validate(limits | change)


@given(
    lease_id=st.integers(0, 2**64 - 1),
    fence=st.integers(0, 2**53),
    running_id=st.from_regex(r"\A[!-~]{0,200}\Z"),
)
def test_a_token_is_read_as_it_was_written(lease_id: int, fence: int, running_id: str) -> None:
    token = BulkToken(lease_id, fence, "0199-process", "0199-job", running_id)
    assert parse_token(str(token)) == token


@pytest.mark.parametrize(
    "text", ["", "x", "0" * 16, "0" * 16 + ".1.p", "0" * 16 + ".-1.p.j.r", "0" * 15 + "g.1.p.j.r"]
)
def test_invalid_bulk_token_is_none(text: str) -> None:
    assert parse_token(text) is None


@pytest.mark.parametrize("foul", ["\x1f", "\x1b", "\x00", "\x7f", "é", " "])
@pytest.mark.parametrize("form", ["p{}p.j.r", "p.j{}j.r"])
def test_a_token_brings_no_field_of_its_own_into_a_holder(form: str, foul: str) -> None:
    """Holders are written with control characters between their fields, and are shown to people."""
    assert parse_token(f"{'0' * 16}.1.{form.format('-')}") is not None
    assert parse_token(f"{'0' * 16}.1.{form.format(foul)}") is None


@pytest.mark.parametrize("text", ["", "a b", "a\n", "é", "a" * 201, "\x1f"])
def test_invalid_operation_id_is_refused(text: str) -> None:
    assert not is_running_id(text)
