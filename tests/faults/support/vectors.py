"""What is hard to keep: results, errors, outcomes and payloads of the kind of V7, each by its name.

RESULTS are returned by a job, ERRORS raised, OUTCOMES answered in place of an honest one; PAYLOADS are what a
caller tries to enqueue. Each is made when it is needed: some cannot even be looked at.
"""

from __future__ import annotations

import asyncio
import datetime
import threading
from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any

from fairlead.errors import RateLimitedError, RequestRejectedError
from fairlead.policy.failures.category import Category, Failure
from fairlead.policy.jobs.job import Cancel, Complete, Discard, RequireReauth, Retry, Snooze

MIB = 1 << 20


def deep(levels: int = 100_000) -> list[Any]:
    """A list in a list in a list."""
    value: list[Any] = []
    for _ in range(levels):
        value = [value]
    return value


def cyclic() -> dict[str, Any]:
    """It holds itself."""
    value: dict[str, Any] = {}
    value["self"] = [value]
    return value


class Mute:
    """Neither ``str`` nor ``repr`` of it works."""

    def __str__(self) -> str:
        raise RuntimeError("no text \x00 \ud800")

    __repr__ = __str__


class NoText:
    """Its text is none."""

    def __str__(self) -> Any:
        return 7  # noqa: PLE0307

    __repr__ = __str__


class Endless(dict[str, int]):
    """A mapping without end."""

    def items(self) -> Any:
        return iter(lambda: ("k", 1), None)

    def __len__(self) -> int:
        return 1


class LoudText(str):
    """A text with code of its own."""

    def encode(self, *_args: Any) -> bytes:
        raise RuntimeError("not to be encoded")

    def __str__(self) -> str:
        raise RuntimeError("not to be read")

    def __len__(self) -> int:
        return -1  # noqa: PLE0303


class LoudInt(int):
    """A number with code of its own."""

    def bit_length(self) -> int:
        raise RuntimeError("not to be counted")


class Pretender:
    """Says that it is a text, and a mapping the next time."""

    @property
    def __class__(self) -> Any:  # type: ignore[override]
        raise RuntimeError("of no class")


RESULTS: dict[str, Callable[[], object]] = {
    "nan": lambda: float("nan"),
    "infinity": lambda: [float("inf"), -float("inf")],
    "nul": lambda: {"a\0b": "c\0d"},
    "surrogate": lambda: {"\ud800": "\udfff\ud83d"},
    "bom": lambda: "\ufeff\ufffe\u202e",
    "bad_utf8": lambda: b"\xff\xfe\xc3\x28",
    "utf16": lambda: "text".encode("utf-16"),
    "deep": deep,
    "cyclic": cyclic,
    "digits": lambda: 10**5000,
    "proto": lambda: {"__proto__": {"admin": True}, "constructor": 1},
    "strange_keys": lambda: {1: 1, None: 2, (1, 2): 3, float("nan"): 4, b"k": 5},
    "huge": lambda: "x" * (10 * MIB),
    "huge_list": lambda: list(range(1_000_000)),
    "many_small": lambda: {f"key{n}": "\U0001f600" * 20 for n in range(10_000)},
    "set": lambda: {1, "a", None},
    "mute": lambda: [Mute()],
    "no_text": NoText,
    "endless": Endless,
    "loud_text": lambda: {"text": LoudText("a\0b")},
    "loud_int": lambda: {"n": LoudInt(7)},
    "generator": lambda: (n for n in range(3)),
    "lock": threading.Lock,
    "class": lambda: Mute,
    "moment": lambda: datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC),
    "decimal": lambda: {"sum": Decimal("NaN"), "zero": -0.0, "small": 5e-324},
    "pretender": Pretender,
}


class MuteError(Exception):
    """An error whose text fails to format."""

    def __str__(self) -> str:
        raise ValueError("no text")

    __repr__ = __str__


class DeafError(Exception):
    """An error that fails at whatever is asked of it."""

    def __getattribute__(self, name: str) -> Any:
        raise RuntimeError(f"not to be asked for {name}")


class LeavingError(Exception):
    """An error whose text ends the process that reads it."""

    def __str__(self) -> str:
        raise SystemExit(3)


class CancellingError(Exception):
    """An error whose text cancels who reads it."""

    def __str__(self) -> str:
        raise asyncio.CancelledError


class LyingRefusal(RateLimitedError):
    """Ours, as it seems; what it says is nonsense."""

    category = "no such category"  # type: ignore[assignment]
    code = "c\0d" * 1000  # type: ignore[misc]


def lying_refusal() -> BaseException:
    error = LyingRefusal("too fast")
    error.retry_after_s = "soon"  # type: ignore[assignment]
    return error


