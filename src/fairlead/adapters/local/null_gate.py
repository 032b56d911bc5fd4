"""In the place of a store that nobody set up: it never answers, so each process keeps to its share."""

from __future__ import annotations

from collections.abc import Sequence

from fairlead.engine.ports.gate import (
    AdmitRequest,
    AdmitResult,
    Lease,
    OnReleased,
    Release,
    Released,
    Renewal,
    Wake,
)
from fairlead.errors import LimiterUnavailableError


class NullFleetGate:
    """See fairlead.engine.ports.gate.FleetGate."""

    async def admit(self, ask: AdmitRequest) -> AdmitResult:
        """Raises LimiterUnavailableError."""
        raise _absent()

    async def release(self, release: Release) -> Released:
        """Raises LimiterUnavailableError."""
        raise _absent()

    def release_soon(self, release: Release, told: OnReleased) -> None:
        """It has ended without anybody to tell."""
        told(_absent())

    async def cancel(self, ask: AdmitRequest) -> None:
        """Raises LimiterUnavailableError."""
        raise _absent()

    async def renew(self, renewals: Sequence[Renewal]) -> list[Lease]:
        """Raises LimiterUnavailableError."""
        raise _absent()

    async def listen(self, wake: Wake) -> None:
        """Nobody will ever be told of anything."""

    async def ping(self) -> None:
        """Raises LimiterUnavailableError."""
        raise _absent()

    def abandon(self, error: LimiterUnavailableError) -> None:
        """Nobody waits."""

    @property
    def is_settled(self) -> bool:
        """Nothing was sent."""
        return True

    async def close(self) -> None:
        """There is nothing to close."""


def _absent() -> LimiterUnavailableError:
    return LimiterUnavailableError(
        "no Redis is set, so the processes do not count calls together", hint="set REDIS_URL"
    )
