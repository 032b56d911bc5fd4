"""The rules by which the answers of one connection are judged: connection over provider (C3, K2).

A level is asked as a whole before the next: a rule of your own holds against everything that ships. Within a
level the order is that of the steps (provider code, header, status, pattern) and there that of the rules. A
tenant has no level: its rules are given to each of its connections.
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
from fairlead.policy.providers.pattern import Pattern, in_order, matches_status
from fairlead.policy.providers.profile import Profile

BUILT_IN = "built in"
"""Origin of the rules that ship for every provider."""

_SUCCESSES: tuple[int | str, ...] = ("2xx", 304)


@dataclass(frozen=True, slots=True)
class RuleSet:
    """Rules of one origin, in their order. *origin* names it for people."""

    origin: str
    patterns: tuple[Pattern, ...]


@dataclass(frozen=True, slots=True)
class Rules:
    """All that judging an answer needs to know beforehand. Made once for a connection, by ``rules_of``.

    *strategy* and *max_retries* serve failures of network and server that no rule knows; *most_retries*: no
    rule tries more often. *in_successes*: some rule wants to see answers that tell of no failure. *by_code*:
    the category of the first rule that names a code of the provider.
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
    """The rules of a connection at the provider of *profile*, with its *settings* (default none).

    Raises InvalidConfigError for settings that cannot be.
    """
    own = call_settings_of(profile, settings or {}, tenant=tenant)
    levels = tuple(
        RuleSet(origin, in_order(patterns))
        for origin, patterns in (
            ("the connection", own.patterns),
            (f"provider {profile.label}", profile.patterns),
            (BUILT_IN, builtin_rules()),
        )
        if patterns
    )
    return Rules(
        levels,
        profile.limits.dialect,
        own.as_strategy(),
        own.max_retries,
        own.most_retries,
        in_successes=any(_may_be_success(rule) for level in levels for rule in level.patterns),
        by_code=_by_code(levels),
    )


@cache
def builtin_rules() -> tuple[Pattern, ...]:
    """The rules that ship for every provider (DEFAULTS §4)."""
    text = files("fairlead.policy.calls.classify").joinpath("patterns.toml").read_text("utf-8")
    return in_order([Pattern.model_validate(table) for table in tomllib.loads(text)["patterns"]])


def category_of(rule: Pattern, meaning: Category | None) -> Category:
    """The category of a failure that *rule* matched; *meaning*: what the answer says by itself."""
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
    found: dict[str, Category] = {}
    for level in levels:
        for rule in level.patterns:
            for code in rule.provider_codes:
                found.setdefault(code, category_of(rule, None))
    return found


def _may_be_success(rule: Pattern) -> bool:
    return any(matches_status(rule.http_codes, status) for status in (*_SUCCESSES, *_numbers(rule)))


def _numbers(rule: Pattern) -> Iterator[int]:
    return (code for code in rule.http_codes if isinstance(code, int) and 200 <= code < 300)
