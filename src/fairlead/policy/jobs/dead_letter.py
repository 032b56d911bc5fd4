"""The next action on a dead letter: replay it, notify the customer, leave it to an operator, or abandon it.

Transient ones younger than an hour are replayed up to 3 times with a cool-down between; a setting reserves
the last replay for later. Auth ones start the reauthorise workflow once, and are replayed once their
connection has a new grant. All are abandoned after 7 days, auth ones only after a last notice. A closed one
is final. One with a replay under way closes when that job succeeds, and reopens when it fails.

The processor calls :func:`next_action`, acts, and stores :func:`action_in_s` as the time of its next check,
so dead letters that wait for an operator fill no batch. Spec: Q10, R14, R19.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Protocol

from fairlead.errors import InvalidInputError
from fairlead.policy.failures.category import TRANSIENT, Category
from fairlead.policy.jobs.states import DeadLetterStatus, Resolution
from fairlead.policy.reasons import call_reasons, job_reasons

NEVER_REPLAYED = frozenset(
    {job_reasons.POISON.code, job_reasons.EXPIRED.code, call_reasons.MAY_HAVE_ACTED.code}
)
"""Codes that only an operator may replay: the job kills workers, is too late, or may have acted already."""

RESOLUTIONS: Mapping[DeadLetterStatus, frozenset[Resolution]] = MappingProxyType(
    {
        DeadLetterStatus.PENDING_REVIEW: frozenset(),
        DeadLetterStatus.AUTO_RESOLVED: frozenset(
            {Resolution.REDRIVE, Resolution.REAUTHORIZE, Resolution.MANUAL_REFRESH}
        ),
        DeadLetterStatus.MANUAL_RESOLVED: frozenset(set(Resolution) - {Resolution.ABANDONED}),
        DeadLetterStatus.ABANDONED: frozenset({Resolution.ABANDONED}),
    }
)
"""How an entry of each status can have been closed."""


@dataclass(frozen=True, slots=True)
class DeadLetterRules:
    """When the processor acts. All in seconds but the counts."""

    replay_window_s: float = 3600.0
    """Transient entries younger than this are replayed; default 1 h."""
    max_replays: int = 3
    """Automatic replays of one entry; default 3, 0 switches them off."""
    cool_down_s: float = 300.0
    """Between a death and its replay; default 5 min, so that 3 replays fit the window under a processor that
    runs each 15 min."""
    redrive_after_s: float | None = None
    """The last automatic replay is reserved until this long after a death, whatever its age, for outages that
    outlast the window. Default none: all replays are made within it."""
    abandon_after_s: float = 7 * 86_400.0
    """Age at which an open entry is abandoned; default 7 days."""
    notice_before_s: float = 86_400.0
    """Between the last notice of an auth entry and its end; default 1 day."""
    bound: int = 10_000
    """Entries kept per queue; default 10,000."""
    batch: int = 100
    """Entries handled by one run; default 100."""

    def __post_init__(self) -> None:
        if not 0 < self.notice_before_s < self.abandon_after_s:
            raise ValueError(
                "the last notice would come before the entry hint: notice_before < abandon_after"
            )
        least_s = min(self.cool_down_s, self.replay_window_s, self.redrive_after_s or 0.0)
        if least_s < 0 or not 0 <= self.max_replays <= 3:
            raise ValueError("impossible replay settings hint: no negative times, 0 to 3 replays")
        if not 1 <= self.batch <= self.bound:
            raise ValueError("impossible sizes hint: 1 <= batch <= bound")


DEFAULT_DEAD_LETTER_RULES = DeadLetterRules()


class DeadEntry(Protocol):
    """The fields of a dead letter that decide its next action.

    Attributes:
        first_at: When it first died.
        last_at: When it last died.
        regranted: Whether its connection was given a new grant since.
    """

    @property
    def category(self) -> str: ...
    @property
    def code(self) -> str: ...
    @property
    def status(self) -> str: ...
    @property
    def replays(self) -> int: ...
    @property
    def replay_job_id(self) -> object | None: ...
    @property
    def reauth_started_at(self) -> datetime | None: ...
    @property
    def last_notice_at(self) -> datetime | None: ...
    @property
    def first_at(self) -> datetime: ...
    @property
    def last_at(self) -> datetime: ...
    @property
    def regranted(self) -> bool: ...


@dataclass(frozen=True, slots=True)
class RedriveNow:
    """Enqueue its replay now."""


@dataclass(frozen=True, slots=True)
class StartReauth:
    """Start the reauthorise workflow: it happens once per entry."""


@dataclass(frozen=True, slots=True)
class LastNotice:
    """Notify the customer once more; the dead letter is abandoned after *abandon_at*."""

    abandon_at: datetime


@dataclass(frozen=True, slots=True)
class Abandon:
    """Abandon it, for *reason*."""

    reason: str


@dataclass(frozen=True, slots=True)
class WaitUntil:
    """A cool-down or a replay is running; look again at *at*."""

    at: datetime


@dataclass(frozen=True, slots=True)
class WaitForPerson:
    """Only a person (or the customer) can help; by itself nothing happens before *until*."""

    until: datetime


@dataclass(frozen=True, slots=True)
class Closed:
    """It is resolved or abandoned: nothing is left to do."""


Action = RedriveNow | StartReauth | LastNotice | Abandon | WaitUntil | WaitForPerson | Closed


def next_action(
    entry: DeadEntry, now: datetime, rules: DeadLetterRules = DEFAULT_DEAD_LETTER_RULES
) -> Action:
    """Return the action on *entry* at *now*, the database's time."""
    if entry.status != DeadLetterStatus.PENDING_REVIEW:
        return Closed()
    if entry.replay_job_id is not None:  # its end closes or reopens the entry; this is only a backstop
        return WaitUntil(now + timedelta(seconds=max(rules.cool_down_s, 1.0)))
    if entry.category == Category.PERMANENT_AUTH:
        return _auth_action(entry, now, rules)
    end_at = entry.first_at + timedelta(seconds=rules.abandon_after_s)
    if now >= end_at:
        return Abandon(f"open for {_days(rules.abandon_after_s)} and nobody resolved it")
    replay_at = _replay_at(entry, now, rules)
    if replay_at is None or replay_at >= end_at:
        return WaitForPerson(end_at)
    return RedriveNow() if now >= replay_at else WaitUntil(replay_at)


