"""A circuit breaker of one destination, shared by the fleet. Spec: G6, R33, R50.

    closed ──failures──► open ──time──► half-open, one probe ──healthy──► closed, ramping up
                          ▲                         └──unhealthy──► open, twice as long

Only the health of the destination counts: a response that refuses a request is healthy, and a 429 goes to
the bucket. While the breaker is not closed, only the probe decides, and only until another probe begins:
earlier requests and late responses are ignored. Once the head of its response has arrived (a stream), a
probe admits other calls by the ramp, and decides by the end of its body, unless the ramp is over by then. A
probe is identified by the end of its time. A clock that is set back by more than *open_max_s* moves that
end (`in_time`): then nothing decides until it has passed.

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
"""The window of 30 s is counted in six parts."""
TICKS = 6
RAMP_FIRST = 2
"""Calls in the first second after it closed; each further second doubles it."""
_DOUBLINGS = 30  # 2**30 opening times are more than any longest one


class Mode(IntEnum):
    """What a breaker lets through."""

    CLOSED = 0
    OPEN = 1
    HALF_OPEN = 2


class DestinationHealth(IntEnum):
    """The health of a destination as one call showed it."""

    NEUTRAL = 0
    """Nothing: it was cancelled, or never sent."""
    HEALTHY = 1
    UNHEALTHY = 2
    RESPONDING = 3
    """The head of a good answer has come, its body has not ended: no end, and said of a probe alone."""
    UNREACHED = 4
    """Nothing left this process: no name, no connection, no TLS."""


SEVERAL = 1
"""In place of a reporter: two processes did not reach it. Numbers of processes are larger."""


class Destination(NamedTuple):
    """The scope of one breaker: the calls of one connection to one host."""

    provider: str
    account: str
    tenant: str
    host: str

    @property
    def name(self) -> str:
        """The key of its breaker. Only the name of a tenant may contain a bar.

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
    times_opened: int = 0
    until_us: int = 0
    """Open until; half-open: the probe has until."""
    closed_at_us: int = 0
    """When its ramp began; 0: not since it was last open, or the ramp is over."""
    ramp_second: int = 0
    ramp_used: int = 0
    tick: int = 0
    good: tuple[int, ...] = (0,) * TICKS
    bad: tuple[int, ...] = (0,) * TICKS
    reporter: int = 0
    """The process that did not reach it; while it is open, the process of the last failed probe."""
    unreached: int = 0
    """How many calls of that one process did not reach it. They do not count yet."""


NEW = Breaker()
"""One that nothing is known of."""


@dataclass(frozen=True, slots=True)
class Pass:
    """A call may go on; *next_state* is the state once it is sent. *probe*: its name if it decides, or 0."""

    next_state: Breaker
    probe: int = 0


def idle(breaker: Breaker, now_us: int) -> bool:
    """Return whether it is closed and its window is empty, like a new one."""
    passed = now_us // TICK_US - breaker.tick
    return (
        breaker.mode is Mode.CLOSED and not breaker.closed_at_us and not breaker.in_a_row and passed > TICKS
    )


def judge(breaker: Breaker, rule: BreakerRule, now_us: int, probe_us: int) -> Pass | int:
    """Return whether one more call may be sent, else the microseconds until the next request.

    *probe_us*: how long the call may take, if it becomes the probe.
    """
    breaker = in_time(breaker, rule, now_us)
    if breaker.mode is Mode.CLOSED or breaker.closed_at_us:
        return _ramped(breaker, rule, now_us)
    if now_us < breaker.until_us:
        left_us = breaker.until_us - now_us
        return left_us if breaker.mode is Mode.OPEN else min(left_us, MICRO)
    until_us = now_us + probe_us
    return Pass(replace(breaker, mode=Mode.HALF_OPEN, until_us=until_us), probe=until_us)


def in_time(breaker: Breaker, rule: BreakerRule, now_us: int) -> Breaker:
    """Return the state with no instant further ahead than possible, as after a clock was set back."""
    latest_us = now_us + round(rule.open_max_s * MICRO)
    if breaker.until_us <= latest_us and breaker.closed_at_us <= now_us:
        return breaker
    until_us, closed_at_us = min(breaker.until_us, latest_us), min(breaker.closed_at_us, now_us)
    return replace(breaker, until_us=until_us, closed_at_us=closed_at_us)


def _ramped(breaker: Breaker, rule: BreakerRule, now_us: int) -> Pass | int:
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


