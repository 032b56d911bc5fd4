"""jsonb in and out: strict where it enters, never stuck where it is written down or read."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.adapters.postgres.jsonb import decoded, encoded, tamed

TEXT = st.text(st.characters(exclude_characters="\0", exclude_categories=("Cs",)))
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**100), 2**100)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXT,
    lambda inner: st.lists(inner) | st.dictionaries(TEXT, inner),
    max_leaves=10,
)
ANYTHING = st.recursive(
    st.none() | st.integers() | st.floats() | st.text() | st.binary() | st.just(object()),
    lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.integers(), inner) | st.tuples(inner),
    max_leaves=10,
)


@given(JSON)
def test_json_value_round_trips(value: Any) -> None:
    assert decoded(encoded(value)) == value


@given(ANYTHING)
def test_taming_never_fails_and_gives_what_jsonb_takes(value: Any) -> None:
    text = tamed(value)
    assert "\\u0000" not in text.replace("\\\\", "")
    text.encode()
    json.loads(text, parse_constant=pytest.fail)


def test_taming_bounds_the_size() -> None:
    assert len(tamed("ü" * 100_000, 1000).encode()) <= 1000
    assert tamed("x" * 900, 1000) == json.dumps("x" * 900)


@pytest.mark.parametrize("value", [math.nan, math.inf, "a\0", {"\0": 1}, ["\ud800"], {1, 2}, b"x", object()])
def test_value_outside_jsonb_is_refused(value: object) -> None:
    with pytest.raises(ValueError, match=r"no json|no JSON|Out of range"):
        encoded(value)


@pytest.mark.parametrize("value", ["\\u0000", {"\\u0000": "\\\\u0000"}, ["C:\\u0000"]])
def test_a_nul_that_is_only_written_is_a_text(value: object) -> None:
    assert decoded(encoded(value)) == value


def test_unreadable_number_or_depth_is_decoded_as_far_as_possible() -> None:
    assert decoded(None) is None
    assert decoded("9" * 5000) == "9" * 5000
    beyond = f"1{'0' * 320}.5"
    assert decoded(f'{{"n": {beyond}}}') == {"n": beyond}, "Python would read infinity, which JSON cannot say"
    assert decoded("[" * 300 + "]" * 300) == json.loads("[" * 300 + "]" * 300)
    assert decoded("[" * 100_000) == {"unreadable": "[" * 200}
