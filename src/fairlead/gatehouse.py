"""The gate's rooms, wired: one place for the runtime, the benchmarks and the experiments."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from fairlead.adapters.local.gate import LocalGate
from fairlead.adapters.redis.gate import RedisGate
from fairlead.clock import Clock, Draw
from fairlead.engine.gate.admission import Admissions
from fairlead.engine.gate.guarded import GuardedGate
from fairlead.engine.gate.keeper import Keeper
from fairlead.engine.services.service import Service
from fairlead.events import Emit
from fairlead.ids import Ids
from fairlead.policy.gate.key import Keyspace
from fairlead.policy.gate.limit import MICRO
from fairlead.policy.gate.share import Share
from fairlead.secret import Secret

ALONE = Share(1, 0)


@dataclass(frozen=True, slots=True)
class GateSettings:
    """How one process uses the gate.

    *prefix* begins all keys. *new*: this installation never granted a slot. *lease_s*: the longest lease of
    a slot. *events*: how many events of a pool are kept; *spends*: of a bucket (default none).
    """

    prefix: str = "fairlead"
    new: bool = False
    lease_s: float = 30.0
    beat_s: float = 3.0
    events: int = 100
    spends: int = 0


class Gatehouse:
    """The gate of one process: its services must run while it is used."""

    def __init__(
        self,
        url: Secret,
        *,
        process: str,
        clock: Clock,
        draw: Draw,
        ids: Ids,
        emit: Emit,
        share: Callable[[], Share] = lambda: ALONE,
        settings: GateSettings = GateSettings(),
    ) -> None:
        """Connects nothing yet. ConfigInvalid where *url* is no URL."""

        def now_us() -> int:
            return round(clock.monotonic() * MICRO)

        self.redis = RedisGate(
            url,
            clock=clock,
            process=process,
            keys=Keyspace(settings.prefix),
            new=settings.new,
            lease_s=settings.lease_s,
            events=settings.events,
            spends=settings.spends,
        )
        self.gate = GuardedGate(
            self.redis,
            lambda: LocalGate(now_us, birth_us=now_us()),
            share=share,
            clock=clock,
            draw=draw,
            emit=emit,
        )
        self.keeper = Keeper(self.gate, clock=clock, draw=draw, emit=emit, beat_s=settings.beat_s)
        self.admissions = Admissions(self.gate, self.keeper, process=process, clock=clock, draw=draw, ids=ids)

    async def open(self) -> None:
        """Begin to listen for grants."""
        await self.keeper.listen()

    def services(self) -> list[Service]:
        """What must run beside: the renewals, and the look at whether Redis is there."""
        return [self.keeper.service(), self.gate.service()]

    async def close(self) -> None:
        """Once nothing is admitted any more: let the last endings through, and let go."""
        await self.keeper.drained()
        await self.redis.close()