def recorded(
    breaker: Breaker,
    rule: BreakerRule,
    health: DestinationHealth,
    now_us: int,
    *,
    probe: int,
    reporter: int = 0,
) -> Breaker:
    """Return the state after a call. A neutral one does not count; after a neutral probe another may begin.

    Args:
        probe: The id under which the call was admitted as a probe (`Pass`); 0 for other calls.
        reporter: The number of its process, used if it could not connect to its destination.
    """
    if probe:
        return _probed(breaker, rule, health, now_us, probe, reporter)
    if breaker.mode is not Mode.CLOSED or health in (DestinationHealth.NEUTRAL, DestinationHealth.RESPONDING):
        return breaker
    if health is DestinationHealth.UNREACHED:
        counted = _unreached(_rolled(breaker, now_us), reporter)
    else:
        counted = _counted(_rolled(breaker, now_us), health)
    return _opened(counted, rule, now_us) if _is_down(counted, rule) else counted


def _probed(
    breaker: Breaker, rule: BreakerRule, health: DestinationHealth, now_us: int, probe: int, reporter: int
) -> Breaker:
    if breaker.mode is not Mode.HALF_OPEN or breaker.until_us != probe:
        return breaker  # somebody reset it meanwhile, or another probe has begun
    if health in (DestinationHealth.HEALTHY, DestinationHealth.RESPONDING):
        ramping = replace(breaker, closed_at_us=breaker.closed_at_us or now_us)
        return (
            ramping
            if health is DestinationHealth.RESPONDING
            else replace(ramping, mode=Mode.CLOSED, until_us=0)
        )
    again = (
        health is DestinationHealth.UNREACHED and breaker.reporter == reporter
    )  # another process may reach it
    if health is DestinationHealth.NEUTRAL or again:
        return replace(breaker, mode=Mode.OPEN, until_us=now_us, closed_at_us=0)
    return replace(
        _opened(breaker, rule, now_us), reporter=reporter if health is DestinationHealth.UNREACHED else 0
    )


def _rolled(breaker: Breaker, now_us: int) -> Breaker:
    """Move the window to *now_us*."""
    tick = now_us // TICK_US
    passed = max(0, tick - breaker.tick)  # after a clock was set back the newest part is used
    if not passed:
        return breaker
    good, bad = list(breaker.good), list(breaker.bad)
    for back in range(min(TICKS, passed)):
        good[(tick - back) % TICKS] = bad[(tick - back) % TICKS] = 0
    rolled = replace(breaker, tick=tick, good=tuple(good), bad=tuple(bad))
    return rolled if passed < TICKS else replace(rolled, reporter=0, unreached=0)


def _counted(breaker: Breaker, health: DestinationHealth) -> Breaker:
    if health is DestinationHealth.HEALTHY:
        good = _added(breaker.good, breaker.tick, 1)
        return replace(breaker, in_a_row=0, good=good, reporter=0, unreached=0)
    return replace(breaker, in_a_row=breaker.in_a_row + 1, bad=_added(breaker.bad, breaker.tick, 1))


def _unreached(breaker: Breaker, reporter: int) -> Breaker:
    if sum(breaker.good):
        return breaker
    calls = breaker.unreached + 1
    if breaker.reporter in (0, reporter):
        return replace(breaker, reporter=reporter, unreached=calls)
    bad = _added(breaker.bad, breaker.tick, calls)
    return replace(breaker, in_a_row=breaker.in_a_row + calls, bad=bad, reporter=SEVERAL, unreached=0)


def _added(parts: tuple[int, ...], tick: int, calls: int) -> tuple[int, ...]:
    at = tick % TICKS
    return (*parts[:at], parts[at] + calls, *parts[at + 1 :])


def _is_down(breaker: Breaker, rule: BreakerRule) -> bool:
    bad = sum(breaker.bad)
    total = bad + sum(breaker.good)
    return breaker.in_a_row >= rule.failures or (total >= rule.least and bad >= rule.ratio * total)


def _opened(breaker: Breaker, rule: BreakerRule, now_us: int) -> Breaker:
    times = breaker.times_opened + 1
    open_s = min(rule.open_max_s, rule.open_s * 2.0 ** min(times - 1, _DOUBLINGS))
    return Breaker(mode=Mode.OPEN, times_opened=times, until_us=now_us + round(open_s * MICRO))
