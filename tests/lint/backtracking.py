"""How much work a regular expression makes: counted steps of a matcher that backtracks as Python's does.

No clock is asked, so the verdict is the same on every machine. Texts are made of what the expression itself
matches, in part and in whole, again and again, with an end that no part of it matches.
"""

from __future__ import annotations

import re._constants as op
import re._parser as parser
from collections.abc import Callable, Iterator
from typing import Any

MOST_STEPS = 60_000
SIZES = (24, 48)
GROWTH = 3.0  # twice the text: a linear matcher makes about twice the steps, a quadratic one four times

_CLASSES = {
    op.CATEGORY_DIGIT: str.isdigit,
    op.CATEGORY_SPACE: str.isspace,
    op.CATEGORY_WORD: lambda sign: sign.isalnum() or sign == "_",
}
_NOT = {
    op.CATEGORY_NOT_DIGIT: op.CATEGORY_DIGIT,
    op.CATEGORY_NOT_SPACE: op.CATEGORY_SPACE,
    op.CATEGORY_NOT_WORD: op.CATEGORY_WORD,
}
_SAMPLES = "a0A_ -.\"'<>/:;,=[]{}()%&?\\\n~+é!#@"
_END = "\0"
Then = Callable[[int], bool]


class TooMany(Exception):
    """More steps than anybody would wait for."""


class Matcher:
    """Counts the steps of one expression over texts."""

    def __init__(self, pattern: str, flags: int = 0) -> None:
        self.tree = parser.parse(pattern, flags)
        self._ignores_case = bool(self.tree.state.flags & 2)
        self.steps = 0
        self._text = ""
        self._groups: dict[int, tuple[int, int]] = {}

    def count(self, text: str, *, everywhere: bool) -> int:
        """Return the steps of one match from the beginning, or of a search through all of *text*."""
        self.steps, self._text, at = 0, text, 0
        try:
            while at <= len(text):
                self._groups, ended = {}, [at]
                is_match = self._match(list(self.tree), 0, at, lambda end, ended=ended: not ended.append(end))
                at = max(ended[-1], at + 1) if is_match else at + 1
                if not everywhere:
                    break
        except (TooMany, RecursionError):
            return MOST_STEPS
        return self.steps

    def _match(self, nodes: list[Any], index: int, at: int, then: Then) -> bool:
        self.steps += 1
        if self.steps > MOST_STEPS:
            raise TooMany
        if index == len(nodes):
            return then(at)
        kind, value = nodes[index]

        def rest(end: int) -> bool:
            return self._match(nodes, index + 1, end, then)

        if kind in (op.LITERAL, op.NOT_LITERAL, op.ANY, op.IN):
            return at < len(self._text) and self._fits(kind, value, self._text[at]) and rest(at + 1)
        return self._compound(kind, value, at, rest)

    def _compound(self, kind: Any, value: Any, at: int, rest: Then) -> bool:
        if kind is op.SUBPATTERN:
            number, _, _, inner = value

            def close(end: int) -> bool:
                self._groups[number] = (at, end)
                return rest(end)

            return self._match(list(inner), 0, at, close)
        if kind is op.BRANCH:
            return any(self._match(list(branch), 0, at, rest) for branch in value[1])
        if kind in (op.MAX_REPEAT, op.MIN_REPEAT):
            least, most, inner = value
            return self._repeat(list(inner), least, most, kind is op.MAX_REPEAT, at, rest, 0)
        if kind in (op.POSSESSIVE_REPEAT, op.ATOMIC_GROUP):
            node = (
                (op.MAX_REPEAT, value)
                if kind is op.POSSESSIVE_REPEAT
                else (op.SUBPATTERN, (None, 0, 0, value))
            )
            ends: list[int] = []
            is_match = self._match([node], 0, at, lambda end: not ends.append(end))
            return is_match and rest(ends[-1])
        if kind in (op.ASSERT, op.ASSERT_NOT):
            ahead, inner = value
            start = at if ahead > 0 else at - inner.getwidth()[1]
            is_match = start >= 0 and self._match(list(inner), 0, start, lambda end: ahead > 0 or end == at)
            return is_match == (kind is op.ASSERT) and rest(at)
        if kind is op.GROUPREF:
            start, end = self._groups.get(value, (0, 0))
            group_text = self._text[start:end]
            return self._text.startswith(group_text, at) and rest(at + len(group_text))
        if kind is op.GROUPREF_EXISTS:
            number, yes, no = value
            return self._match(list(yes if number in self._groups else no or []), 0, at, rest)
        assert kind is op.AT, kind
        return self._stands(value, at) and rest(at)

    def _repeat(
        self, inner: list[Any], least: int, most: int, greedy: bool, at: int, rest: Then, done: int
    ) -> bool:
        def again(end: int) -> bool:
            return (end > at or done < least) and self._repeat(
                inner, least, most, greedy, end, rest, done + 1
            )

        branches = [
            lambda: done < most and self._match(inner, 0, at, again),
            lambda: done >= least and rest(at),
        ]
        return any(branch() for branch in (branches if greedy else reversed(branches)))

    def _stands(self, position: Any, at: int) -> bool:
        is_word_before = at > 0 and _CLASSES[op.CATEGORY_WORD](self._text[at - 1])
        is_word_after = at < len(self._text) and _CLASSES[op.CATEGORY_WORD](self._text[at])
        if position in (op.AT_BOUNDARY, op.AT_NON_BOUNDARY):
            return (is_word_before != is_word_after) == (position is op.AT_BOUNDARY)
        if position in (op.AT_BEGINNING, op.AT_BEGINNING_STRING):
            return at == 0
        return at == len(self._text)

    def _fits(self, kind: Any, value: Any, sign: str) -> bool:
        if self._ignores_case:
            return any(_is_one(kind, value, part) for part in (sign.lower(), sign.upper()))
        return _is_one(kind, value, sign)


