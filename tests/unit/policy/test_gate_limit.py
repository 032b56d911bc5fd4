"""What the limits of a call may be, and under which keys they are kept."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.errors import InvalidConfigError
from fairlead.policy.limits.key import KeyKind, Keyspace, digest
from fairlead.policy.limits.limit import (
    BreakerRule,
    BucketLimit,
    Domain,
    Plan,
    PoolLimit,
    QuotaLimit,
    per_window,
)

NAMES = st.lists(st.text(max_size=20), max_size=4)


@given(NAMES, NAMES)
def test_different_names_never_share_a_key(first: list[str], other: list[str]) -> None:
    assert (digest(first) == digest(other)) == (first == other)


@given(st.text(max_size=300))
def test_a_key_is_short_plain_and_has_one_tag(name: str) -> None:
    """V8: braces, stars and line ends in a tenant's name stay out of the key."""
    key = Keyspace("fairlead").key(KeyKind.BUCKET, Domain(("tenant", name)), name)
    assert re.fullmatch(r"fairlead4:\{[A-Za-z0-9_-]{22}\}:b:[A-Za-z0-9_-]{22}", key)


@pytest.mark.parametrize("name", ["", "a b", "a{b}", "a:b", "x" * 65, "é"])
def test_a_prefix_is_plain(name: str) -> None:
    with pytest.raises(InvalidConfigError, match="hint: use"):
        Keyspace(name)


@given(
    st.floats(2, 1e6, allow_nan=False),
    st.floats(0.1, 86_400, allow_nan=False),
)
def test_a_window_is_never_passed(limit: float, window_s: float) -> None:
    bucket = per_window("b", limit, window_s)
    most = bucket.capacity_micro + bucket.rate_micro * window_s
    assert most <= limit * 1_000_000 + 1
    assert bucket.capacity >= 1


@pytest.mark.parametrize("burst", [0, -1, 100, 101])
def test_a_burst_fits_into_its_limit(burst: float) -> None:
    with pytest.raises(InvalidConfigError, match="hint: give a burst"):
        per_window("b", 100, 10, burst=burst)


@pytest.mark.parametrize(
    "settings",
    [
        {"capacity": -1},
        {"capacity": 1_000_000},
        {"capacity": 1, "lease_s": 0},
        {"capacity": 1, "lease_s": 10, "claim_s": 20},
        {"capacity": 1, "classes": 0},
        {"capacity": 1, "classes": 10},
        {"capacity": 1, "classes": 2, "minimum": {1: 2}},
        {"capacity": 3, "classes": 2, "minimum": {3: 1}},
        {"capacity": 1, "max_wait_s": 0},
        {"capacity": 1, "max_waiters": -1},
    ],
)
def test_an_impossible_pool_never_starts(settings: dict[str, Any]) -> None:
    with pytest.raises(InvalidConfigError, match="hint"):
        PoolLimit("p", **settings)


def test_an_impossible_rule_or_quota_never_starts() -> None:
    for make in (
        lambda: QuotaLimit("q", -1),
        lambda: BreakerRule("k", failures=0),
        lambda: BreakerRule("k", ratio=0),
        lambda: BreakerRule("k", open_s=60, open_max_s=59),
    ):
        with pytest.raises(InvalidConfigError, match="hint: give"):
            make()


def test_a_plan_is_bounded_and_unambiguous() -> None:
    limits = tuple(BucketLimit(f"b{number}", 1, 1) for number in range(9))
    for buckets in (limits, (limits[0], limits[0])):
        with pytest.raises(InvalidConfigError, match="hint"):
            Plan(Domain(("tenant", "a")), buckets=buckets)
    with pytest.raises(InvalidConfigError, match="hint: add the pool"):
        Plan(Domain(("tenant", "a")), quota=QuotaLimit("q", 1))