def chained() -> BaseException:
    """Its causes run in a circle."""
    first, second = ValueError("first"), ValueError("second")
    first.__cause__, second.__cause__ = second, first
    return first


def grouped(levels: int = 5000) -> BaseException:
    error: Exception = ValueError("innermost")
    for _ in range(levels):
        error = ExceptionGroup("level", [error])
    return error


def unpicklable() -> BaseException:
    return OSError(threading.Lock(), lambda: None)


ERRORS: dict[str, Callable[[], BaseException]] = {
    "huge_error": lambda: ValueError("y" * (10 * MIB)),
    "huge_bytes": lambda: ValueError(b"\xff" * (10 * MIB)),
    "huge_name": lambda: type("E" * MIB, (Exception,), {})("named"),
    "mute_error": MuteError,
    "deaf_error": DeafError,
    "leaving_error": LeavingError,
    "cancelling_error": CancellingError,
    "no_text_error": lambda: ValueError(NoText()),
    "surrogate_error": lambda: ValueError("\ud800\udfff"),
    "nul_error": lambda: ValueError("a\0b\x1b[31m\r\n\x9b"),
    "nan_error": lambda: ValueError(float("nan")),
    "empty_error": ValueError,
    "blank_error": lambda: ValueError(" \n\t "),
    "cyclic_error": lambda: ValueError(cyclic()),
    "deep_error": lambda: ValueError(deep()),
    "digits_error": lambda: ValueError(10**5000),
    "unpicklable": unpicklable,
    "chained": chained,
    "grouped": grouped,
    "recursion": lambda: RecursionError("maximum depth"),
    "memory": MemoryError,
    "system_exit": lambda: SystemExit(3),
    "generator_exit": GeneratorExit,
    "cancelled": asyncio.CancelledError,
    "stop_iteration": lambda: StopIteration(7),
    "base_error": lambda: type("Base", (BaseException,), {})("of no kind"),
    "base_group": lambda: BaseExceptionGroup("both", [SystemExit(1), ValueError("one")]),
    "ours": lambda: RequestRejectedError("refused \x00 \ud800", tenant="t\ud800", provider="p"),
    "lying_refusal": lying_refusal,
    "decode_error": lambda: UnicodeDecodeError("utf-8", b"\xff" * MIB, 0, 1, "\ud800"),
}


def forged(outcome: Any, **fields: object) -> object:
    """*outcome* with fields that its own checks would not have let pass."""
    for name, value in fields.items():
        object.__setattr__(outcome, name, value)
    return outcome


class Turncoat:
    """A snooze as long as it is asked whether it is an outcome, and nothing when it is asked which one."""

    def __init__(self) -> None:
        self._looks: Iterator[type] = iter((Snooze,) * 3)  # Complete, Retry, Snooze

    @property
    def __class__(self) -> Any:  # type: ignore[override]
        return next(self._looks, object)


class HollowComplete(Complete):
    """Complete, with a result that cannot be had."""

    def __getattribute__(self, name: str) -> Any:
        raise RuntimeError("hollow")


OUTCOMES: dict[str, Callable[[], object]] = {
    "done_nan": lambda: Complete({"ratio": float("nan"), "deep": deep()}),
    "hollow_done": HollowComplete,
    "turncoat": Turncoat,
    "snooze_nan": lambda: forged(Snooze(1.0), delay_s=float("nan")),
    "snooze_text": lambda: forged(Snooze(1.0), delay_s="soon"),
    "snooze_past": lambda: forged(Snooze(1.0), delay_s=-1e400),
    "cancel_mute": lambda: forged(Cancel("why"), reason=Mute()),
    "cancel_huge": lambda: Cancel("\ud800" + "z" * (10 * MIB)),
    "discard_nonsense": lambda: forged(Discard("why"), category="nonsense"),
    "discard_blank": lambda: forged(Discard("why"), reason="\x00"),
    "reauth_mute": lambda: forged(RequireReauth("why"), reason=NoText()),
    "retry_nothing": lambda: forged(Retry(Failure(Category.TRANSIENT_SERVER, "c", "r")), failure=None),
    "retry_nonsense": lambda: Retry(
        forged(Failure(Category.TRANSIENT_SERVER, "c", "r"), category="x", hint_s="soon", reason=Mute())  # type: ignore[arg-type]
    ),
    "retry_never": lambda: Retry(Failure(Category.TRANSIENT_SERVER, "c\0d", "r", hint_s=float("nan"))),
}

PAYLOADS: dict[str, Callable[[], Any]] = {
    **{name: lambda name=name: {"value": RESULTS[name]()} for name in RESULTS},  # type: ignore[misc]
    "no_object": lambda: [1, 2],
    "nothing": lambda: None,
    "too_large": lambda: {"text": "x" * MIB},
}
"""What a caller may try. Some of it is fit to be stored."""
