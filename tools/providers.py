"""docs/reference/providers.md, written from the profiles: ``python -m tools.providers``.

A test compares the page with the profiles, so neither changes alone.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import Literal, get_args, get_origin

from pydantic import BaseModel

from fairlead.policy.providers.profile import Profile
from fairlead.policy.providers.profile_limits import CallLimitConfig, LimitsConfig
from fairlead.policy.providers.profile_load import load_profiles
from fairlead.policy.tokens.window import windows

_HEAD = """\
# Providers

<!-- Written by `python -m tools.providers > docs/reference/providers.md`. Do not edit. -->

Look up here what fairlead knows about your provider, and which fields your own profile can have. A provider
profile is a TOML file that says where a vendor's tokens come from, how long they live, what its errors mean and
what may be retried. The profiles below are built in. Put yours into the folder that you name as `providers_dir` in
your settings; your file replaces the built-in one of the same name. `fairlead providers validate` checks your
files and shows you all problems at once. `fairlead providers show NAME` shows you the profile that you have.

The windows are those of a token with the life in the table; the `expires_in` of a token response takes precedence.
*Unverified* facts are our best guess. Check them with your own account before you rely on them, correct them in a
profile of yours, and write to us what you see.
"""


def render(profiles: Mapping[str, Profile]) -> str:
    """Return the whole page."""
    sections = [
        _HEAD,
        "## Overview",
        "",
        *_table(_OVERVIEW_HEAD, map(_overview_row, _all(profiles.values()))),
    ]
    for profile in profiles.values():
        sections += ["", *_provider(profile)]
    sections += ["", "## Fields of a profile", ""]
    sections += [
        "You can set these fields at the top of your file. `[variants.NAME]` takes the same fields; with "
        "`unset = [...]` you remove fields of the base.",
        "",
    ]
    sections += _table(("field", "meaning"), _fields(Profile))
    return "\n".join(sections) + "\n"


def _all(profiles: Iterable[Profile]) -> Iterator[Profile]:
    for profile in profiles:
        yield profile
        yield from (profile.variant(name) for name in profile.variants)


_OVERVIEW_HEAD = (
    "profile",
    "strategy",
    "life",
    "lead / buffer / critical",
    "rotates",
    "after an unknown outcome",
)


def _overview_row(profile: Profile) -> tuple[str, ...]:
    replay = profile.replay
    policy = "–" if replay is None or not profile.is_refreshable else f"`{replay.policy}`"
    if replay is not None and replay.grace_s and policy != "–":
        policy += f" {_time(replay.grace_s)}"
    return (
        f"`{profile.label}`",
        profile.strategy
        if profile.strategy == "static_key" or profile.is_refreshable
        else "no refresh token",
        _time(profile.ttl_default_s) if profile.ttl_default_s else "no end",
        _windows(profile),
        "yes" if profile.rotates else "no",
        policy,
    )


def _windows(profile: Profile) -> str:
    if profile.ttl_default_s is None:
        return "–"
    at = windows(profile, profile.ttl_default_s, 0.0)
    critical_s = at.expires_in_s - at.critical_in_s
    return " / ".join(_time(length) for length in (at.lead_s, at.buffer_s, critical_s))


def _provider(profile: Profile) -> list[str]:
    lines = [f"## {profile.name}", "", profile.title + ".", ""]
    lines += _table(("fact", "value"), _facts(profile))
    if profile.variants:
        lines += ["", f"Variants: {', '.join(f'`{name}`' for name in sorted(profile.variants))}."]
    if profile.unverified:
        lines += ["", "Unverified:", "", *(f"- {_unverified(note)}" for note in profile.unverified)]
    if profile.sources:
        lines += ["", "Sources:", "", *(f"- <{source}>" for source in profile.sources)]
    return lines


def _facts(profile: Profile) -> Iterator[tuple[str, str]]:
    for endpoint in ("token", "authorize"):
        address = getattr(profile.endpoints, endpoint)
        if address:
            yield f"{endpoint} endpoint", f"`{address}`"
    if profile.revoke:
        yield "revoke", f"{profile.revoke.method} `{profile.revoke.url}`"
    if profile.test:
        yield "test", f"{profile.test.method} `{profile.test.url}`"
    for name, param in profile.endpoints.params.items():
        default = f", default `{param.default}`" if param.default else ""
        yield f"parameter `{name}`", f"{param.description} ({param.kind}{default})"
    if profile.patterns:
        yield "patterns of responses", _codes(pattern.name for pattern in profile.patterns)
    yield "limits of calls", _limits(profile.limits)
    header = profile.credential_header
    yield "sent as", f"`{header.name}: {header.format}`"
    if profile.strategy == "static_key":
        return
    rate, rules = profile.rate, profile.errors
    yield "your app authenticates by", profile.client_auth.replace("_", " ")
    yield "token endpoint rate", f"{rate.limit} in {_time(rate.window_s)} per {rate.scope.replace('_', ' ')}"
    yield "fatal", _codes((*rules.fatal, *rules.fatal_phrases))
    yield "pauses your app", _codes(rules.client)
    yield "retryable", _codes(rules.retryable)
    yield from _refresh_token_facts(profile)


def _limits(limits: LimitsConfig) -> str:
    facts = [f"`{name}` {_limit(limit)}" for name, limit in limits.calls.items()]
    if limits.slots is not None:
        facts.append(f"{limits.slots} in flight")
    return "; ".join(facts)


def _limit(limit: CallLimitConfig) -> str:
    """Return *limit* in words.

    >>> _limit(CallLimit(limit=60, window_s=60.0)), _limit(CallLimit(capacity=40, per_s=2, apis=("rest",)))
    ('60 in 1 min', '40 at once, 2 a second (`rest`)')
    """
    counted = f" ({_codes(limit.apis)})" if limit.apis else ""
    if limit.window_s is not None:
        return f"{limit.limit:g} in {_time(limit.window_s)}{counted}"
    return f"{limit.capacity:g} at once, {limit.per_s:g} a second{counted}"


def _refresh_token_facts(profile: Profile) -> Iterator[tuple[str, str]]:
    facts = profile.refresh_token
    if facts.idle_lifetime_s:
        yield "refresh token expires if unused for", _time(facts.idle_lifetime_s)
    if facts.max_lifetime_s:
        yield "refresh token expires at the latest after", _time(facts.max_lifetime_s)


def _codes(codes: Iterable[str]) -> str:
    return ", ".join(f"`{code}`" for code in codes)


def _unverified(note: str) -> str:
    path, why = note.split(": ", 1)
    return f"`{path}`: {why}"


def _fields(model: type[BaseModel], at: str = "") -> Iterator[tuple[str, str]]:
    """Yield every field with its description, including those of nested tables."""
    for name, field in model.model_fields.items():
        if name == "variant_name":
            continue
        words = get_args(field.annotation) if get_origin(field.annotation) is Literal else ()
        one_of = f" One of {', '.join(f'`{word}`' for word in words)}." if words else ""
        yield f"`{at}{name}`", f"{field.description}{one_of}"
        parts = (field.annotation, *getattr(field.annotation, "__args__", ()))
        for part in parts:
            if isinstance(part, type) and issubclass(part, BaseModel):
                below = ".NAME." if part is not field.annotation and name == "params" else "."
                yield from _fields(part, f"{at}{name}{below}")


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> list[str]:
    return [
        f"| {' | '.join(head)} |",
        f"|{' --- |' * len(head)}",
        *(f"| {' | '.join(row)} |" for row in rows),
    ]


def _time(length_s: float) -> str:
    """Return a length of time in the largest unit that gives a short number.

    >>> [_time(length) for length in (90, 1800, 21600, 86400, 15811200)]
    ['90 s', '30 min', '6 h', '24 h', '183 d']
    """
    for unit_s, unit, least in ((86_400, "d", 2), (3_600, "h", 1), (60, "min", 1)):
        if length_s >= unit_s * least and length_s % unit_s == 0:
            return f"{length_s / unit_s:g} {unit}"
    return f"{length_s:g} s"


if __name__ == "__main__":
    sys.stdout.write(render(load_profiles()))
