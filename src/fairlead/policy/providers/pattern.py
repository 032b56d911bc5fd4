"""A rule that classifies responses, as a profile or the settings of a connection contain it.

    name = "catalogue_busy"
    http_codes = [409, "5xx"]
    patterns = ["catalogue*is being rebuilt"]
    strategy = "constant"
    initial_delay_s = 20

A rule applies to responses with one of its http_codes. It matches if one of its conditions is met: an error
code of the provider, a header, a value in the body, or words in the message. For its decisive_codes the status
suffices. For a failure that a body reports in a 200 (GraphQL, SOAP) http_codes are ignored.

Spec: C3, K2.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Annotated, Self

from pydantic import BeforeValidator, Field, model_validator

from fairlead.policy.failures.backoff import Jitter
from fairlead.policy.failures.category import Category
from fairlead.policy.failures.strategy import Strategy, StrategyName
from fairlead.policy.providers.profile_parts import Code, ConfigTable, Flag, HeaderName, Key, Seconds
from fairlead.policy.text.text_match import TextPattern

MAX_PATTERNS = 64
"""The most rules that a provider or a connection may have."""
MAX_WORDS = 200
"""The most text patterns of all rules of a provider or a connection: each adds to the time of a classification."""
MAX_ATTEMPTS = 10
"""The most retries of a call."""

_CLASSES = ("1xx", "2xx", "3xx", "4xx", "5xx")
_RATE_LIMIT = frozenset({StrategyName.AGGRESSIVE, StrategyName.STANDARD, StrategyName.PARKED})


def _http_code(value: object) -> object:
    """Return *value* if it is a status or a class of them; raise ValueError otherwise."""
    is_number = isinstance(value, int) and not isinstance(value, bool) and 100 <= value <= 599
    if not is_number and value not in _CLASSES:
        raise ValueError('a status is a number from 100 to 599, or a class such as "5xx"')
    return value


HttpCode = Annotated[int | str, BeforeValidator(_http_code)]
_PART = r"(?:[A-Za-z0-9_:@-]{1,64}|\*)"
JsonPath = Annotated[str, Field(strict=True, pattern=rf"\A{_PART}(?:\.{_PART}){{0,7}}\z")]
Delay = Annotated[float, Field(strict=True, ge=0, le=86_400, allow_inf_nan=False)]


class HeaderCondition(ConfigTable):
    """A header that a response must have."""

    name: HeaderName = Field(description="Its name, in any case.")
    value: TextPattern | None = Field(default=None, description="Its value. Default any.")


class BodyCondition(ConfigTable):
    """A value that a JSON body must contain."""

    path: JsonPath = Field(description="Names separated by dots; `*` is every entry: `errors.*.reason`.")
    value: Annotated[str, Field(max_length=500)] | int | bool | None = Field(
        default=None, description="The exact value. Default any but null."
    )


class Pattern(ConfigTable):
    """One rule: which responses it matches, and how the call is then retried."""

    name: Key = Field(description="Its name; you find it in messages and metrics.")
    http_codes: tuple[HttpCode, ...] = Field(
        min_length=1,
        max_length=32,
        description='Statuses that it applies to: numbers, or classes such as "5xx".',
    )
    patterns: tuple[TextPattern, ...] = Field(
        max_length=32,
        description="Texts in the error message: globs, or `re:` and a linear-time expression; case is "
        "ignored.",
    )
    strategy: StrategyName = Field(description="How the call is retried.")
    decisive_codes: tuple[HttpCode, ...] = Field(
        default=(),
        max_length=32,
        description="Those of http_codes that match whatever else the response contains. Default none.",
    )
    provider_codes: tuple[Code, ...] = Field(
        default=(), max_length=64, description="The provider's own error codes. Default none."
    )
    header: HeaderCondition | None = Field(
        default=None, description="A header of the response. Default none."
    )
    body: BodyCondition | None = Field(default=None, description="A value in the JSON body. Default none.")
    category: Category | None = Field(
        default=None, description="Kind of failure. Default by strategy and status."
    )
    max_attempts: int = Field(
        default=3, strict=True, ge=1, le=MAX_ATTEMPTS, description="Most retries. Default 3."
    )
    slots: Flag = Field(
        default=False,
        description="Whether the provider limits calls in flight, so that a retry takes a slot. Default "
        "false.",
    )
    priority: int | None = Field(
        default=None,
        strict=True,
        ge=1,
        le=1000,
        description="Order of evaluation, 1 first. Default after all that have one.",
    )
    initial_delay_s: Seconds | None = Field(
        default=None,
        description="First delay of exponential, linear and constant (default 1), and the delay of parked "
        "(default 900) and circuit_breaker (default 60) if the response gives none.",
    )
    max_delay_s: Seconds | None = Field(
        default=None, description="Longest delay of these strategies. Default 30."
    )
    delays_s: tuple[Delay, ...] = Field(
        default=(),
        max_length=MAX_ATTEMPTS,
        description="Delays of the strategy custom; the last repeats. Default none.",
    )

    @model_validator(mode="after")
    def _is_possible(self) -> Self:
        if not (self.patterns or self.decisive_codes or self.provider_codes or self.header or self.body):
            raise ValueError("matches nothing: give patterns, decisive_codes, provider_codes, header or body")
        stray = [code for code in self.decisive_codes if not matches_status(self.http_codes, code)]
        if stray:
            raise ValueError(f"decisive_codes names {stray[0]}, which http_codes does not")
        try:
            self.as_strategy()
        except ValueError as error:
            raise ValueError(str(error).partition(" hint: ")[0]) from None
        return self

    @property
    def is_limit(self) -> bool:
        """Whether a match means a rate limit: by the category, else by the strategy."""
        if self.category is not None:
            return self.category is Category.TRANSIENT_RATE_LIMIT
        return self.strategy in _RATE_LIMIT

    def as_strategy(self) -> Strategy:
        """Return the retry strategy with this rule's delays; equal jitter for a rate limit, else full jitter."""
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
    """Return whether *codes* contain *status*, which may be a class such as ``5xx``, or its class.

    >>> matches_status(["5xx"], 503), matches_status([429], 503)
    (True, False)
    """
    return any(status == code or f"{str(status)[:1]}xx" == code for code in codes)


def sort_patterns(patterns: Sequence[Pattern]) -> tuple[Pattern, ...]:
    """Return *patterns* by priority; those without one come last, in their order.

    Raises:
        ValueError: There are too many, or two have the same name or priority.
    """
    if len(patterns) > MAX_PATTERNS:
        raise ValueError(f"{len(patterns)} patterns are more than {MAX_PATTERNS}")
    words = sum(len(pattern.patterns) for pattern in patterns)
    if words > MAX_WORDS:
        raise ValueError(f"{words} words in patterns are more than {MAX_WORDS}")
    names = Counter(pattern.name for pattern in patterns)
    priorities = Counter(pattern.priority for pattern in patterns if pattern.priority is not None)
    duplicates = [f"name {name}" for name, count in names.items() if count > 1]
    duplicates += [f"priority {priority}" for priority, count in priorities.items() if count > 1]
    if duplicates:
        raise ValueError(f"two patterns have the {duplicates[0]}")
    return tuple(sorted(patterns, key=lambda pattern: pattern.priority or 1001))
