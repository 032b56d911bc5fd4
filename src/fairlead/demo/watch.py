"""What the demo sees while it runs: the state of every connection, the queue, the issuer's ledger.

Everything comes from outside: from the database through the ports, and from the ledger file as it grows.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from fairlead.assembly.runtime import Runtime
from fairlead.demo.file_tail import IssuerTraffic
from fairlead.engine.ports import ConnectionKey, Credential, SessionView

Tell = Callable[[str], None]
RATE_OVER_S = 5.0


@dataclass(frozen=True, slots=True)
class ConnectionSample:
    """One look. *generations* counts refreshes since the start; *sessions* are the processes."""

    at_s: float
    states: Mapping[str, int]
    needs_reauth: frozenset[ConnectionKey]
    generations: int
    jobs: Mapping[str, int]
    dead_letters: Mapping[str, int]
    sessions: Sequence[SessionView]
    gates: Sequence[Mapping[str, Any]]


NOTHING = ConnectionSample(0.0, {}, frozenset(), 0, {}, {}, (), ())


@dataclass(slots=True)
class ConnectionWatch:
    """Looks, remembers, and tells what has changed. *samples* are the last few."""

    runtime: Runtime
    provider: IssuerTraffic
    tell: Tell
    samples: list[ConnectionSample] = field(default_factory=lambda: [NOTHING])
    _standing: dict[UUID, str] = field(default_factory=dict)
    _gates: dict[str, str] = field(default_factory=dict)

    @property
    def last(self) -> ConnectionSample:
        """The newest look."""
        return self.samples[-1]

    @property
    def refreshes_per_s(self) -> float:
        """Over the last seconds."""
        first, last = self.samples[0], self.samples[-1]
        length_s = last.at_s - first.at_s
        return (last.generations - first.generations) / length_s if first.at_s and length_s > 0 else 0.0

    async def look(self) -> ConnectionSample:
        """Look once, and tell what changed since the last time."""
        runtime = self.runtime
        found = await everyone(runtime)
        sample = ConnectionSample(
            at_s=time.monotonic(),
            states=Counter(each.state for each in found),
            needs_reauth=frozenset(each.connection.key for each in found if each.state == "needs_reauth"),
            generations=sum(each.generation - 1 for each in found),
            jobs=await runtime.jobs.counts(),
            dead_letters=await runtime.dead_letters.counts(),
            sessions=await runtime.sessions.search(),
            gates=await runtime.endpoints.search(),
        )
        self.samples = [
            *(old for old in self.samples if old.at_s >= sample.at_s - RATE_OVER_S),
            sample,
        ]
        self.provider.look()
        self._tell_changes(found, sample)
        return sample

    def _tell_changes(self, found: Sequence[Credential], sample: ConnectionSample) -> None:
        for each in found:
            identity, before = (
                each.connection.connection_id,
                self._standing.get(each.connection.connection_id),
            )
            self._standing[identity] = each.state
            if before is not None and before != each.state:
                self._tell_one(each, before)
        for gate in sample.gates:
            self._tell_gate(str(gate["provider"]), str(gate["client_id"]), gate)

    def _tell_one(self, each: Credential, before: str) -> None:
        key = each.connection.key
        name = f"{key.tenant} at {key.provider} ({key.account})"
        if each.state == "unknown":
            self.tell(f"{name}: a refresh was sent and its answer is lost; the old token is served")
        elif each.state == "needs_reauth":
            self.tell(f"{name}: needs its customer ({each.state_reason})")
        elif before == "unknown":
            self.tell(f"{name}: recovered, generation {each.generation}")

    def _tell_gate(self, provider: str, client_id: str, gate: Mapping[str, Any]) -> None:
        name, state = f"{provider} {client_id}", str(gate["state"])
        before = self._gates.get(name, "closed")
        self._gates[name] = state
        if before != state:
            words = "opens: no more requests for a while" if state == "open" else f"is {state}"
            self.tell(f"{provider}: the token endpoint's breaker {words}")


async def everyone(runtime: Runtime) -> list[Credential]:
    """Every connection as it stands."""
    return await runtime.credentials.search(tenant=None, provider=None, state=None, limit=10_000)
