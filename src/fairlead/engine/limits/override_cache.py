"""What people switched by hand, known in this process without asking anybody (G6, G8, G12).

The table is small and read whole each second; a read that fails keeps what was read last, so that a switch
holds while the database is away.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence

from fairlead._core.clock import Clock, Draw
from fairlead.engine.base.service import Service
from fairlead.engine.ports import ConnectionKey
from fairlead.engine.ports.overrides import Override, OverrideStore
from fairlead.errors import LimitExceededError
from fairlead.events import Emit, GateBypassed
from fairlead.policy.limits.override import (
    Names,
    OverrideKind,
    rollout_position,
    rollout_share,
    scopes_covering,
)

LOOK_S = 1.0
"""Every process heeds a switch within 2 s."""
AGAIN_S = 30.0
"""When who is isolated is to ask again."""

ForceDegraded = Callable[[str | None], Awaitable[None]]
"""Told at each look why this process is to keep to its share; None: there is no such reason."""


class Overrides:
    """One per process. *stand_alone*: FailoverGate.stand_alone."""

    def __init__(
        self, store: OverrideStore, force_degraded: ForceDegraded, *, clock: Clock, emit: Emit
    ) -> None:
        self._store = store
        self._stand_alone = force_degraded
        self._clock = clock
        self._emit = emit
        self._read_s = 0.0
        self._known: dict[tuple[OverrideKind, Names], Override] = {}
        self._bypassed: Counter[str] = Counter()

    async def look(self) -> None:
        """Read what is switched, heed it, and tell how many calls went past their limits meanwhile."""
        bypassed, self._bypassed = self._bypassed, Counter()
        for provider, calls in sorted(bypassed.items()):
            self._emit(GateBypassed(provider, calls))
        began_s = self._clock.monotonic()
        self._apply(await self._store.search(), began_s)
        degraded = next(
            (switch for (act, _), switch in self._known.items() if act is OverrideKind.DEGRADED), None
        )
        await self._stand_alone(None if degraded is None else f"{degraded.reason} ({degraded.actor})")

    def _apply(self, found: Sequence[Override], read_s: float) -> None:
        self._known = {(switch.act, switch.reach.names): switch for switch in found}
        self._read_s = read_s

    def service(self, *, draw: Draw) -> Service:
        """The looks, as a background service."""
        return Service(
            "gate-switches", self.look, interval_s=LOOK_S, clock=self._clock, draw=draw, emit=self._emit
        )

    # ---- one call ------------------------------------------------------------------------------

    def check(self, key: ConnectionKey) -> None:
        """LimitExceededError where calls of *key* are stopped by hand."""
        if not self._known:
            return
        for switch in self._on(OverrideKind.ISOLATED, key):
            raise LimitExceededError(
                f"calls are stopped by hand: {switch.reason} ({switch.actor}, {switch.reach})",
                tenant=key.tenant,
                provider=key.provider,
                retry_after_s=AGAIN_S,
                reason="isolated",
                hint="`fairlead gate breaker reset` lets them through again",
            )

    def bypasses(self, key: ConnectionKey) -> bool:
        """Whether no limit is applied to a call of *key*; then it is counted."""
        if self.enforces(key):
            return False
        self._bypassed[key.provider] += 1
        return True

    def enforces(self, key: ConnectionKey) -> bool:
        """Whether limits are applied to a call of *key*, as far as nobody counts it."""
        return not self._known or all(
            self._is_back(switch, key) for switch in self._on(OverrideKind.DISABLED, key)
        )

    def _on(self, act: OverrideKind, key: ConnectionKey) -> Iterator[Override]:
        for names in scopes_covering(key.tenant, key.provider, key.account):
            if (switch := self._known.get((act, names))) is not None:
                yield switch

    def _is_back(self, switch: Override, key: ConnectionKey) -> bool:
        if switch.rollout is None:
            return False
        age_s = switch.rollout.age_s + self._clock.monotonic() - self._read_s
        return rollout_position(key.tenant, key.provider, key.account) < rollout_share(
            age_s, switch.rollout.step_s
        )
