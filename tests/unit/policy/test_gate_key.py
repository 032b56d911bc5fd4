"""The registry of keys: each that we write has a kind, and nothing else has one."""

from __future__ import annotations

import pytest

from fairlead.policy.limits.key import LAYOUT, NAMES, KeyKind, Keyspace, Part
from fairlead.policy.limits.limit import Domain

KEYS = Keyspace("mine")
OURS = KEYS.prefix
ACME = Domain(("tenant", "acme"))


def written() -> dict[str, str]:
    """One key of each kind, as the gate makes them."""
    pool, bucket = KEYS.key(KeyKind.POOL, ACME, "p"), KEYS.key(KeyKind.BUCKET, ACME, "b")
    return {
        KEYS.marker: "marker",
        KEYS.key(KeyKind.MARKER, ACME): "marker",
        f"mine{LAYOUT}:{{4711}}:m": "marker",
        KEYS.key(KeyKind.WITNESS, ACME): "witness",
        KEYS.key(KeyKind.CELL, ACME): "cells",
        bucket + Part.BOOKINGS: "turns",
        bucket + Part.EVENTS: "spends",
        pool + Part.LEASES: "leases",
        pool + Part.LINE + "3": "lines",
        pool + Part.ALIVE: "waiters",
        pool + Part.EVENTS: "events",
        KEYS.key(KeyKind.BREAKER, ACME, "k") + Part.FAILURES: "failures",
    }


def test_every_key_that_is_written_has_its_kind() -> None:
    assert {key: KEYS.named(key) for key in written()} == written()
    assert set(written().values()) == set(NAMES.values())


@pytest.mark.parametrize(
    "key",
    [
        OURS,
        OURS + "x",
        OURS + "of-somebody",
        f"{KEYS.key(KeyKind.POOL, ACME, 'p')}",
        f"{KEYS.key(KeyKind.POOL, ACME, 'p')}:l2x",
        f"{KEYS.key(KeyKind.CELL, ACME)}:more",
        f"{KEYS.key(KeyKind.BUCKET, ACME, 'b')}:l",
        "other1:m",
        OURS + "{4711}:c",
        OURS + "{}:m",
        OURS + "{47x}:m",
        OURS + "m\n",
    ],
)
def test_foreign_key_has_no_kind(key: str) -> None:
    assert KEYS.named(key) is None


def test_marker_of_a_key_has_its_hash_tag() -> None:
    of_domain = {key: KEYS.marker_of(key) for key in written() if "}:" in key and "4711" not in key}
    assert len(of_domain) == len(written()) - 2
    assert set(of_domain.values()) == {KEYS.key(KeyKind.MARKER, ACME)}


@pytest.mark.parametrize("key", [OURS + "m", OURS + "{4711}:m", OURS + "of-somebody", OURS + "{d}:c"])
def test_key_without_a_domain_has_no_marker(key: str) -> None:
    assert KEYS.marker_of(key) is None
