"""The rules by which the responses of one connection are classified.

The rule set of the connection comes before that of the provider, and that before the built-in one; each is
searched as a whole, so your own rule overrides all that ships. Within a rule set the order is that of the steps
(provider code, header, status, pattern), and then that of the rules. A tenant has no rule set: its rules are
given to each of its connections. Spec: C3, K2.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from fairlead.policy.failures.category import Category
from fairlead.policy.failures.strategy import Strategy
from fairlead.policy.providers.connection_calls import call_settings_of
from fairlead.policy.providers.pattern import Pattern, matches_status, sort_patterns
from fairlead.policy.providers.profile import Profile

BUILT_IN = "built in"
"""Origin of the rules that ship for every provider."""

_SUCCESSES: tuple[int | str, ...] = ("2xx", 304)


@dataclass(frozen=True, slots=True)
class RuleSet:
    """The rules of one origin, in order. *origin* is its name in verdicts."""

    origin: str
    patterns: tuple[Pattern, ...]


@dataclass(frozen=True, slots=True)
class Rules:
    """All rules and defaults that classification needs, made once for a connection by `rules_of`.

    Attributes:
        strategy, max_retries: For failures of network and server that no rule matches.
        most_retries: The bound on the retries of every rule.
        in_successes: Whether some rule applies to responses without a failure.
        by_code: The category of the first rule that names a code of the provider.
    """

    levels: tuple[RuleSet, ...]
    dialect: str
    strategy: Strategy
    max_retries: int
    most_retries: int
    in_successes: bool
    by_code: Mapping[str, Category]


def rules_of(
    profile: Profile,
    settings: Mapping[str, Any] | None = None,
    *,
    tenant: str = "",
) -> Rules:
    """Return the rules of a connection at the provider of *profile*, with its *settings* (default none).

    Raises InvalidConfigError for invalid settings.
    """
    settings_of_calls = call_settings_of(profile, settings or {}, tenant=tenant)
    levels = tuple(
        RuleSet(origin, sort_patterns(patterns))
        for origin, patterns in (
            ("the connection", settings_of_calls.patterns),
            (f"provider {profile.label}", profile.patterns),
            (BUILT_IN, builtin_rules()),
        )
        if patterns
    )
    return Rules(
        levels,
        profile.limits.dialect,
        settings_of_calls.as_strategy(),
        settings_of_calls.max_retries,
        settings_of_calls.most_retries,
        in_successes=any(_may_be_success(rule) for level in levels for rule in level.patterns),
        by_code=_by_code(levels),
    )


@cache
def builtin_rules() -> tuple[Pattern, ...]:
    """Return the rules that ship for every provider. Spec: DEFAULTS §4."""
    text = files("fairlead.policy.calls.classify").joinpath("patterns.toml").read_text("utf-8")
    return sort_patterns([Pattern.model_validate(table) for table in tomllib.loads(text)["patterns"]])


def category_of(rule: Pattern, meaning: Category | None) -> Category:
    """Return the category of a failure that *rule* matched; *meaning* is that of the status or body alone."""
    if rule.category is not None:
        return rule.category
    if rule.is_limit:
        return Category.TRANSIENT_RATE_LIMIT
    if rule.strategy == "circuit_breaker":
        return Category.TRANSIENT_SERVER
    if rule.strategy == "none":
        return Category.PERMANENT_REQUEST if meaning is None or meaning.transient else meaning
    return meaning if meaning is not None and meaning.transient else Category.TRANSIENT_NETWORK


def _by_code(levels: tuple[RuleSet, ...]) -> dict[str, Category]:
    categories: dict[str, Category] = {}
    for level in levels:
        for rule in level.patterns:
            for code in rule.provider_codes:
                categories.setdefault(code, category_of(rule, None))
    return categories


def _may_be_success(rule: Pattern) -> bool:
    return any(matches_status(rule.http_codes, status) for status in (*_SUCCESSES, *_numbers(rule)))


def _numbers(rule: Pattern) -> Iterator[int]:
    return (code for code in rule.http_codes if isinstance(code, int) and 200 <= code < 300)
