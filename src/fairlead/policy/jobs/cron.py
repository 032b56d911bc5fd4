"""The times of schedules: cron expressions in a time zone, and ``@every 5s``.

All processes must compute the same runs whenever they start, so a run never depends on where the
computation began. ``@every`` counts from the epoch. A cron expression is matched against wall clock times,
which are then converted to instants of the zone. When the clock changes, the rule is cron's:

- a job at fixed times runs once a day: a time that the change skips runs right after the gap, a time that
  comes twice runs the first time;
- a job that repeats (its minute or hour begins with ``*``) follows real time: nothing is made up for a
  skipped hour, and it runs in both passes of a doubled one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from functools import lru_cache
from itertools import islice
from typing import Literal
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from cronsim import CronSim, CronSimError

from fairlead.errors import InvalidInputError
from fairlead.policy.text.names import shown

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
SHORTEST_PERIOD = timedelta(milliseconds=10)
LONGEST_PERIOD = timedelta(days=366)
MOST_COUNTED = 10_000
FURTHEST = timedelta(days=36_525)
"""How far ahead a run is searched: 29 February on a Monday comes once in 28 years, or in 40."""

_LONGEST_EXPRESSION = 200
_UNITS_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_PERIOD = re.compile(r"(?:[0-9]{1,9}(?:ms|s|m|h|d))+")
_PERIOD_PART = re.compile(r"([0-9]{1,9})(ms|s|m|h|d)")
_ALIASES = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
# No zone changes its clock by more at once in our time; runs are looked for this far around a moment.
_MAX_CLOCK_CHANGE = timedelta(hours=3)
_WALKED = timedelta(hours=2)
_PROBE = datetime(2024, 1, 1)  # noqa: DTZ001 (a wall clock time; any will do to see whether there is a match)


@dataclass(frozen=True, slots=True)
class Every:
    """A period, counted from the epoch."""

    period: timedelta


@dataclass(frozen=True, slots=True)
class Cron:
    """A five-field expression in a zone; *fixed*: it names times, so it does not repeat by the hour."""

    expression: str
    zone: tzinfo
    fixed: bool


@dataclass(frozen=True, slots=True)
class DueRuns:
    """Runs to fire now, oldest first. The one of ``coalesce`` stands for *coalesced* (at most 10,000) earlier ones."""

    run_times: tuple[datetime, ...]
    coalesced: int = 0


@lru_cache(maxsize=512)
def parse_schedule(expression: str, tz: str = "UTC") -> Every | Cron:
    """Return the schedule of *expression* in zone *tz*.

    >>> parse_schedule("@every 1m30s").period.total_seconds()
    90.0

    Raises:
        InvalidInputError: It is not valid.
    """
    zone = _zone(tz)
    text = " ".join(expression[: _LONGEST_EXPRESSION + 1].split())
    if len(expression) > _LONGEST_EXPRESSION or not text.isascii():
        raise _bad(expression, "it is too long or not ASCII")
    if text.startswith("@every "):
        return Every(_period(expression, text.removeprefix("@every ")))
    text = _ALIASES.get(text, text)
    if len(text.split()) != 5:
        raise _bad(expression, "it has not five fields")
    try:
        next(CronSim(text, _PROBE))
    except CronSimError as error:
        raise _bad(expression, str(error)) from None
    except StopIteration:
        raise _bad(expression, "it matches no date in 50 years") from None
    minute, hour, *_ = text.split()
    return Cron(text, zone, fixed=not (minute.startswith("*") or hour.startswith("*")))


def run_times_between(expr: str, tz: str, since: datetime, until: datetime, limit: int) -> list[datetime]:
    """Return the first *limit* runs in (since, until], in UTC and in order. Both must have a time zone."""
    schedule = parse_schedule(expr, tz)
    since, until = _utc(since), _utc(until)
    if until <= since or limit <= 0:
        return []
    if isinstance(schedule, Every):
        return list(islice(_periods(schedule.period, since, until), limit))
    return _cron_run_times(schedule, since, until, limit)


def next_run_at(expr: str, tz: str, since: datetime) -> datetime | None:
    """Return the first run after *since*, or None if there is none in the next hundred years."""
    ahead = run_times_between(expr, tz, since, since + FURTHEST, limit=1)
    return ahead[0] if ahead else None


def latest_run_at(expr: str, tz: str, since: datetime, now: datetime) -> datetime | None:
    """Return the last run in (since, now], or None. Cheap however long ago *since* is."""
    schedule = parse_schedule(expr, tz)
    since, now = _utc(since), _utc(now)
    if isinstance(schedule, Every):
        run_at = EPOCH + (now - EPOCH) // schedule.period * schedule.period
        return run_at if run_at > since else None
    start, end = since, now
    while end - start > _WALKED:  # halve first, so that a dense schedule is not walked from its beginning
        middle = start + (end - start) / 2
        if _cron_run_times(schedule, middle, end, limit=1):
            start = middle
        else:
            end = middle
    run_times = _cron_run_times(schedule, start, end, MOST_COUNTED)
    return run_times[-1] if run_times else None


def due_runs(
    expr: str,
    tz: str,
    missed: Literal["coalesce", "catch_up"],
    since: datetime,
    now: datetime,
    limit: int = 100,
) -> DueRuns:
    """Return the runs due at *now* of a schedule with its last run at *since*.

    ``coalesce`` fires the latest run, which stands for the earlier ones. ``catch_up`` fires them all, up to
    *limit* (default 100) at a time.
    """
    if missed == "catch_up":
        return DueRuns(tuple(run_times_between(expr, tz, since, now, limit)))
    latest = latest_run_at(expr, tz, since, now)
    if latest is None:
        return DueRuns(())
    return DueRuns((latest,), coalesced=_count(expr, tz, since, latest) - 1)


def _count(expr: str, tz: str, since: datetime, latest: datetime) -> int:
    schedule = parse_schedule(expr, tz)
    if isinstance(schedule, Every):
        return min(
            (latest - EPOCH) // schedule.period - (_utc(since) - EPOCH) // schedule.period, MOST_COUNTED
        )
    return len(run_times_between(expr, tz, since, latest, MOST_COUNTED))


def _periods(period: timedelta, since: datetime, until: datetime) -> Iterator[datetime]:
    run_at = EPOCH + ((since - EPOCH) // period + 1) * period
    while run_at <= until:
        yield run_at
        run_at += period


def _cron_run_times(cron: Cron, since: datetime, until: datetime, limit: int) -> list[datetime]:
    """Return the first *limit* runs in (since, until].

    Wall clock times are searched with a margin on both sides, because a change of the clock moves them.
    """
    start, end = (moment.astimezone(cron.zone).replace(tzinfo=None) for moment in (since, until))
    margin = timedelta(0) if cron.zone is UTC else _MAX_CLOCK_CHANGE
    end += margin
    instants: set[datetime] = set()
    for wall in CronSim(cron.expression, start - margin):
        if wall > end:
            break
        instants.update(moment for moment in _moments(wall, cron) if since < moment <= until)
        if len(instants) >= limit:  # wall clock times are in order, moments nearly so: a change may reorder
            end = min(end, wall + margin)
    return sorted(instants)[:limit]


def _moments(wall: datetime, cron: Cron) -> tuple[datetime, ...]:
    """Return the instants at which the zone's clocks show *wall*, by the rule at the top."""
    first = wall.replace(tzinfo=cron.zone, fold=0).astimezone(UTC)
    second = wall.replace(tzinfo=cron.zone, fold=1).astimezone(UTC)
    if first == second:
        return (first,)
    if first < second:  # shown twice
        return (first,) if cron.fixed else (first, second)
    return (_gap_end(wall, cron.zone),) if cron.fixed else ()


