"""Breakers of this process alone, for destinations that it cannot connect to. Spec: R50.

The fleet's breaker counts failures to connect only once a second process reports them. Until then the local
breaker saves this process further attempts, and no other process waits. Any response of the destination
closes the local breaker.
"""

from __future__ import annotations

from collections.abc import Coroutine, Sequence
from dataclasses import dataclass, replace
from typing import Any

from fairlead._core.clock import Clock
from fairlead.engine.ports import (
    AdmitRequest,
    AdmitResult,
    Admitted,
    Gate,
    GateRefusal,
    Lease,
    OnReleased,
    RefusedBy,
    Release,
    Released,
    Renewal,
    Wake,
)
from fairlead.policy.limits import breaker as policy
from fairlead.policy.limits.breaker import Breaker, DestinationHealth
from fairlead.policy.limits.limit import MICRO, BreakerRule, Domain

MAX_OPEN_S = 15.0
"""The longest time a local breaker stays open. An operator can neither see nor reset it."""
_MAX_ENTRIES = 10_000


@dataclass(slots=True)
class _Entry:
    breaker: Breaker = policy.NEW
    probe: Admitted | None = None


class LocalBreakers:
    """A gate with local breakers in front of another gate. See fairlead.engine.ports.gate.Gate.

    Args:
        gate: The gate that decides everything else.
        reporter: The number that identifies this process to the fleet's breakers; above 1.
        clock: The process's clock.
    """

    def __init__(self, gate: Gate, *, reporter: int, clock: Clock) -> None:
        self._gate = gate
        self._reporter = reporter
        self._clock = clock
        self._entries: dict[tuple[Domain, str], _Entry] = {}

    def admit(self, request: AdmitRequest) -> Coroutine[Any, Any, AdmitResult]:
        """Refuse while the local breaker is open; otherwise let the gate decide."""
        rule = request.plan.breaker
        if not self._entries or rule is None:
            return self._gate.admit(request)
        entry = self._entries.get((request.plan.domain, rule.key))
        return self._gate.admit(request) if entry is None else self._admit_by_breaker(entry, rule, request)

    async def _admit_by_breaker(self, entry: _Entry, rule: BreakerRule, request: AdmitRequest) -> AdmitResult:
        decision = policy.admit(
            entry.breaker, _with_short_times(rule), self._now_us(), int(request.call_s * MICRO)
        )
        if isinstance(decision, int):
            return GateRefusal(RefusedBy.BREAKER, decision / MICRO)
        entry.breaker = decision.next_state
        if not decision.probe:
            return await self._gate.admit(request)
        result: AdmitResult | None = None
        try:
            result = await self._gate.admit(request)
        finally:
            if isinstance(result, Admitted):
                entry.probe = result
            else:  # the probe is not sent, so the next call may be the probe
                self._record(entry, rule, DestinationHealth.NEUTRAL, decision.probe)
        return result

    async def release(self, release: Release) -> Released:
        """Record the end of a call in the local breaker and at the gate."""
        release, opened_s, closed = self._record_release(release)
        return _merged(await self._gate.release(release), opened_s, closed)

    def release_soon(self, release: Release, on_released: OnReleased) -> None:
        """Record the end of a call without waiting; *on_released* receives the result."""
        forwarded, opened_s, closed = self._record_release(release)
        if opened_s is None and not closed:
            self._gate.release_soon(forwarded, on_released)
            return

        def merged(result: Released | Exception) -> None:
            on_released(_merged(result, opened_s, closed) if isinstance(result, Released) else result)

        self._gate.release_soon(forwarded, merged)

    async def cancel(self, request: AdmitRequest) -> None:
        """Cancel at the gate."""
        await self._gate.cancel(request)

    async def renew(self, renewals: Sequence[Renewal]) -> list[Lease]:
        """Renew at the gate."""
        return await self._gate.renew(renewals)

    async def listen(self, wake: Wake) -> None:
        """Listen at the gate."""
        await self._gate.listen(wake)

    def _record_release(self, release: Release) -> tuple[Release, float | None, bool]:
        """Record *release* in the local breaker.

        Returns:
            The release to pass to the gate, the seconds for which the local breaker opened (None: it did not),
            and whether the local breaker closed.
        """
        plan, health = release.admitted.plan, release.health
        rule = plan.breaker
        is_unreached = health is DestinationHealth.UNREACHED
        if rule is None or not (is_unreached or self._entries):
            return release, None, False
        key = plan.domain, rule.key
        entry = self._entries.get(key)
        if is_unreached:
            if entry is None:
                if len(self._entries) >= _MAX_ENTRIES:
                    self._entries.clear()
                entry = self._entries[key] = _Entry()
            release = release._replace(reporter=self._reporter)
            return (
                release,
                self._record(entry, rule, DestinationHealth.UNHEALTHY, _ended_probe(entry, release)),
                False,
            )
        if entry is None:
            return release, None, False
        if health is DestinationHealth.NEUTRAL:
            self._record(entry, rule, health, _ended_probe(entry, release))
            return release, None, False
        del self._entries[key]  # the destination responded
        return release, None, entry.breaker.mode is not policy.Mode.CLOSED

    def _record(
        self, entry: _Entry, rule: BreakerRule, health: DestinationHealth, probe: int
    ) -> float | None:
        """Record the health of a destination; return the seconds for which the breaker opened, if it did."""
        previous, now_us = entry.breaker, self._now_us()
        entry.breaker = current = policy.record(
            previous, _with_short_times(rule), health, now_us, probe=probe
        )
        if probe:
            entry.probe = None
        opened = current.times_opened > previous.times_opened
        return (current.until_us - now_us) / MICRO if opened else None

    def _now_us(self) -> int:
        return round(self._clock.monotonic() * MICRO)


def _ended_probe(entry: _Entry, release: Release) -> int:
    """Return the id of the entry's probe if *release* ends it, else 0."""
    return entry.breaker.until_us if entry.probe is release.admitted else 0


def _with_short_times(rule: BreakerRule) -> BreakerRule:
    """Return *rule* with shorter times, because no operator can reset a local breaker."""
    return replace(rule, open_s=min(rule.open_s, MAX_OPEN_S), open_max_s=min(rule.open_max_s, MAX_OPEN_S))


def _merged(released: Released, opened_s: float | None, closed: bool) -> Released:
    """Return the gate's result, with what the local breaker did."""
    if released.opened_s is None and opened_s is not None:
        released = released._replace(opened_s=opened_s)
    return released._replace(closed=released.closed or closed)
