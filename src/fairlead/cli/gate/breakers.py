"""Breakers of calls as the command line shows them, by connection and host. Spec: G6, G12."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING

from fairlead.cli.kit.output import Record, fields_of
from fairlead.policy.jobs.lane import ScopeKind, connection_group

if TYPE_CHECKING:
    from fairlead.assembly.runtime import Runtime
    from fairlead.engine.ports import ConnectionKey, DestinationView, FailureView, PauseView
    from fairlead.policy.limits.override import OverrideScope

_STATE = ("host", "mode", "left_s", "last_failure", "last_failure_ago_s")
COLUMNS = (*_STATE, "in_a_row", "bad", "good", "opened_s")
ALL_COLUMNS = ("tenant", "provider", "account", *_STATE, "lanes_held")
MOST_PAUSES = 1000


async def of_connection(runtime: Runtime, key: ConnectionKey, *, failures: int = 1) -> list[DestinationView]:
    """Return the breakers of one connection that counted a failure within the last day."""
    if runtime.gate.viewer is None:
        return []
    domain = (await runtime.gate.call_admitter.plan(key)).plan.domain
    views = await runtime.gate.viewer.breakers(domain, failures=failures)
    return [view for view in views if view.destination[:3] == (key.provider, key.account, key.tenant)]


async def of_scope(runtime: Runtime, scope: OverrideScope) -> list[DestinationView]:
    """Return the breakers of all connections in *scope*."""
    if runtime.gate.viewer is None:
        return []
    tenant, provider, account = scope.names
    return [
        view
        for view in await runtime.gate.viewer.breakers()
        if provider in ("", view.destination.provider)
        and (not tenant or (tenant, account) == (view.destination.tenant, view.destination.account))
    ]


async def open_breakers(runtime: Runtime) -> list[Record]:
    """Return each breaker that stops calls now, with the number of job lanes that wait for it."""
    if runtime.gate.viewer is None:
        return []
    views = [view for view in await runtime.gate.viewer.breakers() if view.breaker.mode != "closed"]
    pauses = await runtime.lanes.pauses(MOST_PAUSES) if views else []
    records = [
        {
            **fields_of(view.destination, "tenant provider account"),
            **breaker_record(view),
            "lanes_held": _lanes_held(view, pauses),
        }
        for view in views
    ]
    return [record for record in records if stops_calls(record)]


def stops_calls(breaker: Record) -> bool:
    """Return whether an open breaker refuses calls now, or holds jobs.

    After its open time a breaker admits the next call as a probe. Without calls it stays open for a day.
    """
    return bool(breaker["left_s"] > 0 or breaker["lanes_held"] > 0)


def _lanes_held(view: DestinationView, pauses: Sequence[PauseView]) -> int:
    provider, account, tenant, _ = view.destination
    waits = (ScopeKind.RATE, tenant, connection_group(provider, account))
    return sum(
        pause.lanes for pause in pauses if (pause.scope.kind, pause.scope.tenant, pause.scope.key) == waits
    )


def breaker_record(view: DestinationView) -> Record:
    """Return *view* as a JSON record, with fields as in `BreakerView`.

    `left_s` is the time until it admits a probe, or until the probe under way must have ended. `opened_s` is
    for how long its latest failure opened it.
    """
    last = view.failures[0] if view.failures else None
    return {
        "host": view.destination.host or None,
        "mode": view.breaker.mode,
        "left_s": round(view.breaker.left_s, 3),
        **fields_of(view.breaker, "in_a_row times_opened good bad"),
        "last_failure": (last and last.cause) or None,
        "last_failure_ago_s": last and round(last.ago_s, 3),
        "opened_s": next((failure.opened_s for failure in view.failures if failure.opened_s), None),
    }


def failure_record(view: DestinationView, failure: FailureView) -> Record:
    """Return one failure that the breaker of *view* counted, as a JSON record."""
    return {
        "ago_s": round(failure.ago_s, 3),
        "host": view.destination.host or None,
        "cause": failure.cause or None,
        "process": failure.process or None,
        "tenant": failure.tenant or None,
        "job": failure.job or None,
        "opened_s": failure.opened_s,
    }


def worst_mode(views: Sequence[DestinationView]) -> str:
    """Return the most restrictive mode of *views*."""
    modes = {view.breaker.mode for view in views}
    return next((mode for mode in ("open", "half-open") if mode in modes), "closed")


def problem_of(breaker: Record) -> str:
    """Describe an open breaker for the operator."""
    where = f"{breaker['provider']} at {breaker['host']}" if breaker["host"] else str(breaker["provider"])
    cause = f" ({breaker['last_failure']})" if breaker["last_failure"] else ""
    lanes = breaker["lanes_held"]
    waits = f", jobs wait in {lanes} {'lane' if lanes == 1 else 'lanes'}" if lanes else ""
    named = ["-t", breaker["tenant"], "-p", breaker["provider"]]
    if breaker["account"] != "default":
        named += ["-a", breaker["account"]]
    return (
        f"calls of tenant {breaker['tenant']} to {where} are stopped: the breaker is {breaker['mode']}, "
        f"the last failure{cause} was {breaker['last_failure_ago_s']:.0f} s ago{waits} "
        f"(hint: `fairlead gate status {shlex.join(named)}`)"
    )