def _gap_end(wall: datetime, zone: tzinfo) -> datetime:
    while wall.replace(tzinfo=zone, fold=0).utcoffset() != wall.replace(tzinfo=zone, fold=1).utcoffset():
        wall += timedelta(minutes=1)
    return wall.replace(tzinfo=zone).astimezone(UTC)


def _period(expression: str, text: str) -> timedelta:
    if not _PERIOD.fullmatch(text):
        raise _bad(expression, "its period cannot be read")
    total_ms = sum(int(count) * _UNITS_MS[unit] for count, unit in _PERIOD_PART.findall(text))
    if not SHORTEST_PERIOD <= timedelta(milliseconds=min(total_ms, 10**12)) <= LONGEST_PERIOD:
        raise _bad(expression, "its period is not between 10 ms and 366 days")
    return timedelta(milliseconds=total_ms)


def _zone(tz: str) -> tzinfo:
    if tz == "UTC":
        return UTC
    try:
        return ZoneInfo(tz)
    except (ZoneInfoNotFoundError, ValueError, OSError):  # OSError: "Europe" is a folder of the database
        hint = "use a name such as Europe/Berlin; where none is known, `pip install tzdata`"
        raise InvalidInputError(f"{shown(tz)} is no time zone", hint=hint) from None


def _utc(moment: datetime) -> datetime:
    if moment.tzinfo is None:
        raise ValueError("a moment without a zone hint: use datetime.now(UTC), or what the database gave")
    return moment.astimezone(UTC)


def _bad(expression: str, why: str) -> InvalidInputError:
    hint = 'use five fields such as "*/5 * * * *", "@hourly", "@daily" or "@every 30s"'
    return InvalidInputError(f"{shown(expression)} is no schedule: {why}", hint=hint)
