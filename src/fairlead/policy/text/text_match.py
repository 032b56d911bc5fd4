"""Does a text say this? Globs by default, ``re:`` before a regular expression (C3, S08, V10).

A pattern is found anywhere in a line of the text, and case does not matter. In a glob ``*`` is any run of
characters, ``?`` any one, all else is itself. Expressions run on the Rust engine that pydantic brings along:
its time is linear in the text whatever the pattern, so there is nothing to time out. What it cannot do in
linear time (back-references, looking around) it refuses. Three bounds of ours keep the constant small as
well: \\w, \\d and \\s mean ASCII, counted repetitions come to at most 100 in all, and a text is looked at up
to 4,096 characters.

What matches the empty text matches every text, and is refused: to match any message, name the status.
"""

from __future__ import annotations

import math
import re
from functools import lru_cache
from typing import Annotated

from pydantic import BeforeValidator, Field
from pydantic_core import SchemaError, SchemaValidator, core_schema

LONGEST_PATTERN = 500
LONGEST_TEXT = 4096
"""Characters of a text that patterns look at."""

_EXPRESSION = "re:"
_MOST_REPEATS = 100
_GLOB = {"*": ".*", "?": "."}
_SPECIAL = re.compile(r"[\\.+*?()|\[\]{}^$#&~\-]")
# One token: an escape with one more character, a counted repetition, or any character.
_TOKEN = re.compile(r"\\(?P<escaped>.)|\{(?P<least>[0-9]*)(?P<comma>,?)(?P<most>[0-9]*)\}|.", re.DOTALL)
_ASCII = {
    "w": "[0-9A-Za-z_]",
    "W": "[^0-9A-Za-z_]",
    "d": "[0-9]",
    "D": "[^0-9]",
    "s": r"[\t\n\v\f\r ]",
    "S": r"[^\t\n\v\f\r ]",
    "b": r"(?-u:\b)",
}


class InvalidPatternError(ValueError):
    """A pattern that cannot be used, with the reason."""


class TextMatch:
    """A compiled pattern. InvalidPatternError is raised if it is not valid."""

    __slots__ = ("_engine", "pattern")

    def __init__(self, pattern: str) -> None:
        self.pattern = pattern
        self._engine = _engine(pattern)

    def found_in(self, text: str) -> bool:
        """Return whether the first 4,096 characters of *text* match.

        >>> TextMatch("rate*limit").found_in("API Rate-Limit reached"), TextMatch("re:^x").found_in("a x")
        (True, False)
        """
        return self._engine.isinstance_python(text[:LONGEST_TEXT])


@lru_cache(maxsize=1024)
def text_match(pattern: str) -> TextMatch:
    """Return the cached TextMatch of *pattern*. Raise InvalidPatternError if it is not valid."""
    return TextMatch(pattern)


def _checked(value: object) -> object:
    if isinstance(value, str):
        text_match(value)
    return value


TextPattern = Annotated[str, Field(strict=True, max_length=LONGEST_PATTERN), BeforeValidator(_checked)]
"""A field that holds a pattern."""


def _engine(pattern: str) -> SchemaValidator:
    """Return the engine that searches for *pattern* in linear time; raise InvalidPatternError if it is not valid."""
    if len(pattern) > LONGEST_PATTERN:
        raise InvalidPatternError(f"the pattern is longer than {LONGEST_PATTERN} characters")
    expression = _ascii(pattern[len(_EXPRESSION) :]) if pattern.startswith(_EXPRESSION) else _globbed(pattern)
    try:
        engine = SchemaValidator(
            core_schema.str_schema(pattern=f"(?i){expression}", regex_engine="rust-regex")
        )
    except SchemaError as error:
        raise InvalidPatternError(f"the pattern is no linear-time expression: {_reason(error)}") from None
    if engine.isinstance_python(""):
        raise InvalidPatternError("the pattern matches every text")
    return engine


def _globbed(pattern: str) -> str:
    return "".join(_GLOB.get(sign) or _SPECIAL.sub(r"\\\g<0>", sign) for sign in pattern)


def _ascii(expression: str) -> str:
    """Return *expression* with the ASCII meaning of its classes. Raise InvalidPatternError for many repetitions."""
    parts: list[str] = []
    repeats = 1.0
    for token in _TOKEN.finditer(expression):
        escaped = token["escaped"]
        if escaped in ("p", "P"):
            raise InvalidPatternError("the pattern names a class of Unicode: list the characters in [...]")
        if token["comma"] is not None:
            repeats *= max(1, *(_count(token[side]) for side in ("least", "most")))
        parts.append(_ASCII.get(escaped, token[0]) if escaped else token[0])
    if repeats > _MOST_REPEATS:
        raise InvalidPatternError(f"the pattern's {{...}} come to more than {_MOST_REPEATS} repetitions")
    return "".join(parts)


def _count(digits: str) -> float:
    return 1 if not digits else math.inf if len(digits) > 4 else int(digits)


def _reason(error: SchemaError) -> str:
    """Return the last line of the engine's message, without the drawing of the pattern."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1].removeprefix("error: ") if lines else "it is malformed"
