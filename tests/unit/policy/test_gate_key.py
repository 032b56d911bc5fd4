"""The registry of keys: each that we write has a kind, and nothing else has one."""

from __future__ import annotations

import pytest

from fairlead.policy.gate.key import NAMES, KeyKind, Keyspace, Part
from fairlead.policy.gate.limit import Domain

KEYS = Keyspace("mine")
ACME = Domain(("tenant", "acme"))


def written() -> dict[str, str]:
    """One key of each kind, as the gate makes them."""
    pool, bucket = KEYS.key(KeyKind.POOL, ACME, "p"), KEYS.key(KeyKind.BUCKET, ACME, "b")
    return {
        KEYS.marker: "marker",
        KEYS.key(KeyKind.CELL, ACME): "cells",
        KEYS.key(KeyKind.QUOTA, ACME, "q"): "quotas",
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
        "mine1:",
        "mine1:x",
        "mine1:of-somebody",
        f"{KEYS.key(KeyKind.POOL, ACME, 'p')}",
        f"{KEYS.key(KeyKind.POOL, ACME, 'p')}:l2x",
        f"{KEYS.key(KeyKind.CELL, ACME)}:more",
        f"{KEYS.key(KeyKind.BUCKET, ACME, 'b')}:l",
        "other1:m",
        "mine1:m\n",
    ],
)
def test_what_is_not_ours_has_none(key: str) -> None:
    assert KEYS.named(key) is None
