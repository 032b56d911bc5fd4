"""Rate, breaker and pause of token endpoints in memory; see ``fairlead.engine.ports.EndpointGate``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from fairlead.engine.ports import (
    EndpointAsk,
    EndpointChange,
    EndpointKey,
    EndpointPermit,
    EndpointRefusal,
    Json,
)
from fairlead.engine.ports.sending import endpoint_answer
from fairlead.policy.blast_radius import NEVER_SENT, QUORUM, Reach, Shared
from fairlead.testing.memory.database import MemoryStore, seconds, statement
from fairlead.testing.memory.token_rows import BackoffRow, EndpointRow, until_s

_MOST_DOUBLINGS = 20
_MOST_FAILING = 10_000


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
    def admit(self, ask: EndpointAsk) -> EndpointPermit | EndpointRefusal:
        now, limits = self.database.now, ask.limits
        bucket = self._made(ask, ask.key.bucket)
        gates = self._gates(ask)
        backoff = self.database.tokens.backoffs.get(ask.connection_id)
        held = backoff is not None and backoff.generation == ask.generation and backoff.retry_at > now
        closed = [gate for gate in gates if gate.closed]
        shut = any(_latest(gate.row.open_until, gate.row.probe_until, now) > now for gate in closed)
        level = min(limits.burst, self._refilled(bucket, limits.per_s or 0.0))
        granted = not held and not shut and bool(closed or limits.per_s is None or level >= 1)
        dirty = _is_dirty(gates)
        reason = next((gate.row.reason for gate in closed if gate.row.reason), None)
        row = {
            "held_s": until_s(backoff.retry_at, now) if backoff and held else None,
            "reason": backoff.reason if backoff and held else reason,
            "turn": 0,
            "granted": granted,
            "probe": bool(closed),
            "dirty": dirty,
            "guard": "pause" if any(g.halted for g in closed) else "breaker" if closed else "rate",
            "retry_after_s": self._shut_s(closed, limits.probe_s),
            "level": level,
        }
        if limits.per_s is not None:
            bucket.permits = level - granted
        for gate in gates:
            if gate.row is bucket or gate.row.state != "closed" or dirty:
                was_set_back = gate.row.refilled_at > now + seconds(60.0)
                gate.row.refilled_at = now if was_set_back else max(gate.row.refilled_at, now)
            if gate.closed and not shut and not held:
                gate.row.probe_until = now + seconds(limits.probe_s)
            if gate.row.state == "paused" and not gate.halted and ask.secret_fingerprint is not None:
                gate.row.state = "closed"
        return endpoint_answer(row, limits)

    def _made(self, ask: EndpointAsk, name: str) -> EndpointRow:
        now = self.database.now
        row = EndpointRow(now, now, permits=ask.limits.burst)
        return self.database.tokens.endpoints.setdefault(EndpointKey(ask.key.provider, name), row)

    def _gates(self, ask: EndpointAsk) -> list[_Row]:
        rows, key = self.database.tokens.endpoints, ask.key
        found = [
            rows.get(EndpointKey(key.provider, n)) for n in sorted({key.client_id, key.place, key.bucket})
        ]
        secret = ask.secret_fingerprint
        return [_Row(r, secret is not None and r.secret_fingerprint == secret) for r in found if r]

    def _shut_s(self, closed: Sequence[_Row], probe_s: float) -> float | None:
        now = self.database.now
        soon = now + seconds(probe_s / 10)  # a probe answers long before its time is up
        probes = [gate.row.probe_until for gate in closed]
        moments = [gate.row.open_until for gate in closed]
        moments += [min(probe_until, soon) for probe_until in probes if probe_until and probe_until > now]
        return until_s(_latest(*moments, now), now)

    @statement
    def record(
        self, ask: EndpointAsk, permit: EndpointPermit, reach: Reach, reason: str, hint_s: float = 0.0
    ) -> EndpointChange | None:
        if reach.backs_off:
            self._back_off(ask, reason, hint_s)
        if Shared.HOST in reach.lifts and (permit.dirty or permit.probe):
            for gate in self._gates(ask):
                self._heal(ask, gate, granted=Shared.APP in reach.lifts)
        match reach.shared:
            case Shared.HOST:
                return self._fail(ask, reason, probe=permit.probe)
            case Shared.RATE:
                self._penalise(ask, hint_s)
            case Shared.APP if ask.secret_fingerprint is not None:
                return self._refuse(ask, ask.secret_fingerprint, reason)
            case _ if reach == NEVER_SENT:
                bucket = self.database.tokens.endpoints.get(EndpointKey(ask.key.provider, ask.key.bucket))
                for gate in self._gates(ask):
                    gate.row.permits += gate.row is bucket
                    gate.row.probe_until = None if permit.probe else gate.row.probe_until
        return None

    def _back_off(self, ask: EndpointAsk, reason: str, hint_s: float) -> None:
        backoffs, now = self.database.tokens.backoffs, self.database.now
        if ask.connection_id not in self.database.tokens.connections:
            return
        known = backoffs.get(ask.connection_id)
        if known is not None and known.generation > ask.generation:
            return
        failures = known.failures if known is not None and known.generation == ask.generation else 0
        wait_s = min(ask.limits.open_s, ask.limits.backoff_s * 2 ** min(failures, _MOST_DOUBLINGS))
        retry_at = now + seconds(max(wait_s, hint_s))
        backoffs[ask.connection_id] = BackoffRow(ask.generation, failures + 1, retry_at, reason)

    def _heal(self, ask: EndpointAsk, gate: _Row, *, granted: bool) -> None:
        row, lifts = gate.row, granted and gate.halted
        if row.state == "open" or lifts:
            row.changed_at = self.database.now
            row.state = "closed"
        if lifts:
            row.secret_fingerprint = None
        if row.secret_fingerprint is None:
            row.open_until = None
        row.failures, row.openings, row.failing, row.probe_until = 0, 0, (), None
        row.limited = () if granted else row.limited
        row.refusing = () if granted and ask.secret_fingerprint is not None else row.refusing

    def _fail(self, ask: EndpointAsk, reason: str, *, probe: bool) -> EndpointChange | None:
        row, now, limits = self._made(ask, ask.key.place), self.database.now, ask.limits
        known = ask.connection_id in row.failing or row.failures >= _MOST_FAILING
        counts = not known and (probe or row.state == "closed")
        if counts:
            row.failing, row.failures = (*row.failing, ask.connection_id), row.failures + 1
        row.reason, row.changed_at = reason, now
        if probe:
            row.probe_until = None
        enough = row.failures >= max(QUORUM, limits.breaker_failures)
        if not (row.state == "open" and probe and counts) and not (row.state == "closed" and enough):
            return None
        open_s = min(limits.open_s * 2 ** min(row.openings, _MOST_DOUBLINGS), limits.open_max_s)
        row.state, row.openings, row.open_until = "open", row.openings + 1, now + seconds(open_s)
        return EndpointChange(ask.key.place, "open", until_s(row.open_until, now) or 0.0)

    def _penalise(self, ask: EndpointAsk, hint_s: float) -> None:
        row = self.database.tokens.endpoints.get(EndpointKey(ask.key.provider, ask.key.bucket))
        per_s = ask.limits.per_s
        if row is None or per_s is None:
            return
        if set(row.limited) - {ask.connection_id}:
            row.permits = min(self._refilled(row, per_s), -(hint_s * per_s))
            row.refilled_at = max(row.refilled_at, self.database.now)
        if ask.connection_id not in row.limited and len(row.limited) < QUORUM:
            row.limited = (*row.limited, ask.connection_id)

    def _refilled(self, row: EndpointRow, per_s: float) -> float:
        return row.permits + max(0.0, (self.database.now - row.refilled_at).total_seconds()) * per_s

    def _refuse(self, ask: EndpointAsk, secret: str, reason: str) -> EndpointChange | None:
        now, key, found = self.database.now, ask.key, list[EndpointChange]()
        look_s = ask.limits.open_max_s
        for name in sorted({key.client_id, key.place}, key=len):
            row = self._made(ask, name)
            word = f"{secret} {ask.connection_id if name == key.place else key.host}"
            same = [said for said in row.refusing if said.startswith(f"{secret} ") and said != word]
            row.refusing = (*same, word)[:QUORUM]
            halted = row.secret_fingerprint == secret
            if not halted and len(row.refusing) < QUORUM:
                continue
            row.state, row.reason, row.secret_fingerprint = "paused", reason, secret
            row.open_until, row.probe_until = now + seconds(look_s), None
            row.changed_at = row.changed_at if halted else now
            found.append(EndpointChange(name, "paused", look_s, not halted))
        return found[0] if found else None

    @statement
    def resume(self, key: EndpointKey) -> bool:
        row = self.database.tokens.endpoints.get(EndpointKey(key.provider, key.place))
        if row is None or (row.state == "closed" and row.secret_fingerprint is None):
            return False
        row.state, row.reason, row.failures, row.openings = "closed", None, 0, 0
        row.open_until = row.probe_until = row.secret_fingerprint = None
        row.failing, row.limited, row.refusing = (), (), ()
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

    @statement
    def prune(self, older_than_s: float) -> int:
        tables, before = self.database.tokens, self.database.now - seconds(older_than_s)
        rows = tables.endpoints.items()
        unused = [key for key, row in rows if max(row.refilled_at, row.changed_at) < before]
        over = [which for which, row in tables.backoffs.items() if row.retry_at < before]
        for key in unused:
            del tables.endpoints[key]
        for which in over:
            del tables.backoffs[which]
        return len(unused) + len(over)


def _is_dirty(gates: Sequence[_Row]) -> bool:
    return any(g.closed or g.row.failures or g.row.limited or g.row.refusing for g in gates)


def _latest(*moments: datetime | None) -> datetime:
    return max(moment for moment in moments if moment is not None)
