"""Arguments of jobs: F7 and V7. What cannot be stored and read back is refused with its place."""

from __future__ import annotations

import json
import math
from types import MappingProxyType

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead._core.secret import Secret
from fairlead.errors import InvalidInputError
from fairlead.policy.jobs.payload import MAX_ARGS_BYTES, MAX_ARGS_DEPTH, encode_args


def nested(depth: int) -> object:
    value: object = 1
    for _ in range(depth):
        value = [value]
    return value


def self_holding() -> dict[str, object]:
    loop: dict[str, object] = {}
    loop["again"] = loop
    return loop


@pytest.mark.parametrize(
    "args",
    [
        {},
        {"a": [1, 2.5, True, None, "é", {"b": ()}]},
        {"__proto__": {"constructor": 1}},
        {"\ufeff": "byte order mark"},
        {"n": 2**255, "m": -(2**63), "f": 1.7e308, "tiny": 5e-324},
        {"": "empty key"},
        {"deep": nested(MAX_ARGS_DEPTH - 1)},
        {"text": "x" * (MAX_ARGS_BYTES - len('{"text":""}'))},
    ],
    ids=lambda args: str(args)[:40],
)
def test_v7_storable_args_come_back_as_they_were(args: dict[str, object]) -> None:
    text = encode_args(args)
    assert json.loads(text) == json.loads(json.dumps(args))
    assert len(text.encode()) <= MAX_ARGS_BYTES


V7 = {
    "nan": ({"a": math.nan}, "args.a is nan"),
    "infinity": ({"a": {"b": [1, -math.inf]}}, "args.a.b[1] is -inf"),
    "nul": ({"a": "x\0y"}, "args.a holds a NUL"),
    "nul in a key": ({"x\0y": 1}, "args, key 'x\\x00y', holds a NUL"),
    "lone surrogate": ({"a": ["\ud800"]}, "args.a[0] holds half of a surrogate pair"),
    "lone surrogate in a key": ({"\udfff": 1}, "holds half of a surrogate pair"),
    "100,000 brackets": ({"a": nested(100_000)}, "is nested over 32 levels"),
    "a loop": (self_holding(), "is nested over 32 levels"),
    "5,000 digits": ({"a": 10**5000}, "args.a is an integer of 16610 bits"),
    "bytes": ({"a": b"\xff"}, "args.a is a bytes"),
    "a set": ({"a": {1}}, "args.a is a set"),
    "a secret": ({"a": Secret("hunter2")}, "args.a is a Secret"),
    "a number as key": ({"a": {1: 2}}, "args.a has a key that is a int"),
    "an odd key": ({"a b": {"c": math.nan}}, "args['a b'].c is nan"),
    "one byte too many": ({"text": "x" * (MAX_ARGS_BYTES - len('{"text":""}') + 1)}, "larger than 64 KiB"),
    "1 GiB by repetition": ({"a": ["x" * 1_048_576] * 1024}, "larger than 64 KiB"),
    "umlauts count by bytes": ({"a": "é" * 40_000}, "larger than 64 KiB"),
    "escapes count": ({"a": "\x01" * 20_000}, "larger than 64 KiB"),
    "a long key": ({"k" * 70_000: 1}, "larger than 64 KiB"),
    "a list": ([1], "args is a list, not an object"),
    "a text": ("{}", "args is '{}', not an object"),
    "none": (None, "args is a NoneType, not an object"),
    "another mapping": (MappingProxyType({}), "args is a mappingproxy"),
}


@pytest.mark.parametrize(("args", "problem"), V7.values(), ids=V7)
def test_v7_what_cannot_be_stored_is_refused_with_its_place(args: dict[str, object], problem: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        encode_args(args, tenant="acme")
    text = str(caught.value)
    assert problem in text
    assert "tenant='acme'" in text
    assert "hint: " in text
    assert "hunter2" not in text
    assert len(text) < 600


@settings(max_examples=50)
@given(
    st.recursive(
        st.none()
        | st.booleans()
        | st.integers()
        | st.floats()
        | st.text(st.characters())
        | st.binary(max_size=2),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(st.characters()), inner),
        max_leaves=15,
    )
)
def test_any_args_are_stored_or_refused(value: object) -> None:
    try:
        text = encode_args({"a": value})
    except InvalidInputError:
        return
    assert "\\u0000" not in text
    assert json.loads(text.encode(), parse_constant=pytest.fail) == {"a": value}
