"""The checks of a schedule, and the delay of each run's job within its jitter.

Jitter only delays a job, and is stable for each schedule and run: whichever process fires it, and however
often it tries, the job is due at the same time. It ends before the next run, so jobs keep the order of
runs.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Protocol

from fairlead.errors import InvalidInputError
from fairlead.policy.jobs.cron import parse_schedule, run_times_between
from fairlead.policy.jobs.job import parse_priority
from fairlead.policy.jobs.payload import encode_args
from fairlead.policy.text.names import check_name, check_tenant, shown
from fairlead.policy.text.number import number_of

MISSED = ("coalesce", "catch_up")
LONGEST_JITTER_S = 86_400.0

COALESCE_AFTER_S, STOP_AFTER_S = 180.0, 3600.0
"""Without a worker for its kind a schedule coalesces its runs after 3 min, and stops after an hour."""

_CHANCE_BITS = 64


class ScheduleFields(Protocol):
    """The fields of a schedule, as far as they are read here."""

    @property
    def name(self) -> str: ...
    @property
    def expression(self) -> str: ...
    @property
    def kind(self) -> str: ...
    @property
    def tenant_id(self) -> str: ...
    @property
    def timezone(self) -> str: ...
    @property
    def missed(self) -> str: ...
    @property
    def queue(self) -> str: ...
    @property
    def priority(self) -> int: ...
    @property
    def args(self) -> Mapping[str, object]: ...
    @property
    def jitter_s(self) -> float: ...
    @property
    def paused(self) -> bool: ...


def check_schedule(schedule: ScheduleFields) -> None:
    """Check *schedule*.

    Raises:
        InvalidInputError: It is not valid.
    """
    check_name("schedule", schedule.name)
    tenant = check_tenant(schedule.tenant_id)
    check_name("kind", schedule.kind, tenant=tenant)
    check_name("queue", schedule.queue, tenant=tenant)
    parse_schedule(schedule.expression, schedule.timezone)
    parse_priority(schedule.priority)
    if schedule.missed not in MISSED:
        hint = f"one of: {', '.join(MISSED)}"
        raise InvalidInputError(f"{shown(schedule.missed)} is no way to make up for missed runs", hint=hint)
    _check_jitter(schedule.jitter_s)
    if not isinstance(schedule.paused, bool):  # "false" would pause it
        raise InvalidInputError(f"paused is {shown(schedule.paused)}", hint="give True or False")
    encode_args(schedule.args, tenant=tenant)


def made_without_handler(missed: str, unhandled_s: float, watched_s: float) -> str | None:
    """Return how a schedule makes up for missed runs: *missed*, ``coalesce``, or None if it must stop.

    Args:
        missed: What the schedule declares.
        unhandled_s: Seconds since a worker last reported that it takes the schedule's kind.
        watched_s: Seconds for which this scheduler has run. Earlier time does not count, because the workers
            may have been down, too.
    """
    without_s = min(unhandled_s, watched_s)
    if without_s >= STOP_AFTER_S:
        return None
    return "coalesce" if without_s >= COALESCE_AFTER_S else missed


def run_delay_s(schedule: ScheduleFields, run_at: datetime) -> float:
    """Return the seconds from *run_at* to its job: below ``jitter_s`` and before the next run."""
    if schedule.jitter_s <= 0:
        return 0.0
    bound = timedelta(seconds=schedule.jitter_s)
    following = run_times_between(schedule.expression, schedule.timezone, run_at, run_at + bound, limit=1)
    room_us = (following[0] - run_at if following else bound) // timedelta(microseconds=1)
    return (room_us * _chance(schedule.name, run_at) >> _CHANCE_BITS) / 1e6


def _chance(name: str, run_at: datetime) -> int:
    """Return a number of 64 bits that is stable for each run of each schedule."""
    of = f"{name} {run_at.astimezone(UTC).isoformat()}"
    return int.from_bytes(hashlib.blake2b(of.encode(), digest_size=_CHANCE_BITS // 8).digest(), "big")


def _check_jitter(jitter_s: object) -> None:
    if not 0 <= number_of(jitter_s) <= LONGEST_JITTER_S:  # NaN fails both comparisons
        text = jitter_s if isinstance(jitter_s, int | float) else shown(jitter_s)
        hint = f"give seconds from 0 to {LONGEST_JITTER_S:.0f} (a day)"
        raise InvalidInputError(f"{text} is no jitter", hint=hint)
