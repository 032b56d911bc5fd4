"""Rate, breaker and pause of token endpoints in memory; see ``fairlead.engine.ports.EndpointGate``."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import datetime

from fairlead.engine.ports import EndpointKey, EndpointLimits, EndpointPermit, EndpointRefusal, Json
from fairlead.testing.memory.database import MemoryStore, seconds, statement
from fairlead.testing.memory.token_rows import EndpointRow, until_s

_MOST_DOUBLINGS = 20
_PAUSE_LOOK_S = 60.0


class MemoryEndpointGate(MemoryStore):
    """Token endpoints of a `MemoryDatabase`."""

    @statement
    def admit(
        self, key: EndpointKey, limits: EndpointLimits, secret_fingerprint: str | None
    ) -> EndpointPermit | EndpointRefusal:
        now, rows = self.database.now, self.database.tokens.endpoints
        row = rows.setdefault(key, EndpointRow(now, now, permits=limits.burst))
        level = min(limits.burst, self._refilled(row, limits.per_s or 0.0))
        halted = secret_fingerprint is not None and row.secret_fingerprint == secret_fingerprint
        under_probe = row.probe_until is not None and row.probe_until > now
        cooling = row.open_until is not None and row.open_until > now
        shut = row.state == "open" and (cooling or under_probe)
        probing = row.state == "open" and not shut
        granted = _granted(level, limits, refused=halted or shut, probing=probing)
        retry_after_s = _retry_after_s(row, limits, now)
        answer: EndpointPermit | EndpointRefusal
        if granted:
            answer = EndpointPermit(probe=probing, dirty=row.failures > 0 or row.state == "open")
        else:
            reason = row.reason or "the token endpoint was ill"
            answer = _refusal(
                reason, level, limits, halted=halted, shut=shut or probing, retry_after_s=retry_after_s
            )
        row.permits = row.permits if limits.per_s is None else level - granted
        row.refilled_at = max(row.refilled_at, now)
        if probing:
            row.probe_until = now + seconds(limits.probe_s)
        if row.state == "paused" and secret_fingerprint is not None and not halted:
            row.state = "closed"
        return answer

    @statement
    def record(
        self, key: EndpointKey, limits: EndpointLimits, permit: EndpointPermit, healthy: bool, reason: str
    ) -> float | None:
        row = self.database.tokens.endpoints.get(key)
        if row is None:
            return None
        if healthy:
            self._heal(row)
            return None
        return self._fail(row, limits, reason, probe=permit.probe)

    def _heal(self, row: EndpointRow) -> None:
        if row.failures == 0 and row.state != "open":
            return
        if row.state == "open":
            row.state, row.changed_at = "closed", self.database.now
        row.failures = row.openings = 0
        row.open_until = row.probe_until = None

    def _fail(self, row: EndpointRow, limits: EndpointLimits, reason: str, *, probe: bool) -> float | None:
        now = self.database.now
        row.failures += 1
        row.reason, row.changed_at = reason, now
        enough = row.failures >= limits.breaker_failures
        opens = row.state != "paused" and (probe or (row.state == "closed" and enough))
        if opens:
            open_s = limits.open_s * 2 ** min(row.openings, _MOST_DOUBLINGS)
            row.open_until = now + seconds(min(open_s, limits.open_max_s))
            row.openings += 1
            row.state = "open"
        if probe:
            row.probe_until = None
        return until_s(row.open_until, now) if opens else None

    @statement
    def penalise(self, key: EndpointKey, limits: EndpointLimits, hint_s: float) -> None:
        row = self.database.tokens.endpoints.get(key)
        if row is None or limits.per_s is None:
            return
        row.permits = min(self._refilled(row, limits.per_s), -(hint_s * limits.per_s))
        row.refilled_at = max(row.refilled_at, self.database.now)

    def _refilled(self, row: EndpointRow, per_s: float) -> float:
        return row.permits + max(0.0, (self.database.now - row.refilled_at).total_seconds()) * per_s

    @statement
    def pause(self, key: EndpointKey, reason: str, secret_fingerprint: str) -> bool:
        now, rows = self.database.now, self.database.tokens.endpoints
        row = rows.setdefault(key, EndpointRow(now, now))
        if row.secret_fingerprint == secret_fingerprint:
            return False
        row.state, row.reason, row.changed_at = "paused", reason, now
        row.secret_fingerprint = secret_fingerprint
        return True

    @statement
    def resume(self, key: EndpointKey) -> bool:
        row = self.database.tokens.endpoints.get(key)
        if row is None or (row.state == "closed" and row.secret_fingerprint is None):
            return False
        row.state, row.reason, row.failures, row.openings = "closed", None, 0, 0
        row.open_until = row.probe_until = row.secret_fingerprint = None
        row.changed_at = self.database.now
        return True

    @statement
    def search(self) -> list[Mapping[str, Json]]:
        rows = self.database.tokens.endpoints
        return [self._view(key, rows[key]) for key in sorted(rows, key=lambda k: (k.provider, k.client_id))]

    def _view(self, key: EndpointKey, row: EndpointRow) -> Mapping[str, Json]:
        return {
            "provider": key.provider,
            "client_id": key.client_id,
            "state": row.state,
            "reason": row.reason,
            "failures": row.failures,
            "open_for_s": until_s(row.open_until, self.database.now),
            "changed_at": row.changed_at,
        }


def _granted(level: float, limits: EndpointLimits, *, refused: bool, probing: bool) -> int:
    """Of the one permit that is asked for."""
    if refused:
        return 0
    if probing or limits.per_s is None:
        return 1
    return max(0, min(1, math.floor(level)))


def _retry_after_s(row: EndpointRow, limits: EndpointLimits, now: datetime) -> float | None:
    """Until its breaker lets one through; a probe answers long before its time is up."""
    moments = [] if row.open_until is None else [row.open_until]
    if row.probe_until is not None and row.probe_until > now:
        moments.append(min(row.probe_until, now + seconds(limits.probe_s / 10)))
    return until_s(max(moments, default=None), now)


def _refusal(
    reason: str,
    level: float,
    limits: EndpointLimits,
    *,
    halted: bool,
    shut: bool,
    retry_after_s: float | None,
) -> EndpointRefusal:
    if halted:
        return EndpointRefusal("pause", _PAUSE_LOOK_S, f"paused: {reason}")
    if shut:
        return EndpointRefusal("breaker", max(1.0, retry_after_s or 1.0), f"breaker open: {reason}")
    wait_s = (1 - level) / limits.per_s if limits.per_s else 1.0
    return EndpointRefusal("rate", max(wait_s, 0.01), "the token endpoint's rate is used up")
