"""Samples of the demo while it runs: connections, queue, and the issuer's ledger.

They come from the database through the ports, and from the ledger file as it grows.
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

Report = Callable[[str], None]
"""Prints one line."""
RATE_OVER_S = 5.0


@dataclass(frozen=True, slots=True)
class ConnectionSample:
    """One sample. *generations* counts refreshes since the start; *sessions* are the processes."""

    at_mono: float
    states: Mapping[str, int]
    needs_reauth: frozenset[ConnectionKey]
    generations: int
    jobs: Mapping[str, int]
    dead_letters: Mapping[str, int]
    sessions: Sequence[SessionView]
    endpoints: Sequence[Mapping[str, Any]]


EMPTY = ConnectionSample(0.0, {}, frozenset(), 0, {}, {}, (), ())


@dataclass(slots=True)
class ConnectionWatch:
    """A watcher that takes samples and reports changes; *samples* are those of the last seconds."""

    runtime: Runtime
    traffic: IssuerTraffic
    report: Report
    samples: list[ConnectionSample] = field(default_factory=lambda: [EMPTY])
    _states: dict[UUID, str] = field(default_factory=dict)
    _breakers: dict[str, str] = field(default_factory=dict)

    @property
    def last(self) -> ConnectionSample:
        """The newest sample."""
        return self.samples[-1]

    @property
    def refreshes_per_s(self) -> float:
        """Refreshes a second over the last seconds; 0 as long as the first sample is EMPTY."""
        first, last = self.samples[0], self.samples[-1]
        length_s = last.at_mono - first.at_mono
        return (last.generations - first.generations) / length_s if first.at_mono and length_s > 0 else 0.0

    async def sample(self) -> ConnectionSample:
        """Take a sample, and report the changes since the last one."""
        runtime = self.runtime
        credentials = await read_credentials(runtime)
        sample = ConnectionSample(
            at_mono=time.monotonic(),
            states=Counter(credential.state for credential in credentials),
            needs_reauth=frozenset(
                credential.connection.key for credential in credentials if credential.state == "needs_reauth"
            ),
            generations=sum(credential.generation - 1 for credential in credentials),
            jobs=await runtime.jobs.counts(),
            dead_letters=await runtime.dead_letters.counts(),
            sessions=await runtime.sessions.search(),
            endpoints=await runtime.endpoints.search(),
        )
        self.samples = [
            *(earlier for earlier in self.samples if earlier.at_mono >= sample.at_mono - RATE_OVER_S),
            sample,
        ]
        self.traffic.update()
        self._report_changes(credentials, sample)
        return sample

    def _report_changes(self, credentials: Sequence[Credential], sample: ConnectionSample) -> None:
        for credential in credentials:
            connection_id = credential.connection.connection_id
            previous = self._states.get(connection_id)
            self._states[connection_id] = credential.state
            if previous is not None and previous != credential.state:
                self._report_state(credential, previous)
        for endpoint in sample.endpoints:
            self._report_breaker(
                str(endpoint["provider"]), str(endpoint["client_id"]), str(endpoint["state"])
            )

    def _report_state(self, credential: Credential, previous: str) -> None:
        key = credential.connection.key
        name = f"{key.tenant} at {key.provider} ({key.account})"
        if credential.state == "unknown":
            self.report(f"{name}: a refresh was sent and its response is lost; the old token is served")
        elif credential.state == "needs_reauth":
            self.report(f"{name}: needs its customer ({credential.state_reason})")
        elif previous == "unknown":
            self.report(f"{name}: recovered, generation {credential.generation}")

    def _report_breaker(self, provider: str, client_id: str, state: str) -> None:
        name = f"{provider} {client_id}"
        previous = self._breakers.get(name, "closed")
        self._breakers[name] = state
        if previous != state:
            words = "opens: no more requests for a while" if state == "open" else f"is {state}"
            self.report(f"{provider}: the token endpoint's breaker {words}")


async def read_credentials(runtime: Runtime) -> list[Credential]:
    """Return the credentials of every connection."""
    return await runtime.credentials.search(tenant=None, provider=None, state=None, limit=10_000)
