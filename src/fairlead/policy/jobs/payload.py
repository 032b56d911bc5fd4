"""Arguments of a job: JSON that PostgreSQL, Python and other languages read alike, within bounds.

They are checked when a job is enqueued, and the error names the place. So a job that could not be stored or
read again never fails later in a worker.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from fairlead.errors import InvalidInputError
from fairlead.policy.text.names import shown

MAX_ARGS_BYTES = 64 * 1024
MAX_ARGS_DEPTH = 32

_MAX_INT_BITS = 256  # far beyond any id; Python alone refuses to read what has over 4,300 digits
_LONGEST_PATH = 200

_ENCODER = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))
# What `_ENCODER.encode` makes anew for each call, where this Python has it: a third of the time.
_make: Any = getattr(json.encoder, "c_make_encoder", None)
_chunks = _make and _make(
    None, _ENCODER.default, json.encoder.encode_basestring, None, ":", ",", False, False, False
)


def encode_args(args: Mapping[str, object], *, name: str = "args", tenant: str | None = None) -> str:
    """Return the JSON text of *args*.

    Bounds: an object of at most 64 KiB, 32 levels, keys of text, numbers finite and up to 256 bits, no NUL
    and no lone surrogate anywhere.

    Raises:
        InvalidInputError: They cannot be stored; the message has the place in *name*.
    """
    try:
        _check(args, "args", MAX_ARGS_DEPTH, [MAX_ARGS_BYTES])
        if not isinstance(args, dict):
            raise _UnfitError("args", f"is {shown(args)}, not an object", "pass a dict")
        text = "".join(_chunks(args, 0)) if _chunks else _ENCODER.encode(args)
        if len(text) > MAX_ARGS_BYTES // 4 and len(text.encode()) > MAX_ARGS_BYTES:
            raise _too_large()
    except _UnfitError as unfit:
        message = f"{name}{unfit.path.removeprefix('args')} {unfit.problem}"
        raise InvalidInputError(message, tenant=tenant, hint=unfit.hint) from None
    return text


class _UnfitError(Exception):
    def __init__(self, path: str, problem: str, hint: str) -> None:
        super().__init__(problem)
        self.path, self.problem, self.hint = path[:_LONGEST_PATH], problem, hint


def _check(value: object, path: str, depth: int, room: list[int]) -> None:
    """Check *value*; *room* holds the bytes left, so that an endless value is not read to its end."""
    room[0] -= 1
    if room[0] < 0:
        raise _too_large()
    if depth < 0:
        raise _UnfitError(path, f"is nested over {MAX_ARGS_DEPTH} levels", "pass flatter data")
    if isinstance(value, str):
        _check_text(value, path, room)
    elif isinstance(value, dict):
        _check_object(value, path, depth, room)
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            _check(item, f"{path}[{index}]", depth - 1, room)
    else:
        _check_scalar(value, path)


def _check_object(value: Mapping[object, object], path: str, depth: int, room: list[int]) -> None:
    for key, item in value.items():
        if not isinstance(key, str):
            raise _UnfitError(path, f"has a key that is {shown(key)}", "convert it to str: JSON has no other")
        if depth > 0 and _is_plain(key) and _is_plain(item):  # nearly always, and no path is needed for it
            room[0] -= len(key) + 1 + (len(item) if isinstance(item, str) else 0)
            continue
        _check_text(key, f"{path}, key {shown(key)},", room)
        _check(item, f"{path}.{key}" if key.isidentifier() else f"{path}[{shown(key)}]", depth - 1, room)
    if room[0] < 0:
        raise _too_large()


def _is_plain(value: object) -> bool:
    """Return whether *value* is ASCII without NUL, a 64-bit integer, true, false or null."""
    if isinstance(value, str):
        return value.isascii() and "\0" not in value
    return value is None or (isinstance(value, int) and -(1 << 63) <= value < 1 << 64)


def _check_text(value: str, path: str, room: list[int]) -> None:
    room[0] -= len(value)
    if room[0] < 0:
        raise _too_large()
    if "\0" in value:
        raise _UnfitError(path, "holds a NUL character", "remove it, or pass base64")
    try:
        value.encode()
    except UnicodeEncodeError:
        hint = "decode the bytes with the right charset, or pass base64"
        raise _UnfitError(path, "holds half of a surrogate pair, which is no valid UTF-8", hint) from None


def _check_scalar(value: object, path: str) -> None:
    if value is None or isinstance(value, bool):
        return
    if isinstance(value, int):
        if value.bit_length() > _MAX_INT_BITS:
            raise _UnfitError(path, f"is an integer of {value.bit_length()} bits", "pass it as a text")
    elif isinstance(value, float):
        if not math.isfinite(value):
            raise _UnfitError(path, f"is {value}, which JSON cannot say", "pass None or a text")
    else:
        hint = "convert it to text, number, bool, None, list or dict"
        raise _UnfitError(path, f"is {shown(value)}, which JSON cannot say", hint)


def _too_large() -> _UnfitError:
    hint = "store the data elsewhere and pass a reference to it"
    return _UnfitError("args", f"are larger than {MAX_ARGS_BYTES // 1024} KiB of JSON", hint)
