"""The way into the gate of one process, by connection, on a clock of the test's own."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, cast
from uuid import UUID

from fairlead.adapters.local.local_gate import LocalGate
from fairlead.engine.jobs.executor import Executor
from fairlead.engine.jobs.group_holds import Pauses
from fairlead.engine.jobs.handler import Handler, JobContext
from fairlead.engine.limits.admission import CallRequest
from fairlead.engine.limits.admitter import Admitter
from fairlead.engine.limits.call_admitter import CallAdmitter
from fairlead.engine.limits.learned_limits import LearnedLimitsWriter
from fairlead.engine.limits.lease_renewer import LeaseRenewer
from fairlead.engine.limits.limit_plans import Plans
from fairlead.engine.limits.override_cache import Overrides
from fairlead.engine.ports import Connection, ConnectionKey, GateNotes, OverrideStore
from fairlead.policy.limits.limit import MICRO
from fairlead.policy.providers.profile_load import load_profiles
from fairlead.testing._kit.clock import ManualClock
from tests.support.engine import IDS, Recorder, half

PROFILES = load_profiles([])
BEAT_S = 10.0
_NOBODY_LOOKS = cast(OverrideStore, None)
_NOBODY_READS = cast(GateNotes, None)


async def _stand_alone(why: str | None) -> None:
    raise AssertionError


@dataclass
class ConnectionUnderTest:
    """One connection of *provider*, with *settings*, and what calls it."""

    provider: str = "stripe"
    settings: dict[str, Any] = field(default_factory=dict)
    clock: ManualClock = field(default_factory=lambda: ManualClock(start=1_000_000.0))
    told: Recorder = field(default_factory=Recorder)

    def __post_init__(self) -> None:
        self.key = ConnectionKey("acme", self.provider)
        clock = self.clock
        gate = LocalGate(lambda: round(clock.monotonic() * MICRO))
        self.renewer = LeaseRenewer(gate, clock=clock, draw=half, emit=self.told)
        admitter = Admitter(gate, self.renewer, process="p1", clock=clock, draw=half, ids=IDS, emit=self.told)
        plans = Plans(lambda provider, variant: PROFILES[provider])
        self.call_admitter = CallAdmitter(
            self._read,
            plans,
            admitter,
            Overrides(_NOBODY_LOOKS, _stand_alone, clock=clock, emit=self.told),
            LearnedLimitsWriter(_NOBODY_READS, clock=clock),
            ready=self._ready,
            clock=clock,
            draw=half,
            emit=self.told,
        )
        self._listening = False

    async def _ready(self) -> None:
        if not self._listening:
            self._listening = True
            await self.renewer.listen()

    async def _read(self, key: ConnectionKey) -> Connection:
        number = int.from_bytes(key.tenant.encode()[:8])
        return Connection(UUID(int=number), key, None, f"{key.tenant}-1", "client", {}, self.settings)

    def wish(self, **fields: Any) -> CallRequest:
        """Return a request for a call of the connection."""
        return CallRequest(self.key, **fields)

    async def call(self, until: asyncio.Event | None = None, **fields: Any) -> None:
        """Make a call that lasts until *until*, or ends at once."""
        async with self.call_admitter.enter(self.wish(**fields)):
            if until is not None:
                await until.wait()

    def executor(self, work: Callable[[JobContext], Awaitable[object]], pauses: Pauses) -> Executor:
        """Return an executor for jobs of kind ``work`` on the same clock."""
        handler = Handler("work", work)
        return Executor([handler], clock=self.clock, draw=half, ids=IDS, emit=self.told, pauses=pauses)

    async def pass_time(self, delay_s: float) -> None:
        """Advance the clock while slots are renewed."""
        while delay_s > 0:
            await self.clock.advance(min(delay_s, BEAT_S))
            await self.renewer.beat()
            delay_s -= BEAT_S


async def settled(done: Callable[[], bool] = lambda: False) -> None:
    """Let every task go as far as it can."""
    for _ in range(200):
        if done():
            return
        await asyncio.sleep(0)


def started_task(work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
    """Start *work* as a task and return it."""
    return asyncio.create_task(work)