def first_action(
    category: Category, code: str, died_at: datetime, rules: DeadLetterRules = DEFAULT_DEAD_LETTER_RULES
) -> Action:
    """Return the first action on a dead letter that is written now, at *died_at*."""
    return next_action(_NewEntry(category.value, code, died_at), died_at, rules)


def action_in_s(action: Action, now: datetime) -> float | None:
    """Return the seconds until *action* is due for the processor; None: never."""
    match action:
        case WaitUntil(at) | WaitForPerson(at):
            return max(0.0, (at - now).total_seconds())
        case Closed():
            return None
        case _:
            return 0.0


def _auth_action(entry: DeadEntry, now: datetime, rules: DeadLetterRules) -> Action:
    if entry.regranted:  # it has what it waited for
        return RedriveNow()
    if entry.reauth_started_at is None:
        return StartReauth()
    notice_at = entry.first_at + timedelta(seconds=rules.abandon_after_s - rules.notice_before_s)
    if now < notice_at:
        return WaitForPerson(notice_at)
    notice_s = timedelta(seconds=rules.notice_before_s)
    if entry.last_notice_at is None:  # counted from now: a processor that was away gives the full time
        return LastNotice(now + notice_s)
    end_at = max(entry.last_notice_at + notice_s, entry.first_at + timedelta(seconds=rules.abandon_after_s))
    if now < end_at:
        return WaitForPerson(end_at)
    return Abandon(f"not reauthorised in {_days(rules.abandon_after_s)}, after a last notice")


def _replay_at(entry: DeadEntry, now: datetime, rules: DeadLetterRules) -> datetime | None:
    """Return when the next automatic replay is due; None if there is none."""
    if entry.category not in TRANSIENT or entry.code in NEVER_REPLAYED or entry.replays >= rules.max_replays:
        return None
    reserved = 0 if rules.redrive_after_s is None else 1
    soon_at = entry.last_at + timedelta(seconds=rules.cool_down_s)
    window_end = entry.first_at + timedelta(seconds=rules.replay_window_s)
    if entry.replays < rules.max_replays - reserved and max(now, soon_at) < window_end:
        return soon_at  # a processor that was away replays nothing old
    if rules.redrive_after_s is None:
        return None
    return entry.last_at + timedelta(seconds=rules.redrive_after_s)


@dataclass(frozen=True, slots=True)
class _NewEntry:
    category: str
    code: str
    first_at: datetime
    status: str = DeadLetterStatus.PENDING_REVIEW.value
    replays: int = 0
    replay_job_id: object | None = None
    reauth_started_at: datetime | None = None
    last_notice_at: datetime | None = None
    regranted: bool = False

    @property
    def last_at(self) -> datetime:
        return self.first_at


# ---- closing and bounds ------------------------------------------------------------------------


def check_closing(status: DeadLetterStatus, resolution: Resolution, by: str, reason: str) -> None:
    """Check that an entry may be closed with this status and resolution, by an author and with a reason.

    Raises:
        InvalidInputError: It may not.
    """
    if resolution not in RESOLUTIONS[status]:
        fitting = ", ".join(sorted(RESOLUTIONS[status])) or "none: it is open"
        raise InvalidInputError(
            f"an entry is not {status} by {resolution}", hint=f"fitting resolutions: {fitting}"
        )
    for noun, text in (("an author", by), ("a reason", reason)):
        if not text.strip():
            raise InvalidInputError(
                f"a dead letter closed without {noun}", hint=f"give {noun}; operators read it later"
            )


@dataclass(frozen=True, slots=True)
class Bound:
    """What the bound of a queue asks for: delete *prune* closed entries; *refuse* new work, and alarm."""

    prune: int
    refuse: bool


def bound_verdict(
    open_entries: int, closed_entries: int, bound: int = DEFAULT_DEAD_LETTER_RULES.bound
) -> Bound:
    """Keep a queue within *bound*: only closed entries make room; full of open ones it refuses."""
    excess = max(0, open_entries + closed_entries - bound)
    return Bound(prune=min(excess, closed_entries), refuse=open_entries >= bound)


def _days(duration_s: float) -> str:
    return f"{duration_s / 86_400:g} days"
