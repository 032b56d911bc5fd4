"""The limits in a server's RateLimit headers: read strictly, or ignored.

Three dialects are in use: draft-ietf-httpapi-ratelimit-headers 08 to 11 (``RateLimit: "default";r=0;t=30``),
its draft 07 (``RateLimit: limit=100, remaining=0, reset=30``) and the three older headers
(``RateLimit-Limit``, ``RateLimit-Remaining``, ``RateLimit-Reset``). These are advice: a header that cannot be
read, or is impossible, is ignored, and Retry-After takes precedence over all of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

_NAMES = frozenset({"ratelimit", "ratelimit-limit", "ratelimit-remaining", "ratelimit-reset"})
_LONGEST = 4096

# Structured Fields (RFC 9651), as far as these headers use them. Each alternative starts differently,
# so a match takes linear time.
_KEY = r"[a-z*][a-z0-9_.*-]{0,63}"
_STRING = r'"(?:[ !#-\[\]-~]|\\["\\]){0,256}"'
_TOKEN = r"[A-Za-z*][A-Za-z0-9!#$%&'*+.^_`|~:/-]{0,255}"
_BARE = rf"{_STRING}|{_TOKEN}|-?[0-9]{{1,15}}(?:\.[0-9]{{1,3}})?|:[A-Za-z0-9+/=]{{0,1024}}:|\?[01]"
_PARAMETER = re.compile(rf";[ ]*({_KEY})(?:=({_BARE}))?")
_MEMBER = re.compile(rf"({_STRING}|{_TOKEN})((?:;[ ]*{_KEY}(?:=(?:{_BARE}))?)*)[ \t]*(,[ \t]*|\Z)")
_PAIR = re.compile(r"(limit|remaining|reset)=([0-9]{1,15})")
_COUNT = re.compile(r"[0-9]{1,15}")
_SECONDS = re.compile(r"[0-9]{1,10}")  # as in Retry-After: more is no wait, but nonsense


@dataclass(frozen=True, slots=True)
class QuotaState:
    """One limit as the server sees it now."""

    policy: str
    """Name of the limit; empty in the older dialects."""
    remaining: int
    """Quota units left in the window."""
    reset_s: float | None = None
    """Seconds until quota comes back; None: not stated."""
    quota: int | None = None
    """Units per window; None: not stated."""
    window_s: int | None = None
    """Length of the window; None: not stated."""


def parse_ratelimit(headers: Mapping[str, Sequence[str]]) -> tuple[QuotaState, ...]:
    """Return all limits in *headers* (lower-case names, each with its values), newest dialect first.

    Empty if there is none or none can be read. Of a limit that appears twice the tighter reading is returned.
    """
    if _NAMES.isdisjoint(headers):  # as most answers are
        return ()
    current = headers.get("ratelimit")
    if current:
        text = ", ".join(current)
        return _named_limits(text, ", ".join(headers.get("ratelimit-policy", ()))) or _draft_07(text)
    return _three_headers(headers)


def ratelimit_wait_s(states: Sequence[QuotaState]) -> float | None:
    """Return the seconds until every exhausted limit has quota again, or None if that is not known."""
    waits = [state.reset_s for state in states if state.remaining == 0 and state.reset_s is not None]
    return max(waits, default=None)


def _named_limits(text: str, policy_text: str) -> tuple[QuotaState, ...]:
    """Return the limits of the newest dialect, with the quota and the window that *policy_text* gives by name."""
    policies = dict(_members(policy_text))
    states: dict[str, QuotaState] = {}
    for name, parameters in _members(text):
        remaining = _integer(_COUNT, parameters.get("r"))
        if remaining is None or ("t" in parameters and _integer(_SECONDS, parameters["t"]) is None):
            continue  # r is required; an impossible t makes the whole item doubtful
        policy = policies.get(name, {})
        state = QuotaState(
            policy=name,
            remaining=remaining,
            reset_s=_integer(_SECONDS, parameters.get("t")),
            quota=_integer(_COUNT, policy.get("q")),
            window_s=_integer(_SECONDS, policy.get("w")),
        )
        states[name] = _tighter(states.get(name), state)
    return tuple(states.values())


def _members(text: str) -> list[tuple[str, dict[str, str]]]:
    """Return the (name, parameters) of a Structured Fields list; empty if *text* is not one."""
    members: list[tuple[str, dict[str, str]]] = []
    position, more = 0, len(text) <= _LONGEST
    while more:
        match = _MEMBER.match(text, position)
        if match is None:
            return []
        members.append((_unquoted(match[1]), dict(_parameters(match[2]))))
        position, more = match.end(), match[3] != ""
    return members


def _parameters(text: str) -> Iterator[tuple[str, str]]:
    for match in _PARAMETER.finditer(text):
        yield match[1], match[2] or ""


def _unquoted(name: str) -> str:
    return re.sub(r"\\(.)", r"\1", name[1:-1]) if name.startswith('"') else name


def _draft_07(text: str) -> tuple[QuotaState, ...]:
    pairs = [_PAIR.fullmatch(part.strip(" \t")) for part in text[:_LONGEST].split(",")]
    values = {pair[1]: pair[2] for pair in pairs if pair}
    if None in pairs or len(values) != len(pairs) or len(text) > _LONGEST:
        return ()
    return _unnamed_limit(values.get("limit"), values.get("remaining"), values.get("reset"))


def _three_headers(headers: Mapping[str, Sequence[str]]) -> tuple[QuotaState, ...]:
    fields = {}
    for name in ("limit", "remaining", "reset"):
        values = headers.get(f"ratelimit-{name}", ())
        if len(values) > 1:
            return ()  # neither draft defines a list of them, so their pairs are unknown
        fields[name] = values[0].strip(" \t") if values else None
    limit = fields["limit"]
    # the limit may be followed by its policies: "100, 100;w=60"
    first = re.split(r"[,;]", limit[:_LONGEST], maxsplit=1)[0].strip(" \t") if limit else None
    return _unnamed_limit(first, fields["remaining"], fields["reset"])


def _unnamed_limit(limit: str | None, remaining: str | None, reset: str | None) -> tuple[QuotaState, ...]:
    """Return the one limit of an older dialect; empty if it cannot be read."""
    units, reset_s = _integer(_COUNT, remaining), _integer(_SECONDS, reset)
    if units is None or (reset is not None and reset_s is None):
        return ()
    return (QuotaState(policy="", remaining=units, reset_s=reset_s, quota=_integer(_COUNT, limit)),)


def _integer(form: re.Pattern[str], text: str | None) -> int | None:
    return int(text) if text is not None and form.fullmatch(text) else None


def _tighter(first: QuotaState | None, second: QuotaState) -> QuotaState:
    if first is None:
        return second
    return min(first, second, key=lambda state: (state.remaining, -(state.reset_s or 0)))
