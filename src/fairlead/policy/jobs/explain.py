"""Explain why a job waits, or how it ended: a code, a sentence and a hint.

The first reason that applies is returned; a further one is added if it is known already. A store collects
the facts, this module decides. Spec: Q14.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from fairlead.policy.jobs.lane import Scope, ScopeKind
from fairlead.policy.jobs.states import JobState
from fairlead.policy.reasons.job_reasons import (
    CAPPED,
    EXPIRED,
    FINISHED,
    FOLLOWS,
    LANE_NOT_READY,
    NO_HANDLER,
    NO_WORKER,
    NOT_DUE,
    PAUSED,
    QUEUED,
    RUNNING,
    SUSPECT,
)
from fairlead.policy.reasons.reason import Reason
from fairlead.policy.reasons.token_reasons import NEEDS_REAUTH
from fairlead.policy.text.names import shown

BY_FAIRLEAD = "fairlead"
"""The author of the pause of a group without a grant, as the database writes it."""

STARVED_AFTER_S = 30.0
"""After being the first of its class for this long, probably no worker takes its queue or its kind."""


@dataclass(frozen=True, slots=True)
class HeldBy:
    """A pause that stops the job. *until* None: until it is resumed."""

    scope: Scope
    until: datetime | None
    reason: str
    by: str


@dataclass(frozen=True, slots=True)
class FullCap:
    """A cap that is reached: of a tenant, of one of its groups, or (tenant None) of a group of all tenants."""

    tenant_id: str | None
    group_key: str | None
    max_running: int


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFacts:
    """The facts about a job. Times and counts are the store's; counts may stop at a bound."""

    now: datetime
    state: str
    run_at: datetime
    queue: str = "default"
    kind: str = ""
    follows: bool = False  # it waits for the end of the run that had its unique key
    attempt: int = 0
    crash_count: int = 0
    started_at: datetime | None = None
    expires_at: datetime | None = None
    dead_letter_id: str | None = None
    cancelled_because: str | None = None
    last_failure: str | None = None  # its code
    worker: str | None = None  # host:pid
    silent_s: float = 0.0  # since the worker's last heartbeat
    lease_s: float = 30.0
    workers: int = 0
    handled: bool = True  # a worker takes its kind from its queue
    pauses: Sequence[HeldBy] = ()
    full_caps: Sequence[FullCap] = ()
    lane_ready: bool = False  # and where claims look for it
    lane_wakes_at: datetime | None = None  # when its lane is looked at again
    lane_waits_s: float = 0.0  # since its lane was last served or made ready
    ahead_in_lane: int | None = None
    lanes_ahead: int | None = None
    urgent_lanes: int | None = None  # ready in more urgent classes


@dataclass(frozen=True, slots=True)
class JobExplanation:
    """The explanation: the reason, and what it means for this job as a sentence, with a hint if one helps."""

    reason: Reason
    detail: str
    until: datetime | None = None


def explain_wait(facts: JobFacts) -> JobExplanation:
    """Return the first reason that applies."""
    return _ended(facts) or _not_yet(facts) or _blocked(facts) or _unserved(facts)


def _ended(facts: JobFacts) -> JobExplanation | None:
    match facts.state:
        case JobState.COMPLETED:
            return JobExplanation(FINISHED, "it is done")
        case JobState.CANCELLED:
            return JobExplanation(
                FINISHED,
                f"it was cancelled: {facts.cancelled_because or 'no reason is kept'}",
            )
        case JobState.DISCARDED:
            where = f"show {facts.dead_letter_id}" if facts.dead_letter_id else "list --status any"
            return JobExplanation(
                FINISHED,
                f"it is dead, and a dead letter tells of it (hint: `fairlead dlq {where}`)",
            )
        case JobState.RUNNING:
            return JobExplanation(RUNNING, _runs(facts))
    return None


def _runs(facts: JobFacts) -> str:
    where = facts.worker or "a worker that is not known any more"
    if facts.silent_s > facts.lease_s:
        silence = f"no heartbeat for {facts.silent_s:.0f} s, lease {facts.lease_s:.0f} s"
        return f"{where} had it, and sent {silence}: it is given to another worker within seconds"
    if facts.started_at is None:
        return f"{where} has claimed it and begins it once there is room for it"
    text = f"attempt {facts.attempt} runs on {where} since {_s(facts.now - facts.started_at)}"
    if facts.cancelled_because is None:
        return text
    return f"{text}; it ends as cancelled once its handler has ended: {facts.cancelled_because}"


def _not_yet(facts: JobFacts) -> JobExplanation | None:
    if facts.expires_at is not None and facts.expires_at <= facts.now:
        where = "cancels it" if facts.cancelled_because else "moves it to the dead letters"
        return JobExplanation(EXPIRED, f"its time is over: a running process {where} within seconds")
    if facts.run_at <= facts.now:
        return None
    if facts.follows:
        return JobExplanation(
            FOLLOWS,
            "the job that had its unique key runs now: this one begins once that run has ended",
        )
    again = f"attempt {facts.attempt} failed ({facts.last_failure}); " if facts.last_failure else ""
    text = f"{again}it is due in {_s(facts.run_at - facts.now)}"
    longer = [pause for pause in facts.pauses if pause.until is None or pause.until > facts.run_at]
    then = f"; then {_by(longer[0])} still holds it" if longer else ""
    return JobExplanation(
        NOT_DUE, f"{text}{then} (hint: `fairlead jobs retry` makes it due now)", facts.run_at
    )


