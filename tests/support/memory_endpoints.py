"""Rate, breaker and pause of token endpoints in memory; see ``fairlead.engine.ports.EndpointGate``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from fairlead.engine.ports import (
    EndpointChange,
    EndpointKey,
    EndpointPermit,
    EndpointRefusal,
    Json,
    PermitRequest,
    permit_from_row,
)
from fairlead.policy.calls.blast_radius import NEVER_SENT, OWN_FAULT, QUORUM, Reach, Shared
from fairlead.testing._memory.database import MemoryStore, seconds, statement
from fairlead.testing._memory.token_rows import BackoffRow, EndpointRow, until_s

_MOST_DOUBLINGS = 20
_MOST_FAILING = 10_000
_MOST_REFUSING, _MOST_TOLD = 100, 5


@dataclass(slots=True)
class _Row:
    """A row of an ask; *halted*: it pauses the very secret that the ask comes with."""

    row: EndpointRow
    halted: bool

    @property
    def closed(self) -> bool:
        return self.halted or self.row.state == "open"


class MemoryEndpointGate(MemoryStore):
    """Token endpoints of a `MemoryDatabase`."""

    @statement
    def admit(self, ask: PermitRequest) -> EndpointPermit | EndpointRefusal:
        answer = self.take(ask, lambda: True)
        assert answer is not None
        return answer

    def take(self, ask: PermitRequest, claims: Callable[[], bool]) -> EndpointPermit | EndpointRefusal | None:
        """Return a permit, which is used if its holder *claims* the rotation; None: he does not get it."""
        now, limits = self.database.now, ask.limits
        bucket = self._made(ask, ask.key.rate_key)
        gates = self._gates(ask)
        backoff = None if ask.at_once else self._backoff(ask.connection_id, ask.generation)
        closed = [gate for gate in gates if gate.closed]
        shut = any(_latest(gate.row.open_until, gate.row.probe_until, now) > now for gate in closed)
        level = min(limits.burst, self._refilled(bucket, limits.per_s or 0.0))
        granted = not backoff and not shut and bool(closed or limits.per_s is None or level >= 1)
        used = granted and claims()
        dirty = _is_dirty(gates)
        reason = next((gate.row.reason for gate in closed if gate.row.reason), None)
        row = {
            "held_s": until_s(backoff.retry_at, now) if backoff else None,
            "reason": backoff.reason if backoff else reason,
            "turn": 0,
            "granted": granted,
            "probe": bool(closed),
            "dirty": dirty,
            "guard": "pause" if any(g.halted for g in closed) else "breaker" if closed else "rate",
            "retry_after_s": self._shut_s(closed, limits.probe_s),
            "level": level,
        }
        if limits.per_s is not None:
            bucket.permits = level - used
        for gate in gates:
            if gate.row is bucket or gate.row.state != "closed" or dirty:
                was_set_back = gate.row.refilled_at > now + seconds(60.0)
                gate.row.refilled_at = now if was_set_back else max(gate.row.refilled_at, now)
            if gate.closed and used:
                gate.row.probe_until = now + seconds(limits.probe_s)
            if gate.row.state == "paused" and not gate.halted and ask.secret_fingerprint is not None:
                gate.row.state = "closed"
        return None if granted and not used else permit_from_row(row, limits)

    def _made(self, ask: PermitRequest, name: str) -> EndpointRow:
        now = self.database.now
        row = EndpointRow(now, now, permits=ask.limits.burst)
        return self.database.tokens.endpoints.setdefault(EndpointKey(ask.key.provider, name), row)

    def _gates(self, ask: PermitRequest) -> list[_Row]:
        rows, secret = self.database.tokens.endpoints, ask.secret_fingerprint
        states = [rows[EndpointKey(ask.key.provider, name)] for name in self._names(ask)]
        return [_Row(row, secret is not None and row.secret_fingerprint == secret) for row in states]

    def _names(self, ask: PermitRequest) -> list[str]:
        """Return the names of the rows that there are."""
        key, rows = ask.key, self.database.tokens.endpoints
        names = sorted({key.client_id, key.health_key, key.rate_key})
        return [name for name in names if EndpointKey(key.provider, name) in rows]

    def _shut_s(self, closed: Sequence[_Row], probe_s: float) -> float | None:
        now = self.database.now
        soon = now + seconds(probe_s / 10)  # a probe answers long before its time is up
        probes = [gate.row.probe_until for gate in closed]
        moments = [gate.row.open_until for gate in closed]
        moments += [min(probe_until, soon) for probe_until in probes if probe_until and probe_until > now]
        return until_s(_latest(*moments, now), now)

    @statement
    def record(
        self, ask: PermitRequest, permit: EndpointPermit, reach: Reach, reason: str, hint_s: float = 0.0
    ) -> EndpointChange | None:
        change = None
        if reach.backs_off:
            self._back_off(ask, reason, hint_s)
        if Shared.HOST in reach.lifts and (permit.dirty or permit.probe):
            change = self._heal(ask, granted=Shared.APP in reach.lifts)
        match reach.shared:
            case Shared.HOST:
                process = ask.session_id if reach.by_process else None
                return self._fail(ask, reason, process, probe=permit.probe)
            case Shared.RATE:
                self._penalise(ask, hint_s)
            case Shared.APP if ask.secret_fingerprint is not None:
                return self._refuse(ask, ask.secret_fingerprint, reason, probe=permit.probe) or change
            case _ if reach in (NEVER_SENT, OWN_FAULT):
                bucket = self.database.tokens.endpoints.get(EndpointKey(ask.key.provider, ask.key.rate_key))
                for gate in self._gates(ask):
                    gate.row.permits += gate.row is bucket
                    gate.row.probe_until = None if permit.probe else gate.row.probe_until
        return change

    def _back_off(self, ask: PermitRequest, reason: str, hint_s: float) -> None:
        backoffs, now = self.database.tokens.backoffs, self.database.now
        if ask.connection_id not in self.database.tokens.connections:
            return
        backoff = backoffs.get(ask.connection_id)
        if backoff is not None and backoff.generation > ask.generation:
            return
        failures = backoff.failures if backoff is not None and backoff.generation == ask.generation else 0
        wait_s = min(ask.limits.open_s, ask.limits.backoff_s * 2 ** min(failures, _MOST_DOUBLINGS))
        retry_at = now + seconds(max(wait_s, hint_s))
        backoffs[ask.connection_id] = BackoffRow(ask.generation, failures + 1, retry_at, reason)

    def _heal(self, ask: PermitRequest, *, granted: bool) -> EndpointChange | None:
        ended = list[str]()
        for name, gate in zip(self._names(ask), self._gates(ask), strict=True):
            row, lifts = gate.row, granted and gate.halted
            if row.state == "open" or lifts:
                row.changed_at = self.database.now
                row.state = "closed"
                ended.append(name)
            if lifts:
                row.secret_fingerprint = None
            if row.secret_fingerprint is None:
                row.open_until = None
            row.failures, row.openings, row.failing, row.probe_until = 0, 0, (), None
            row.limited = () if granted else row.limited
            row.permits = 1.0 if granted and row.permits < 0 else row.permits
            row.refusing = () if granted and ask.secret_fingerprint is not None else row.refusing
        return EndpointChange(min(ended, key=len), "closed") if ended else None

    def _fail(
        self, ask: PermitRequest, reason: str, process: UUID | None, *, probe: bool
    ) -> EndpointChange | None:
        row, now, limits = self._made(ask, ask.key.health_key), self.database.now, ask.limits
        connection_id, reporters, enough = (
            str(ask.connection_id),
            row.failing,
            max(QUORUM, limits.breaker_failures),
        )
        word = connection_id if process is None else f"{connection_id} {process}"
        ours = process is not None and sum(report.endswith(f" {process}") for report in reporters)
        if probe:
            counts = not ours and not any(report.startswith(connection_id) for report in reporters)
        else:
            counts = row.state == "closed" and ours < enough and word not in reporters
        counts &= row.failures < _MOST_FAILING
        if counts:
            row.failing, row.failures = (*row.failing, word), row.failures + 1
        row.reason, row.changed_at = reason, now
        if probe:
            row.probe_until = None
        agrees = _agreed(row.failing) >= enough
        if not (row.state == "open" and probe and counts) and not (row.state == "closed" and agrees):
            return None
        open_s = min(limits.open_s * 2 ** min(row.openings, _MOST_DOUBLINGS), limits.open_max_s)
        row.state, row.openings, row.open_until = "open", row.openings + 1, now + seconds(open_s)
        said_by = tuple(report.partition(" ")[0] for report in row.failing[:_MOST_TOLD])
        return EndpointChange(
            ask.key.health_key, "open", until_s(row.open_until, now) or 0.0, said_by=said_by
        )

    def _penalise(self, ask: PermitRequest, hint_s: float) -> None:
        row = self.database.tokens.endpoints.get(EndpointKey(ask.key.provider, ask.key.rate_key))
        per_s = ask.limits.per_s
        if row is None or per_s is None:
            return
        if set(row.limited) - {ask.connection_id}:
            row.permits = min(self._refilled(row, per_s), -min(ask.limits.burst, hint_s * per_s))
            row.refilled_at = max(row.refilled_at, self.database.now)
        if ask.connection_id not in row.limited and len(row.limited) < QUORUM:
            row.limited = (*row.limited, ask.connection_id)

    def _refilled(self, row: EndpointRow, per_s: float) -> float:
        return row.permits + max(0.0, (self.database.now - row.refilled_at).total_seconds()) * per_s

    def _refuse(self, ask: PermitRequest, secret: str, reason: str, *, probe: bool) -> EndpointChange | None:
        now, key, change = self.database.now, ask.key, None
        for name in sorted(
            {key.client_id, key.health_key}, key=len, reverse=True
        ):  # the app hears of a paused host
            row = self._made(ask, name)
            halted = row.secret_fingerprint == secret
            word = f"{secret} {ask.connection_id if name == key.health_key or halted else key.host}"
            reports = tuple(report for report in row.refusing if report.startswith(f"{secret} "))
            fresh = word not in reports and bool(name == key.health_key or halted or change)
            reports = (*reports, word) if fresh else reports
            row.refusing = reports[-_MOST_REFUSING:]
            closes = halted or len(reports) >= QUORUM
            if probe or (closes and not halted):
                row.probe_until = None
            if not closes:
                continue
            row.state, row.reason, row.secret_fingerprint = "paused", reason, secret
            if not halted or (fresh and probe):
                row.open_until = now + seconds(ask.limits.open_max_s)
            row.changed_at = row.changed_at if halted else now
            said_by = tuple(report.partition(" ")[2] for report in reports[:_MOST_TOLD])
            for_s = max(0.0, until_s(row.open_until, now) or 0.0)
            change = EndpointChange(name, "paused", for_s, not halted, said_by)
        return change

    @statement
    def resume(self, key: EndpointKey) -> bool:
        row = self.database.tokens.endpoints.get(EndpointKey(key.provider, key.health_key))
        backoffs, connections = self.database.tokens.backoffs, self.database.tokens.connections
        over = [
            which
            for which, backoff in backoffs.items()
            if backoff.retry_at > self.database.now
            and (connection := connections[which]).key.provider == key.provider
            and f"{key.health_key} ".startswith(f"{connection.client_id or '-'} ")
        ]
        for which in over:
            del backoffs[which]
        if row is None or (row.state == "closed" and row.secret_fingerprint is None and row.permits >= 0):
            return bool(over)
        row.permits = max(row.permits, 1.0)
        row.state, row.reason, row.failures, row.openings = "closed", None, 0, 0
        row.open_until = row.probe_until = row.secret_fingerprint = None
        row.failing, row.limited, row.refusing = (), (), ()
        row.changed_at = self.database.now
        return True

    @statement
    def backoff(self, connection_id: UUID, generation: int) -> Mapping[str, Json]:
        backoff = self._backoff(connection_id, generation)
        held_s = backoff and until_s(backoff.retry_at, self.database.now)
        return {"held_s": held_s, "held_for": backoff.reason} if backoff else {}

    def _backoff(self, connection_id: UUID, generation: int) -> BackoffRow | None:
        backoff = self.database.tokens.backoffs.get(connection_id)
        holds = (
            backoff is not None and backoff.generation == generation and backoff.retry_at > self.database.now
        )
        return backoff if holds else None

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

    @statement
    def prune(self, older_than_s: float) -> int:
        tables, before_at = self.database.tokens, self.database.now - seconds(older_than_s)
        rows = tables.endpoints.items()
        unused = [key for key, row in rows if max(row.refilled_at, row.changed_at) < before_at]
        over = [which for which, row in tables.backoffs.items() if row.retry_at < before_at]
        for key in unused:
            del tables.endpoints[key]
        for which in over:
            del tables.backoffs[which]
        return len(unused) + len(over)


def _agreed(failing: Sequence[str]) -> int:
    """How many connections agree; those whose request never left only where two processes say so."""
    parts = [word.partition(" ") for word in failing]
    if len({process for _, _, process in parts if process}) >= QUORUM:
        return len({connection for connection, _, _ in parts})
    return sum(not process for _, _, process in parts)


def _is_dirty(gates: Sequence[_Row]) -> bool:
    return any(g.closed or g.row.failures or g.row.limited or g.row.refusing for g in gates)


def _latest(*moments: datetime | None) -> datetime:
    return max(moment for moment in moments if moment is not None)
