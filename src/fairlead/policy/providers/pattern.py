"""One rule of classification as people write it, in a profile or in a connection's settings (C3, K2).

    name = "catalogue_busy"
    http_codes = [409, "5xx"]
    patterns = ["catalogue*is being rebuilt"]
    strategy = "constant"
    initial_delay_s = 20

A rule holds for answers with one of its http_codes, and matches where one of its signs is seen: a code of the
provider, a header, a value in the body, words in the message; or by the status alone, where it says so. A
failure that a body tells of in a 200 (GraphQL, SOAP) has no status worth asking, so there http_codes are not
asked.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Annotated, Self

from pydantic import BeforeValidator, Field, model_validator

from fairlead.policy.failures.backoff import Jitter
from fairlead.policy.failures.category import Category
from fairlead.policy.failures.strategy import Strategy, StrategyName
from fairlead.policy.providers.profile_parts import Code, Flag, HeaderName, Key, Seconds, Table
from fairlead.policy.text.text_match import TextPattern

MAX_PATTERNS = 64
"""Rules of one level (a provider, a connection)."""
MAX_WORDS = 200
"""Words of all rules of one level: each takes its share of the time to judge an answer."""
MAX_ATTEMPTS = 10
"""Tries after the first."""

_CLASSES = ("1xx", "2xx", "3xx", "4xx", "5xx")
_RATE_LIMIT = frozenset({StrategyName.AGGRESSIVE, StrategyName.STANDARD, StrategyName.PARKED})


def _http_code(value: object) -> object:
    is_number = isinstance(value, int) and not isinstance(value, bool) and 100 <= value <= 599
    if not is_number and value not in _CLASSES:
        raise ValueError('a status is a number from 100 to 599, or a class such as "5xx"')
    return value


HttpCode = Annotated[int | str, BeforeValidator(_http_code)]
_PART = r"(?:[A-Za-z0-9_:@-]{1,64}|\*)"
JsonPath = Annotated[str, Field(strict=True, pattern=rf"\A{_PART}(?:\.{_PART}){{0,7}}\z")]
Delay = Annotated[float, Field(strict=True, ge=0, le=86_400, allow_inf_nan=False)]


class HeaderSign(Table):
    """A header that an answer must have."""

    name: HeaderName = Field(description="Its name, in any case.")
    value: TextPattern | None = Field(default=None, description="Its value. Default any.")


class BodySign(Table):
    """A value in a JSON body."""

    path: JsonPath = Field(description="Names with dots between; * is every entry: `errors.*.reason`.")
    value: Annotated[str, Field(max_length=500)] | int | bool | None = Field(
        default=None, description="Its exact value. Default any but null."
    )


class Pattern(Table):
    """One rule: what it matches, and what then becomes of the call."""

    name: Key = Field(description="Its name; you find it in messages and metrics.")
    http_codes: tuple[HttpCode, ...] = Field(
        min_length=1,
        max_length=32,
        description='Statuses that it matches: numbers, or classes such as "5xx".',
    )
    patterns: tuple[TextPattern, ...] = Field(
        max_length=32,
        description="Words of the message: globs, or `re:` and a linear-time expression; case is ignored.",
    )
    strategy: StrategyName = Field(description="What follows: a retry strategy or another action.")
    alone: tuple[HttpCode, ...] = Field(
        default=(),
        max_length=32,
        description="Those of http_codes that match by themselves. Default none.",
    )
    provider_codes: tuple[Code, ...] = Field(
        default=(), max_length=64, description="The provider's own error codes. Default none."
    )
    header: HeaderSign | None = Field(
        default=None, description="A header that must be present. Default none."
    )
    body: BodySign | None = Field(default=None, description="A value in the JSON body. Default none.")
    category: Category | None = Field(
        default=None, description="What kind of failure it is. Default by strategy and status."
    )
    max_attempts: int = Field(
        default=3, strict=True, ge=1, le=MAX_ATTEMPTS, description="Tries after the first. Default 3."
    )
    slots: Flag = Field(
        default=False, description="It is about calls in flight: its retries take a slot. Default false."
    )
    priority: int | None = Field(
        default=None, strict=True, ge=1, le=1000, description="Asked in this order, 1 first. Default after."
    )
    initial_delay_s: Delay | None = Field(
        default=None, description="First delay of exponential, linear, constant; of a park without a hint."
    )
    max_delay_s: Seconds | None = Field(default=None, description="Longest delay of these. Default 30.")
    delays_s: tuple[Delay, ...] = Field(
        default=(), max_length=MAX_ATTEMPTS, description="Delays of the strategy custom; the last repeats."
    )

    @model_validator(mode="after")
    def _is_possible(self) -> Self:
        if not (self.patterns or self.alone or self.provider_codes or self.header or self.body):
            raise ValueError("nothing would match it: give patterns, alone, provider_codes, header or body")
        stray = [code for code in self.alone if not matches_status(self.http_codes, code)]
        if stray:
            raise ValueError(f"alone names {stray[0]}, which http_codes does not")
        try:
            self.as_strategy()
        except ValueError as error:
            raise ValueError(str(error).partition(" hint: ")[0]) from None
        return self

    @property
    def is_limit(self) -> bool:
        """Whether it speaks of a limit: by its category, else by its strategy."""
        if self.category is not None:
            return self.category is Category.TRANSIENT_RATE_LIMIT
        return self.strategy in _RATE_LIMIT

    def as_strategy(self) -> Strategy:
        """How to go on, with this rule's delays. A limit's delays are spread equally, others fully."""
        default = Strategy()
        base_s = self.initial_delay_s or default.base_s
        return Strategy(
            self.strategy,
            base_s=base_s,
            cap_s=self.max_delay_s or max(default.cap_s, base_s),
            jitter=Jitter.EQUAL if self.is_limit else Jitter.FULL,
            delays_s=self.delays_s,
            later_s=self.initial_delay_s,
        )


def matches_status(codes: Iterable[int | str], status: int | str) -> bool:
    """Whether *status* (or a class of them) is among *codes*.

    >>> matches_status(["5xx"], 503), matches_status([429], 503)
    (True, False)
    """
    return any(status == code or f"{str(status)[:1]}xx" == code for code in codes)


def in_order(patterns: Sequence[Pattern]) -> tuple[Pattern, ...]:
    """*patterns* by priority, those without one after them as written; ValueError where two are alike."""
    if len(patterns) > MAX_PATTERNS:
        raise ValueError(f"{len(patterns)} patterns are more than {MAX_PATTERNS}")
    words = sum(len(pattern.patterns) for pattern in patterns)
    if words > MAX_WORDS:
        raise ValueError(f"{words} words in patterns are more than {MAX_WORDS}")
    names = Counter(pattern.name for pattern in patterns)
    places = Counter(pattern.priority for pattern in patterns if pattern.priority is not None)
    twice = [f"name {name}" for name, times in names.items() if times > 1]
    twice += [f"priority {place}" for place, times in places.items() if times > 1]
    if twice:
        raise ValueError(f"two patterns have the {twice[0]}")
    return tuple(sorted(patterns, key=lambda pattern: pattern.priority or 1001))
