"""Why a job waits, or what became of it: one word, one sentence, and the way out (Q14).

The first reason that holds is told; what would hold it back after that is told in the same sentence where it
is known now. A store finds out the facts, this judges them.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from fairlead.policy.jobs.grant_wait import NEEDS_REAUTH
from fairlead.policy.jobs.lane import Scope, ScopeKind
from fairlead.policy.jobs.states import JobState
from fairlead.policy.text.names import shown

FINISHED, RUNNING, NOT_DUE, EXPIRED, SUSPECT = "finished", "running", "not_due", "expired", "suspect"
PAUSED, CAPPED, NO_WORKER, TURN, UNSEEN = "paused", "capped", "no_worker", "turn", "unseen"
NO_HANDLER, FOLLOWS = "no_handler", "follows"

BY_FAIRLEAD = "fairlead"
"""The author of the pause of a group whose grant is gone, as the database writes it."""

STARVED_AFTER_S = 30.0
"""The first of its class for so long: probably no worker takes its queue or its kind."""


@dataclass(frozen=True, slots=True)
class HeldBy:
    """A pause that holds it. *until* None: until somebody resumes it."""

    scope: Scope
    until: datetime | None
    reason: str
    by: str


@dataclass(frozen=True, slots=True)
class FullCap:
    """A cap that leaves no room: of a tenant, of one of its groups, or (tenant None) of a group of all."""

    tenant_id: str | None
    group_key: str | None
    max_running: int


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFacts:
    """What is known of a job; moments and counts are the store's, counts may stop at a bound."""

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
class Reason:
    """*why* is one of the words above; *detail* a sentence for people, with a hint where one helps."""

    why: str
    detail: str
    until: datetime | None = None


def explain_wait(facts: JobFacts) -> Reason:
    """The first reason that holds."""
    return _ended(facts) or _not_yet(facts) or _held(facts) or _unserved(facts)


def _ended(facts: JobFacts) -> Reason | None:
    match facts.state:
        case JobState.COMPLETED:
            return Reason(FINISHED, "it is done")
        case JobState.CANCELLED:
            return Reason(FINISHED, f"it was cancelled: {facts.cancelled_because or 'no reason is kept'}")
        case JobState.DISCARDED:
            where = f"show {facts.dead_letter_id}" if facts.dead_letter_id else "list --status any"
            return Reason(
                FINISHED, f"it is dead, and a dead letter tells of it (hint: `fairlead dlq {where}`)"
            )
        case JobState.RUNNING:
            return Reason(RUNNING, _runs(facts))
    return None


def _runs(facts: JobFacts) -> str:
    where = facts.worker or "a worker that is not known any more"
    if facts.silent_s > facts.lease_s:
        gone = f"not heard of for {facts.silent_s:.0f} s, lease {facts.lease_s:.0f} s"
        return f"{where} had it, and is {gone}: it is given to another worker within seconds"
    if facts.started_at is None:
        return f"{where} has claimed it and begins it once there is room for it"
    told = f"attempt {facts.attempt} runs on {where} since {_s(facts.now - facts.started_at)}"
    if facts.cancelled_because is None:
        return told
    return f"{told}; it ends as cancelled once its handler has ended: {facts.cancelled_because}"


def _not_yet(facts: JobFacts) -> Reason | None:
    if facts.expires_at is not None and facts.expires_at <= facts.now:
        where = "cancels it" if facts.cancelled_because else "moves it to the dead letters"
        return Reason(EXPIRED, f"its time is over: a running process {where} within seconds")
    if facts.run_at <= facts.now:
        return None
    if facts.follows:
        return Reason(
            FOLLOWS, "the job that had its unique key runs now: this one begins once that run has ended"
        )
    again = f"attempt {facts.attempt} failed ({facts.last_failure}); " if facts.last_failure else ""
    told = f"{again}it is due in {_s(facts.run_at - facts.now)}"
    longer = [one for one in facts.pauses if one.until is None or one.until > facts.run_at]
    then = f"; then {_by(longer[0])} still holds it" if longer else ""
    return Reason(NOT_DUE, f"{told}{then} (hint: `fairlead jobs retry` makes it due now)", facts.run_at)


