"""E08 and V7: whatever a handler raises or returns becomes something PostgreSQL takes, in bounds, always."""

from __future__ import annotations

import asyncio
import json
import math
import re
from enum import IntEnum, StrEnum
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead._core.secret import Secret
from fairlead.errors import NotFoundError
from fairlead.policy.text.safe import MAX_SAFE_BYTES, clipped, safe_json, safe_text

SECRET = "correct horse battery staple" * 40
UNSTORABLE = re.compile("[\x00\ud800-\udfff]")


def nested(depth: int) -> object:
    value: object = "bottom"
    for _ in range(depth):
        value = [value]
    return value


class Colour(StrEnum):
    RED = "red"


class Level(IntEnum):
    HIGH = 3


class Broken:
    def __str__(self) -> str:
        raise ValueError("no text")

    __repr__ = __str__


class BrokenDict(dict[str, object]):
    def items(self) -> object:  # type: ignore[override]
        raise RuntimeError("no items")


class Liar(str):
    def __str__(self) -> str:
        return self

    def encode(self, *args: object) -> bytes:
        raise RuntimeError("no bytes")


def assert_storable(text: str, max_bytes: int = MAX_SAFE_BYTES) -> object:
    assert len(text.encode("utf-8")) <= max_bytes
    assert not UNSTORABLE.search(text)
    assert "\\u0000" not in text
    return json.loads(text, parse_constant=pytest.fail)


# ---- JSON --------------------------------------------------------------------------------------

V7 = {
    "plain": ({"a": [1, 2.5, True, None, "é"]}, {"a": [1, 2.5, True, None, "é"]}),
    "nul": ("a\0b", "a\ufffdb"),
    "nul in a key": ({"a\0": 1}, {"a\ufffd": 1}),
    "lone surrogate": ("a\ud800b", "a\ufffdb"),
    "nan": ({"a": math.nan}, {"a": "nan"}),
    "infinity": ([math.inf, -math.inf], ["inf", "-inf"]),
    "5,000 digits": (10**5000, "integer of 16610 bits"),
    "64 bits": (2**64, 2**64),
    "__proto__": ({"__proto__": {"admin": True}}, {"__proto__": {"admin": True}}),
    "bytes": (b"\xff\xfe", "b'\\xff\\xfe'"),
    "byte order mark": ("\ufeffx", "\ufeffx"),
    "tuple": ((1, 2), [1, 2]),
    "number keys": ({1: "a", None: "b"}, {"1": "a", "None": "b"}),
    "enums": ([Colour.RED, Level.HIGH], ["red", 3]),
    "object without a text": (Broken(), "<its text failed with ValueError>"),
    "dict without items": (BrokenDict(a=1), {"unstorable": "RuntimeError"}),
    "none": (None, None),
    "empty": ({}, {}),
}


@pytest.mark.parametrize(("value", "expected"), V7.values(), ids=V7)
def test_v7_results(value: object, expected: object) -> None:
    assert assert_storable(safe_json(value)) == expected


@pytest.mark.parametrize(
    "value",
    [
        "x" * 10_000_000,
        '"' * 10_000_000,
        "\x01" * 10_000_000,
        list(range(10**6)),
        {"a": ["é" * 9000]},
        nested(100_000),
    ],
    ids=["text", "quotes", "controls", "list", "umlauts", "brackets"],
)
def test_v7_what_is_too_large_or_too_deep_is_cut_and_says_so(value: object) -> None:
    stored = assert_storable(safe_json(value))
    assert isinstance(stored, dict)
    assert stored["truncated"] is True
    assert stored["text"]


def test_a_value_that_holds_itself_ends() -> None:
    loop: list[object] = []
    loop.append(loop)
    assert assert_storable(safe_json(loop)) == {
        "truncated": True,
        "text": json.dumps(nested_marks(), ensure_ascii=False),
    }


def nested_marks() -> object:
    value: object = "…"
    for _ in range(32):
        value = [value]
    return value


def test_the_bound_is_the_callers() -> None:
    assert safe_json("x" * 100, max_bytes=200) == json.dumps("x" * 100)
    for max_bytes in (64, 100, 1000):
        assert_storable(safe_json('"' * 5000, max_bytes=max_bytes), max_bytes)


def test_a_text_class_with_its_own_ideas_is_stored_as_text() -> None:
    assert assert_storable(safe_json({"a": Liar("x")})) == {"a": "x"}
    assert type(safe_text(Liar("x"))) is str


json_like = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters()) | st.binary(),
    lambda inner: (
        st.lists(inner) | st.dictionaries(st.text(st.characters()) | st.integers(), inner) | st.tuples(inner)
    ),
    max_leaves=20,
)


@settings(max_examples=60)
@given(json_like, st.integers(64, 600))
def test_any_value_is_stored(value: object, max_bytes: int) -> None:
    assert_storable(safe_json(value, max_bytes), max_bytes)


# ---- texts -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (ValueError("bad"), "ValueError: bad"),
        (ValueError(), "ValueError"),
        (ValueError("  "), "ValueError"),
        (KeyError("name"), "KeyError: 'name'"),
        (NotFoundError("no job 7"), "no job 7 hint: list what there is with `fairlead connections list`"),
        ("plain", "plain"),
        ("", "str"),
        (None, "None"),
        (ValueError("a\0b\x1b[31mred\x7f"), "ValueError: a\ufffdb\ufffd[31mred\ufffd"),
        (ValueError("two\nlines\tand a tab"), "ValueError: two\nlines\tand a tab"),
        (ValueError("half \ud83d of one"), "ValueError: half \ufffd of one"),
        (Broken(), "<its text failed with ValueError>"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_texts(value: object, expected: str) -> None:
    assert safe_text(value) == expected


@pytest.mark.parametrize("worst", [SystemExit(3), asyncio.CancelledError(), GeneratorExit()], ids=repr)
def test_exception_of_a_str_method_does_not_escape(worst: BaseException) -> None:
    """A text that raises SystemExit would end the process that stores it, and with it all that runs there."""

    class Leaving(Exception):
        def __str__(self) -> str:
            raise worst

    class DictSubclass(dict[str, int]):
        def items(self) -> Any:
            raise worst

    name = type(worst).__name__
    assert safe_text(Leaving()) == f"Leaving: <its text failed with {name}>"
    assert safe_json([Leaving()]) == f'["Leaving: <its text failed with {name}>"]'
    assert safe_json(DictSubclass()) == f'{{"unstorable":"{name}"}}'


def test_keyboard_interrupt_passes() -> None:
    class Interrupted:
        def __str__(self) -> str:
            raise KeyboardInterrupt

    for store in (safe_text, safe_json):
        with pytest.raises(KeyboardInterrupt):
            store(Interrupted())


def test_ten_megabytes_of_error_are_cut() -> None:
    text = safe_text(ValueError("é" * 10_000_000))
    assert len(text.encode()) <= MAX_SAFE_BYTES
    assert text.startswith("ValueError: éé")
    assert text.endswith("é…")


@given(st.text(st.characters()), st.integers(3, 50))
def test_a_cut_text_is_whole_characters_within_its_bound(text: str, max_bytes: int) -> None:
    short = clipped(text, max_bytes)
    assert len(short.encode()) <= max_bytes
    if len(text.encode("utf-8", "replace")) <= max_bytes:
        assert short == text.encode("utf-8", "replace").decode()
    else:
        assert short.endswith("…")


def test_half_a_secret_at_the_cut_is_not_shown_where_many_before_it_were_masked() -> None:
    Secret(SECRET)
    assert "corr" not in safe_text((SECRET + " ") * 10, 100)