def _blocked(facts: JobFacts) -> JobExplanation | None:
    if facts.pauses:
        ends = [pause.until for pause in facts.pauses if pause.until is not None]
        until = max(ends) if len(ends) == len(facts.pauses) else None
        text = "; ".join(_by(pause) for pause in facts.pauses)
        scopes = [pause.scope for pause in facts.pauses if pause.scope.kind is not ScopeKind.RATE]
        hint = next((_reauthorize(pause) for pause in facts.pauses if _needs_grant(pause)), None)
        if hint is None and scopes:
            hint = f"`fairlead jobs resume {scope_options(scopes[0])}`"
        return JobExplanation(PAUSED, f"{text} (hint: {hint})" if hint else text, until)
    if facts.full_caps:
        text = "; ".join(_full(cap) for cap in facts.full_caps)
        return JobExplanation(CAPPED, f"{text}: one of them has to end (hint: `fairlead tenants caps`)")
    return None


def _unserved(facts: JobFacts) -> JobExplanation:
    if facts.workers == 0:
        return JobExplanation(NO_WORKER, "no process is alive to run it (hint: start `fairlead run`)")
    if not facts.handled:
        text = f"no worker takes kind {facts.kind!r} from queue {facts.queue!r}"
        hint = "start one that declares it, or `fairlead jobs cancel` what nobody needs"
        return JobExplanation(NO_HANDLER, f"{text} (hint: {hint})")
    if facts.crash_count > 0:
        text = f"it was in flight at {_count(facts.crash_count, 'crash', 'crashes')} of its worker"
        return JobExplanation(SUSPECT, f"{text}: it runs as soon as a worker has nothing else to do")
    if not facts.lane_ready:
        wakes_at = facts.lane_wakes_at
        if wakes_at is not None and wakes_at <= facts.now + timedelta(seconds=1):
            return JobExplanation(
                QUEUED,
                "its lane is looked at within a second, and takes its turn then",
                wakes_at,
            )
        return JobExplanation(
            LANE_NOT_READY,
            "its lane has not been made ready: the next sweep of the lanes does so",
        )
    return JobExplanation(QUEUED, _turn(facts))


def _turn(facts: JobFacts) -> str:
    jobs = _count(facts.ahead_in_lane or 0, "job", "jobs")
    lanes = _count(facts.lanes_ahead or 0, "lane", "lanes")
    text = f"{jobs} of its own lane and {lanes} of its class are before it"
    if facts.urgent_lanes:
        return f"{text}, and {_count(facts.urgent_lanes, 'more urgent lane', 'more urgent lanes')}"
    if not facts.lanes_ahead and facts.lane_waits_s > STARVED_AFTER_S:
        waits = f"its lane is the first and was not served for {facts.lane_waits_s:.0f} s"
        takes = f"is every worker full, or does none take queue {facts.queue!r} and kind {facts.kind!r}?"
        return f"{text}; {waits} (hint: {takes})"
    return text


# ---- words -----------------------------------------------------------------------------------------


def scope_options(scope: Scope) -> str:
    """Return *scope* as options of the command line.

    >>> from fairlead.policy.jobs.lane import ScopeKind
    >>> scope_options(Scope(ScopeKind.GROUP, "shopify/default", "Ann's"))
    '--group shopify/default --tenant \\'Ann\\'"\\'"\\'s\\''
    """
    tenant = f" --tenant {shlex.quote(scope.tenant)}" if scope.tenant is not None else ""
    return f"--{scope.kind} {shlex.quote(scope.key)}{tenant}"


def _needs_grant(pause: HeldBy) -> bool:
    return (
        pause.by == BY_FAIRLEAD and pause.reason == NEEDS_REAUTH.code and pause.scope.kind is ScopeKind.GROUP
    )


def _reauthorize(pause: HeldBy) -> str:
    """Return the hint for a pause that only a new grant ends: a resumed job would fail again."""
    provider, _, account = pause.scope.key.partition("/")
    named = ["-t", pause.scope.tenant or "", "-p", provider]
    if account != "default":
        named += ["-a", account]
    return f"the customer has to reconnect: `fairlead connections reauthorize {shlex.join(named)}`"


def _by(pause: HeldBy) -> str:
    if pause.scope.kind is ScopeKind.RATE:
        return f"group {shown(pause.scope.key)} waits for its turn at the provider's limits: {pause.reason}"
    return f"{pause.scope} is paused by {pause.by}: {pause.reason}"


def _full(cap: FullCap) -> str:
    group = f"group {shown(cap.group_key)}" if cap.group_key is not None else ""
    tenant = f"tenant {shown(cap.tenant_id)}" if cap.tenant_id is not None else ""
    owner = f"{group} of {tenant}" if group and tenant else group or tenant
    return f"{owner} runs as many as its cap allows ({cap.max_running})"


def _count(count: int, singular: str, plural: str) -> str:
    return f"{count} {singular if count == 1 else plural}"


def _s(length: timedelta) -> str:
    return f"{max(0.0, length.total_seconds()):.0f} s"
