"""The gate's overrides, cached in this process. Spec: G6, G8, G12.

The table is small and read whole every second. After a failed read the last one stays valid, so that an
override holds while the database is unavailable.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence

from fairlead._core.clock import Clock, Draw
from fairlead.engine.base.service import Service
from fairlead.engine.ports import ConnectionKey, Override, OverrideStore
from fairlead.errors import LimitExceededError
from fairlead.events import Emit, GateBypassed
from fairlead.policy.limits.override import (
    Names,
    OverrideKind,
    rollout_position,
    rollout_share,
    scopes_covering,
)
from fairlead.policy.reasons.limit_reasons import ISOLATED

REFRESH_INTERVAL_S = 1.0
"""Every process applies an override within 2 s."""
RETRY_AFTER_S = 30.0
"""When a call that an override stops may be tried again."""

ForceDegraded = Callable[[str | None], Awaitable[None]]
"""Called at each read with the reason why this process must keep to its share; None: there is none."""


class Overrides:
    """The overrides in force. *force_degraded* is FailoverGate.force_degraded."""

    def __init__(
        self, store: OverrideStore, force_degraded: ForceDegraded, *, clock: Clock, emit: Emit
    ) -> None:
        self._store = store
        self._force_degraded = force_degraded
        self._clock = clock
        self._emit = emit
        self._read_mono = 0.0
        self._in_force: dict[tuple[OverrideKind, Names], Override] = {}
        self._bypassed: Counter[str] = Counter()

    async def refresh(self) -> None:
        """Read the overrides again, and report how many calls bypassed their limits since the last read."""
        bypassed, self._bypassed = self._bypassed, Counter()
        for provider, calls in sorted(bypassed.items()):
            self._emit(GateBypassed(provider, calls))
        began_mono = self._clock.monotonic()
        self._apply(await self._store.search(), began_mono)
        degraded = next(
            (override for (kind, _), override in self._in_force.items() if kind is OverrideKind.DEGRADED),
            None,
        )
        await self._force_degraded(None if degraded is None else f"{degraded.reason} ({degraded.actor})")

    def _apply(self, overrides: Sequence[Override], read_mono: float) -> None:
        self._in_force = {(override.kind, override.scope.names): override for override in overrides}
        self._read_mono = read_mono

    def service(self, *, draw: Draw) -> Service:
        """Return the reads as a background service."""
        return Service(
            "gate-overrides",
            self.refresh,
            interval_s=REFRESH_INTERVAL_S,
            clock=self._clock,
            draw=draw,
            emit=self._emit,
        )

    # ---- one call ------------------------------------------------------------------------------

    def check(self, key: ConnectionKey) -> None:
        """Raise LimitExceededError if an override stops the calls of *key*."""
        if not self._in_force:
            return
        for override in self._covering(OverrideKind.ISOLATED, key):
            raise LimitExceededError(
                f"calls are stopped by hand: {override.reason} ({override.actor}, {override.scope})",
                tenant=key.tenant,
                provider=key.provider,
                retry_after_s=RETRY_AFTER_S,
                reason=ISOLATED.code,
                hint="`fairlead gate breaker reset` lets them through again",
            )

    def bypasses(self, key: ConnectionKey) -> bool:
        """Return whether a call of *key* bypasses its limits; if so, count it."""
        if self.enforces(key):
            return False
        self._bypassed[key.provider] += 1
        return True

    def enforces(self, key: ConnectionKey) -> bool:
        """Return whether limits apply to calls of *key*, without counting."""
        return not self._in_force or all(
            self._is_restored(override, key) for override in self._covering(OverrideKind.DISABLED, key)
        )

    def _covering(self, kind: OverrideKind, key: ConnectionKey) -> Iterator[Override]:
        """Yield the overrides of *kind* that apply to calls of *key*."""
        for names in scopes_covering(key.tenant, key.provider, key.account):
            if (override := self._in_force.get((kind, names))) is not None:
                yield override

    def _is_restored(self, override: Override, key: ConnectionKey) -> bool:
        """Return whether a rollout has restored the limits of *key* already."""
        if override.rollout is None:
            return False
        age_s = override.rollout.age_s + self._clock.monotonic() - self._read_mono
        return rollout_position(key.tenant, key.provider, key.account) < rollout_share(
            age_s, override.rollout.step_s
        )