def _is_one(kind: Any, value: Any, sign: str) -> bool:
    if kind is op.LITERAL:
        return ord(sign) == value
    if kind is op.NOT_LITERAL:
        return ord(sign) != value
    if kind is op.RANGE:
        return value[0] <= ord(sign) <= value[1]
    if kind is op.CATEGORY:
        return not _CLASSES[_NOT[value]](sign) if value in _NOT else _CLASSES[value](sign)
    if kind is op.IN:
        negated = value[0][0] is op.NEGATE
        return any(_is_one(*part, sign) for part in value[negated:]) != negated
    return True  # any: that it stops at a line's end without DOTALL makes no work


def _samples(nodes: Any) -> Iterator[str]:
    """Yield texts that parts of the tree match, and then texts that the whole tree matches."""
    complete = [""]
    for kind, value in nodes:
        if kind in (op.LITERAL, op.NOT_LITERAL, op.ANY, op.IN, op.RANGE, op.CATEGORY):
            fitting = [sign for sign in _SAMPLES if _is_one(kind, value, sign)]
            fitting = [chr(value)] if kind is op.LITERAL else fitting or [_first(value)]
            yield from dict.fromkeys((*fitting[:2], *[sign for sign in fitting if not sign.isalnum()][:2]))
            complete = [text + fitting[0] for text in complete]
        elif kind in (op.SUBPATTERN, op.ATOMIC_GROUP, op.MAX_REPEAT, op.MIN_REPEAT, op.POSSESSIVE_REPEAT):
            inner = value[-1] if kind is not op.ATOMIC_GROUP else value
            parts = list(_samples(inner))
            yield from parts
            times = value[0] if kind in (op.MAX_REPEAT, op.MIN_REPEAT, op.POSSESSIVE_REPEAT) else 1
            yield from complete
            complete = [text + parts[-1] * max(1, min(times, 6)) for text in complete]
        elif kind is op.BRANCH:
            branches = [list(_samples(branch)) for branch in value[1]]
            for parts in branches:
                yield from parts
            complete = [text + parts[-1] for text in complete for parts in branches][:4]
    yield from complete


def _first(value: Any) -> str:
    kind, inner = next(part for part in value if part[0] is not op.NEGATE)
    return chr(inner if kind is op.LITERAL else inner[0]) if kind is not op.CATEGORY else "a"


def pumps(matcher: Matcher) -> list[tuple[str, str]]:
    """Return prefixes and the texts to repeat after them."""
    parts = [text for text in dict.fromkeys(_samples(matcher.tree)) if text][:40]
    signs = [text for text in parts if len(text) == 1]
    words = sorted((text for text in parts if 1 < len(text) <= SIZES[0]), key=len)
    pairs = [word + sign for word in (words[:3] + words[-3:]) for sign in signs[:6]]
    repeated = [("", text) for text in dict.fromkeys((*signs, *words, *pairs)) if len(text) <= SIZES[0]]
    return repeated + [(word, text) for word in words[-2:] for text in signs[:8]]


def superlinear(pattern: str, flags: int = 0, *, everywhere: bool = True) -> str | None:
    """Return a text on which the work grows faster than its length; None if none is found."""
    matcher = Matcher(pattern, flags)
    for prefix, text in pumps(matcher):
        small, large = (
            matcher.count(prefix + text * (size // len(text)) + _END, everywhere=everywhere) for size in SIZES
        )
        times = (SIZES[1] // len(text)) / (SIZES[0] // len(text))
        if large >= MOST_STEPS or (large > 400 and large > small * times * GROWTH / 2):
            return f"{prefix!r} + {text!r} * n: {small}, then {large} steps"
    return None
