"""A circuit breaker of one destination, shared by the fleet. Spec: G6, R33, R50.

    closed ──failures──► open ──time──► half-open, one probe ──healthy──► closed, ramping up
                          ▲                         └──unhealthy──► open, twice as long

Only the health of the destination counts: a response that refuses a request is healthy, and a 429 goes to
the bucket. While the breaker is not closed, only the probe decides, and only until another probe begins:
earlier requests and late responses are ignored. Once the head of its response has arrived (a stream), a
probe admits other calls by the ramp, and decides by the end of its body, unless the ramp is over by then. A
probe is identified by its deadline. A clock that is set back by more than *open_max_s* moves that deadline
(`clamp_to_clock`). Then no call decides until it has passed.

A call that could not connect may have met a fault of its own process. Such calls count only once two
processes report them while none has succeeded in the window; limits/local_breakers.py is the breaker of
one process alone.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import IntEnum
from typing import NamedTuple

from fairlead.policy.limits.limit import MICRO, BreakerRule

TICK_US = 5 * MICRO
"""The length of one part of the counting window."""
TICKS = 6
"""The parts of the counting window, which is 30 s long."""
RAMP_FIRST = 2
"""Calls allowed in the first second after it closed; each further second allows twice as many."""
_MAX_DOUBLINGS = 30  # the longest opening time is reached long before, and 2.0 ** n cannot overflow


class Mode(IntEnum):
    """Which calls a breaker admits: all (closed), none (open), or one probe (half-open)."""

    CLOSED = 0
    OPEN = 1
    HALF_OPEN = 2


class DestinationHealth(IntEnum):
    """The health of a destination as one call showed it."""

    NEUTRAL = 0
    """It shows nothing: the call was cancelled, or not sent."""
    HEALTHY = 1
    UNHEALTHY = 2
    RESPONDING = 3
    """The head of a healthy response has arrived, and its body has not ended. Reported for a probe only."""
    UNREACHED = 4
    """No request left this process: DNS, the connection or TLS failed."""


SEVERAL = 1
"""The value of *reporter* once two processes did not reach the destination. Process numbers are larger."""


class Destination(NamedTuple):
    """The scope of one breaker: the calls of one connection to one host."""

    provider: str
    account: str
    tenant: str
    host: str

    @property
    def name(self) -> str:
        """The key of its breaker: its parts joined by bars. Only the name of a tenant may contain one.

        >>> Destination.of(Destination("shopify", "default", "a|b", "shop.example").name).tenant
        'a|b'
        """
        return "|".join(self)

    @classmethod
    def of(cls, name: str) -> Destination | None:
        """Return the destination with this *name*, or None if *name* is not valid."""
        provider, _, rest = name.partition("|")
        account, _, rest = rest.partition("|")
        tenant, bar, host = rest.rpartition("|")
        return cls(provider, account, tenant, host) if bar and provider and tenant else None


@dataclass(frozen=True, slots=True)
class Breaker:
    """The state of one breaker."""

    mode: Mode = Mode.CLOSED
    in_a_row: int = 0
    """Failures since the last healthy call."""
    times_opened: int = 0
    """How often it opened since it was last closed for good; each time doubles the opening time."""
    until_us: int = 0
    """The end of the opening time; while half-open, the deadline of the probe."""
    closed_at_us: int = 0
    """When its ramp began; 0: it has not closed since it was last open, or the ramp is over."""
    ramp_second: int = 0
    """The second of the ramp that *ramp_used* counts, from 0."""
    ramp_used: int = 0
    """Calls admitted in that second."""
    tick: int = 0
    """The number of the newest part of the window, counted in `TICK_US` from the epoch."""
    good: tuple[int, ...] = (0,) * TICKS
    """Healthy calls of each part of the window; part n is at index n modulo `TICKS`."""
    bad: tuple[int, ...] = (0,) * TICKS
    """Unhealthy calls of each part, likewise."""
    reporter: int = 0
    """The process that did not reach it; while it is open, the process of the last failed probe."""
    unreached: int = 0
    """How many calls of that one process did not reach it. They do not count yet."""


NEW = Breaker()
"""The breaker of a destination without a record: closed."""


@dataclass(frozen=True, slots=True)
class Pass:
    """The admission of a call: *next_state* is stored; *probe* is its id if the call is the probe, else 0."""

    next_state: Breaker
    probe: int = 0


def is_idle(breaker: Breaker, now_us: int) -> bool:
    """Return whether it is closed and its window is empty, so that its record can be dropped."""
    ticks_since = now_us // TICK_US - breaker.tick
    return (
        breaker.mode is Mode.CLOSED
        and not breaker.closed_at_us
        and not breaker.in_a_row
        and ticks_since > TICKS
    )


def admit(breaker: Breaker, rule: BreakerRule, now_us: int, probe_us: int) -> Pass | int:
    """Decide whether one more call may be sent.

    Args:
        probe_us: How long the call may take if it becomes the probe, in microseconds.

    Returns:
        The pass of the call, or the microseconds until the caller should ask again.
    """
    breaker = clamp_to_clock(breaker, rule, now_us)
    if breaker.mode is Mode.CLOSED or breaker.closed_at_us:
        return _admit_by_ramp(breaker, rule, now_us)
    if now_us < breaker.until_us:
        remaining_us = breaker.until_us - now_us
        return remaining_us if breaker.mode is Mode.OPEN else min(remaining_us, MICRO)
    until_us = now_us + probe_us
    return Pass(replace(breaker, mode=Mode.HALF_OPEN, until_us=until_us), probe=until_us)


def clamp_to_clock(breaker: Breaker, rule: BreakerRule, now_us: int) -> Breaker:
    """Pull back instants that lie further ahead than the rule allows, because the clock was set back."""
    latest_us = now_us + round(rule.open_max_s * MICRO)
    if breaker.until_us <= latest_us and breaker.closed_at_us <= now_us:
        return breaker
    until_us, closed_at_us = min(breaker.until_us, latest_us), min(breaker.closed_at_us, now_us)
    return replace(breaker, until_us=until_us, closed_at_us=closed_at_us)


def _admit_by_ramp(breaker: Breaker, rule: BreakerRule, now_us: int) -> Pass | int:
    """Admit every call if no ramp runs, else as many as its present second allows."""
    if breaker.closed_at_us == 0:
        return Pass(breaker)
    since_us = max(0, now_us - breaker.closed_at_us)
    if since_us >= rule.ramp_s * MICRO:
        return Pass(replace(breaker, mode=Mode.CLOSED, until_us=0, closed_at_us=0, times_opened=0))
    second = since_us // MICRO
    used = breaker.ramp_used if breaker.ramp_second == second else 0
    if used >= RAMP_FIRST << second:
        return MICRO - since_us % MICRO
    return Pass(replace(breaker, ramp_second=second, ramp_used=used + 1))


def record(
    breaker: Breaker,
    rule: BreakerRule,
    health: DestinationHealth,
    now_us: int,
    *,
    probe: int,
    reporter: int = 0,
) -> Breaker:
    """Return the state after a call of *health* has ended.

    A neutral call does not count, and after a neutral probe the next call may be the probe.

    Args:
        probe: The id under which the call was admitted as a probe (`Pass`); 0 for other calls.
        reporter: The number of its process, used if it could not connect to its destination.
    """
    if probe:
        return _record_probe(breaker, rule, health, now_us, probe, reporter)
    if breaker.mode is not Mode.CLOSED or health in (DestinationHealth.NEUTRAL, DestinationHealth.RESPONDING):
        return breaker
    if health is DestinationHealth.UNREACHED:
        counted = _count_unreached(_move_window(breaker, now_us), reporter)
    else:
        counted = _count(_move_window(breaker, now_us), health)
    return _open(counted, rule, now_us) if _is_down(counted, rule) else counted


def _record_probe(
    breaker: Breaker, rule: BreakerRule, health: DestinationHealth, now_us: int, probe: int, reporter: int
) -> Breaker:
    if breaker.mode is not Mode.HALF_OPEN or breaker.until_us != probe:
        return breaker  # an operator reset it, or another probe has begun
    if health in (DestinationHealth.HEALTHY, DestinationHealth.RESPONDING):
        ramping = replace(breaker, closed_at_us=breaker.closed_at_us or now_us)
        return (
            ramping
            if health is DestinationHealth.RESPONDING
            else replace(ramping, mode=Mode.CLOSED, until_us=0)
        )
    # The same process failed to connect before: another process may reach the destination.
    is_same_reporter = health is DestinationHealth.UNREACHED and breaker.reporter == reporter
    if health is DestinationHealth.NEUTRAL or is_same_reporter:
        return replace(breaker, mode=Mode.OPEN, until_us=now_us, closed_at_us=0)
    return replace(
        _open(breaker, rule, now_us), reporter=reporter if health is DestinationHealth.UNREACHED else 0
    )


def _move_window(breaker: Breaker, now_us: int) -> Breaker:
    """Move the counting window to *now_us*, and clear the parts that are too old."""
    tick = now_us // TICK_US
    ticks_since = max(0, tick - breaker.tick)  # after a clock was set back the newest part is used
    if not ticks_since:
        return breaker
    good, bad = list(breaker.good), list(breaker.bad)
    for back in range(min(TICKS, ticks_since)):
        good[(tick - back) % TICKS] = bad[(tick - back) % TICKS] = 0
    moved = replace(breaker, tick=tick, good=tuple(good), bad=tuple(bad))
    return moved if ticks_since < TICKS else replace(moved, reporter=0, unreached=0)


def _count(breaker: Breaker, health: DestinationHealth) -> Breaker:
    """Count a healthy or an unhealthy call."""
    if health is DestinationHealth.HEALTHY:
        good = _added(breaker.good, breaker.tick, 1)
        return replace(breaker, in_a_row=0, good=good, reporter=0, unreached=0)
    return replace(breaker, in_a_row=breaker.in_a_row + 1, bad=_added(breaker.bad, breaker.tick, 1))


def _count_unreached(breaker: Breaker, reporter: int) -> Breaker:
    """Count a call that did not connect; such calls are failures once a second process reports one, too."""
    if sum(breaker.good):
        return breaker
    calls = breaker.unreached + 1
    if breaker.reporter in (0, reporter):
        return replace(breaker, reporter=reporter, unreached=calls)
    bad = _added(breaker.bad, breaker.tick, calls)
    return replace(breaker, in_a_row=breaker.in_a_row + calls, bad=bad, reporter=SEVERAL, unreached=0)


def _added(parts: tuple[int, ...], tick: int, calls: int) -> tuple[int, ...]:
    """Return *parts* with *calls* added to the part of *tick*."""
    index = tick % TICKS
    return (*parts[:index], parts[index] + calls, *parts[index + 1 :])


def _is_down(breaker: Breaker, rule: BreakerRule) -> bool:
    """Return whether the counted failures reach one of the rule's two thresholds."""
    bad = sum(breaker.bad)
    total = bad + sum(breaker.good)
    return breaker.in_a_row >= rule.failures or (total >= rule.least and bad >= rule.ratio * total)


def _open(breaker: Breaker, rule: BreakerRule, now_us: int) -> Breaker:
    """Open it, each time for twice as long as before, up to the longest opening time."""
    times = breaker.times_opened + 1
    open_s = min(rule.open_max_s, rule.open_s * 2.0 ** min(times - 1, _MAX_DOUBLINGS))
    return Breaker(mode=Mode.OPEN, times_opened=times, until_us=now_us + round(open_s * MICRO))
