"""What a process tells a store that is back, before it asks it again (G8, R23, R27).

First who holds what: of what is given back afterwards the store serves who waits, and beside a call that it
does not know of that would be one too many. Then what has ended, what is owed, and what was left behind.
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

AT_MOST_S = 2.0
"""Meanwhile whoever asks waits; a store that takes longer is not back."""

_Word = Callable[[], Awaitable[object]]


async def tell(fleet: FleetGate, degraded: DegradedGate, clock: Clock) -> list[Renewal]:
    """Report the state of *alone* to *fleet*, and return the slots that were reported.

    A report that an available Redis refuses, because keys of a domain are damaged, is dropped. Confirmed
    debts and ended calls are not reported again, because a lease expires by itself. Cancellations may be
    repeated, so they are.

    Raises:
        LimiterUnavailableError: Redis did not take the rest, and no report is under way any more.
    """
    late = LimiterUnavailableError(f"Redis did not hear within {AT_MOST_S:g} s what it had missed")
    stop, adopted, heard = clock.call_later(AT_MOST_S, lambda: fleet.abandon(late)), degraded.adopted(), False
    try:
        known = await _adopted(fleet, adopted, late)
        await _rest(fleet, degraded, late)
        heard = True
    finally:
        stop()
        if not heard:
            degraded.abandon(_ask_of(renewal) for renewal in adopted)
    return known


async def _adopted(fleet: FleetGate, renewals: list[Renewal], late: LimiterUnavailableError) -> list[Renewal]:
    """Those of them that the store knows of now."""
    if await _heard(fleet, partial(fleet.renew, renewals), late):
        return renewals
    return [renewal for renewal in renewals if await _heard(fleet, partial(fleet.renew, [renewal]), late)]


async def _rest(fleet: FleetGate, degraded: DegradedGate, late: LimiterUnavailableError) -> None:
    debts, ended, left = list(degraded.debts()), degraded.ended(), degraded.abandoned()
    words: list[_Word] = [
        *(partial(fleet.release, release) for release in (*debts, *ended)),
        *(partial(fleet.cancel, ask) for ask in left),
    ]
    told = await asyncio.gather(*(word() for word in words), return_exceptions=True)
    refused = {place: answer for place, answer in enumerate(told) if isinstance(answer, BaseException)}
    degraded.paid(debt for place, debt in enumerate(debts) if place not in refused)
    if late in refused.values():
        raise late
    for place in refused:  # one by one: those that were told together with a bad one failed with it
        await _heard(fleet, words[place], late)
        degraded.paid(debts[place : place + 1])


async def _heard(fleet: FleetGate, word: _Word, late: LimiterUnavailableError) -> bool:
    """Whether the store took it; False: it is there, and does not. LimiterUnavailableError where it is away."""
    try:
        await word()
    except LimiterUnavailableError as error:
        if error is late:
            raise
        await fleet.ping()
        return False
    return True


def _ask_of(renewal: Renewal) -> AdmitRequest:
    """What gives its slot back, should its call have ended before the next try."""
    holder = renewal.holder
    return AdmitRequest(Plan(renewal.domain, quota=holder.quota, pool=renewal.pool), holder=holder)
