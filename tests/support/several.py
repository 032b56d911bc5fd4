"""Several processes with one store of limits, which can be taken away from all of them or from one."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count

from fairlead.adapters.local.gate import LocalGate
from fairlead.engine.gate.guarded import GuardedGate
from fairlead.engine.ports.gate import (
    Admitted,
    Answer,
    Ask,
    Ended,
    Finish,
    Finished,
    Lease,
    Renewal,
    Wake,
)
from fairlead.errors import GateUnavailable
from fairlead.events import Event
from fairlead.policy.gate.limit import MICRO, Plan
from fairlead.policy.gate.pool import Holder
from fairlead.policy.gate.share import Share
from fairlead.testing.clock import ManualClock

lease_ids = count(1)


class Store:
    """The fleet's gate, which can be taken away: from all, or from one of its users."""

    def __init__(self, clock: ManualClock) -> None:
        self.gate = LocalGate(lambda: round(clock.monotonic() * MICRO))
        self.clock = clock
        self.away = False


class Way:
    """One process's way to the store."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.cut = False
        self.answers_in_s = 0.0
        self.abandoned = 0

    def _check(self) -> LocalGate:
        if self.cut or self.store.away:
            raise GateUnavailable("Redis is not there")
        return self.store.gate

    async def admit(self, ask: Ask) -> Answer:
        return await self._check().admit(ask)

    async def finish(self, finish: Finish) -> Finished:
        return await self._check().finish(finish)

    def end(self, finish: Finish, told: Ended) -> None:
        try:
            gate = self._check()
        except GateUnavailable as error:
            told(error)
        else:
            gate.end(finish, told)

    async def cancel(self, ask: Ask) -> None:
        await self._check().cancel(ask)

    async def renew(self, renewals: Sequence[Renewal]) -> list[Lease]:
        return await self._check().renew(renewals)

    async def listen(self, wake: Wake) -> None:
        return None

    async def ping(self) -> None:
        self._check()
        if self.answers_in_s:
            await self.store.clock.sleep(self.answers_in_s)

    def abandon(self, error: GateUnavailable) -> None:
        self.abandoned += 1


class Process:
    """One of several processes."""

    def __init__(self, store: Store, rank: int, of: int, *, storeless: bool = False) -> None:
        clock = store.clock
        self.way = Way(store)
        self.events: list[Event] = []

        def alone() -> LocalGate:
            return LocalGate(
                lambda: round(clock.monotonic() * MICRO), birth_us=round(clock.monotonic() * MICRO)
            )

        self.gate = GuardedGate(
            self.way,
            alone,
            share=lambda: Share(of, rank),
            clock=clock,
            draw=lambda: 0.5,
            emit=self.events.append,
            storeless=storeless,
        )

    async def take(self, plan: Plan, *costs: float) -> Answer:
        holder = Holder(next(lease_ids), "p") if plan.leases else None
        return await self.gate.admit(Ask(plan, costs, holder))

    async def take_all(self, plan: Plan) -> list[Admitted]:
        taken = []
        while isinstance(answer := await self.take(plan), Admitted):
            taken.append(answer)
        return taken
