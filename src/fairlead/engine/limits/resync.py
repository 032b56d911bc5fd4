"""The report of a process to a Redis that is available again, before Redis decides again.

Slots in use come first. When a slot is released, Redis grants it to a waiting call; if it did not know all
slots in use, that would be one call too many. Releases, debts and cancellations follow. Spec: G8, R23, R27.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial

from fairlead._core.clock import Clock
from fairlead.engine.limits.degraded_gate import DegradedGate
from fairlead.engine.ports import AdmitRequest, FleetGate, Renewal
from fairlead.errors import LimiterUnavailableError
from fairlead.policy.limits.limit import Plan

MAX_RESYNC_S = 2.0
"""How long the report may take, while requests wait. A Redis that takes longer is still unavailable."""

_Report = Callable[[], Awaitable[object]]


async def resync(fleet: FleetGate, degraded: DegradedGate, clock: Clock) -> list[Renewal]:
    """Report the state of *degraded* to *fleet*, and return the slots that it adopted.

    A report that an available Redis refuses, because keys of a domain are damaged, is dropped. Confirmed
    debts and releases are not reported again, because a lease expires by itself. Cancellations may be
    repeated, so they are.

    Raises:
        LimiterUnavailableError: Redis did not take the rest, and no report is in flight any more.
    """
    timeout_error = LimiterUnavailableError(
        f"Redis did not hear within {MAX_RESYNC_S:g} s what it had missed"
    )
    slots, is_complete = degraded.running_slots(), False
    stop = clock.call_later(MAX_RESYNC_S, lambda: fleet.abandon(timeout_error))
    try:
        adopted = await _adopt(fleet, slots, timeout_error)
        await _report_rest(fleet, degraded, timeout_error)
        is_complete = True
    finally:
        stop()
        if not is_complete:
            degraded.cancel_later(_request_to_cancel(renewal) for renewal in slots)
    return adopted


async def _adopt(
    fleet: FleetGate, slots: list[Renewal], timeout_error: LimiterUnavailableError
) -> list[Renewal]:
    """Report *slots*, all at once, else one by one; return those that Redis adopted.

    Raises:
        LimiterUnavailableError: *timeout_error*, which the reports fail with when their time is over.
    """
    if await _is_accepted(fleet, partial(fleet.renew, slots), timeout_error):
        return slots
    return [
        renewal
        for renewal in slots
        if await _is_accepted(fleet, partial(fleet.renew, [renewal]), timeout_error)
    ]


async def _report_rest(
    fleet: FleetGate, degraded: DegradedGate, timeout_error: LimiterUnavailableError
) -> None:
    debts, releases, to_cancel = (
        list(degraded.debts()),
        degraded.take_releases(),
        degraded.requests_to_cancel(),
    )
    reports: list[_Report] = [
        *(partial(fleet.release, release) for release in (*debts, *releases)),
        *(partial(fleet.cancel, request) for request in to_cancel),
    ]
    results = await asyncio.gather(*(report() for report in reports), return_exceptions=True)
    refused = {index: error for index, error in enumerate(results) if isinstance(error, BaseException)}
    degraded.mark_reported(debt for index, debt in enumerate(debts) if index not in refused)
    if timeout_error in refused.values():
        raise timeout_error
    for index in refused:  # one by one: a report that was sent in one batch with a bad one failed with it
        await _is_accepted(fleet, reports[index], timeout_error)
        degraded.mark_reported(debts[index : index + 1])


async def _is_accepted(fleet: FleetGate, report: _Report, timeout_error: LimiterUnavailableError) -> bool:
    """Send *report*; return False if Redis is available and refuses it, or raise LimiterUnavailableError."""
    try:
        await report()
    except LimiterUnavailableError as error:
        if error is timeout_error:
            raise
        await fleet.ping()
        return False
    return True


def _request_to_cancel(renewal: Renewal) -> AdmitRequest:
    """Return the request to cancel if the slot's call ends before the next report."""
    holder = renewal.holder
    return AdmitRequest(Plan(renewal.domain, quota=holder.quota, pool=renewal.pool), holder=holder)