def _held(facts: JobFacts) -> Reason | None:
    if facts.pauses:
        ends = [one.until for one in facts.pauses if one.until is not None]
        until = max(ends) if len(ends) == len(facts.pauses) else None
        told = "; ".join(_by(one) for one in facts.pauses)
        asked = [one.scope for one in facts.pauses if one.scope.kind is not ScopeKind.RATE]
        way_out = next((_reauthorize(one) for one in facts.pauses if _needs_grant(one)), None)
        if way_out is None and asked:
            way_out = f"`fairlead jobs resume {scope_options(asked[0])}`"
        return Reason(PAUSED, f"{told} (hint: {way_out})" if way_out else told, until)
    if facts.full_caps:
        told = "; ".join(_full(cap) for cap in facts.full_caps)
        return Reason(CAPPED, f"{told}: one of them has to end (hint: `fairlead tenants caps`)")
    return None


def _unserved(facts: JobFacts) -> Reason:
    if facts.workers == 0:
        return Reason(NO_WORKER, "no process is alive to run it (hint: start `fairlead run`)")
    if not facts.handled:
        what = f"no worker takes kind {facts.kind!r} from queue {facts.queue!r}"
        hint = "start one that declares it, or `fairlead jobs cancel` what nobody needs"
        return Reason(NO_HANDLER, f"{what} (hint: {hint})")
    if facts.crash_count > 0:
        told = f"it was in flight at {_count(facts.crash_count, 'crash', 'crashes')} of its worker"
        return Reason(SUSPECT, f"{told}: it runs as soon as a worker has nothing else to do")
    if not facts.lane_ready:
        wakes_at = facts.lane_wakes_at
        if wakes_at is not None and wakes_at <= facts.now + timedelta(seconds=1):
            return Reason(TURN, "its lane is looked at within a second, and takes its turn then", wakes_at)
        return Reason(UNSEEN, "its lane has not been made ready: the next sweep of the lanes does so")
    return Reason(TURN, _turn(facts))


def _turn(facts: JobFacts) -> str:
    before = _count(facts.ahead_in_lane or 0, "job", "jobs")
    lanes = _count(facts.lanes_ahead or 0, "lane", "lanes")
    told = f"{before} of its own lane and {lanes} of its class are before it"
    if facts.urgent_lanes:
        return f"{told}, and {_count(facts.urgent_lanes, 'more urgent lane', 'more urgent lanes')}"
    if not facts.lanes_ahead and facts.lane_waits_s > STARVED_AFTER_S:
        waits = f"its lane is the first and was not served for {facts.lane_waits_s:.0f} s"
        takes = f"is every worker full, or does none take queue {facts.queue!r} and kind {facts.kind!r}?"
        return f"{told}; {waits} (hint: {takes})"
    return told


# ---- words -----------------------------------------------------------------------------------------


def scope_options(scope: Scope) -> str:
    """*scope* as the command line takes it.

    >>> from fairlead.policy.jobs.lane import ScopeKind
    >>> scope_options(Scope(ScopeKind.GROUP, "shopify/default", "Ann's"))
    '--group shopify/default --tenant \\'Ann\\'"\\'"\\'s\\''
    """
    whose = f" --tenant {shlex.quote(scope.tenant)}" if scope.tenant is not None else ""
    return f"--{scope.kind} {shlex.quote(scope.key)}{whose}"


def _needs_grant(held: HeldBy) -> bool:
    return held.by == BY_FAIRLEAD and held.reason == NEEDS_REAUTH and held.scope.kind is ScopeKind.GROUP


def _reauthorize(held: HeldBy) -> str:
    """Return the way out where only a new grant ends the pause: to resume it would only fail again."""
    provider, _, account = held.scope.key.partition("/")
    named = ["-t", held.scope.tenant or "", "-p", provider]
    if account != "default":
        named += ["-a", account]
    return f"the customer has to reconnect: `fairlead connections reauthorize {shlex.join(named)}`"


def _by(held: HeldBy) -> str:
    if held.scope.kind is ScopeKind.RATE:
        return f"group {shown(held.scope.key)} waits for its turn at the provider's limits: {held.reason}"
    return f"{held.scope} is paused by {held.by}: {held.reason}"


def _full(cap: FullCap) -> str:
    group = f"group {shown(cap.group_key)}" if cap.group_key is not None else ""
    tenant = f"tenant {shown(cap.tenant_id)}" if cap.tenant_id is not None else ""
    whose = f"{group} of {tenant}" if group and tenant else group or tenant
    return f"{whose} runs as many as its cap allows ({cap.max_running})"


def _count(count: int, one: str, many: str) -> str:
    return f"{count} {one if count == 1 else many}"


def _s(length: timedelta) -> str:
    return f"{max(0.0, length.total_seconds()):.0f} s"
