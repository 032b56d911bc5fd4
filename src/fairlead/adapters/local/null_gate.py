"""The gate without Redis: it is always unavailable, so each process keeps to its share of the limits."""

from __future__ import annotations

from collections.abc import Sequence

from fairlead.engine.ports import (
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
    """A FleetGate that is never available."""

    async def admit(self, request: AdmitRequest) -> AdmitResult:
        """Raise LimiterUnavailableError."""
        raise _absent()

    async def release(self, release: Release) -> Released:
        """Raise LimiterUnavailableError."""
        raise _absent()

    def release_soon(self, release: Release, on_released: OnReleased) -> None:
        """Report that no store took the release."""
        on_released(_absent())

    async def cancel(self, request: AdmitRequest) -> None:
        """Raise LimiterUnavailableError."""
        raise _absent()

    async def renew(self, renewals: Sequence[Renewal]) -> list[Lease]:
        """Raise LimiterUnavailableError."""
        raise _absent()

    async def listen(self, wake: Wake) -> None:
        """Subscribe to nothing."""

    async def ping(self) -> None:
        """Raise LimiterUnavailableError."""
        raise _absent()

    def abandon(self, error: LimiterUnavailableError) -> None:
        """Do nothing: no request waits."""

    @property
    def is_settled(self) -> bool:
        """Whether nothing is under way: always."""
        return True

    async def close(self) -> None:
        """Close nothing."""


def _absent() -> LimiterUnavailableError:
    return LimiterUnavailableError(
        "no Redis is set, so the processes do not count calls together", hint="set REDIS_URL"
    )
