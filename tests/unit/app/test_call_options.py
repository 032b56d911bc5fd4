"""What a call may be told is looked at before anything is taken for it (DEFAULTS 3: unknown is refused)."""

from __future__ import annotations

import math

import pytest

from fairlead.app.client.options import check_bounds, class_of
from fairlead.engine.ports import ConnectionKey
from fairlead.errors import InvalidInputError
from fairlead.policy.limits.limit import MAX_CLASSES, MAX_LEASE_S

KEY = ConnectionKey("acme", "stripe", "default")


@pytest.mark.parametrize(
    ("priority", "number"),
    [(None, None), ("real-time", 1), ("scheduled", 2), ("batch", 3), (1, 1), (MAX_CLASSES, MAX_CLASSES)],
)
def test_a_class_of_calls(priority: str | int | None, number: int | None) -> None:
    assert class_of(priority, KEY) == number


@pytest.mark.parametrize("priority", [0, -1, 99, MAX_CLASSES + 1, True, False, "high", "", "1", 1.5])
def test_invalid_priority_is_refused(priority: str | int) -> None:
    with pytest.raises(InvalidInputError, match=r"is no priority.*acme.*hint: use one of real-time"):
        class_of(priority, KEY)


@pytest.mark.parametrize("deadline_s", [0, 0.0, -1, math.inf, math.nan, True, "60", 2 * MAX_LEASE_S])
def test_invalid_deadline_is_refused(deadline_s: object) -> None:
    with pytest.raises(InvalidInputError, match=r"deadline_s is .*stripe.*hint: give seconds"):
        check_bounds(deadline_s, 1, KEY)


@pytest.mark.parametrize("most", [-1, 1.5, True, None, "16"])
def test_invalid_body_size_is_refused(most: object) -> None:
    with pytest.raises(InvalidInputError, match=r"max_body_bytes is .*stripe.*hint: give a number"):
        check_bounds(None, most, KEY)


def test_all_else_is_taken() -> None:
    for deadline_s in (None, 1, 0.5, 60.0, MAX_LEASE_S):
        for most in (0, 1, 1 << 40):
            check_bounds(deadline_s, most, KEY)
