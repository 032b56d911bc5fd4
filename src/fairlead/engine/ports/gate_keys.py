"""Inspection and repair of the keys in the gate's store: kinds, memory, leases. Spec: G9, G12."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

UNKNOWN_KIND = "unknown"
"""The kind of a key that has our prefix and none of our forms (policy/limits/key.py)."""


@dataclass(frozen=True, slots=True)
class KindUse:
    """All keys of one kind.

    Attributes:
        size_bytes: Estimated from a sample. None: the server does not report it.
        no_ttl: Keys without an expiry; fairlead itself writes none.
    """

    kind: str
    keys: int
    size_bytes: int | None
    no_ttl: int


@dataclass(frozen=True, slots=True)
class StoredLease:
    """A lease of a slot, as the store has it.

    Attributes:
        key: The key of its pool's slots.
        process: The process that holds it; *tenant* and *job* are those of its call.
        until_us: When it ends, by the store's clock.
        ends_in_s: The same, from the time of the survey.
    """

    key: str
    holder: str
    lease_id: int
    process: str
    tenant: str
    job: str
    until_us: int
    ends_in_s: float


@dataclass(frozen=True, slots=True)
class KeySurvey:
    """A survey of this installation's keys.

    Attributes:
        keys_scanned: Keys of the whole server that were scanned, roughly.
        complete: False if the bound was reached, so that the counts are too low.
        max_bytes: The server's memory bound; 0: none.
        no_ttl: Keys without an expiry, at most 1,000.
        event_counts: Events by kind within the window of the survey. None: without a window.
    """

    kinds: tuple[KindUse, ...]
    keys_scanned: int
    complete: bool
    server_keys: int
    used_bytes: int
    max_bytes: int
    no_ttl: tuple[str, ...]
    leases: tuple[StoredLease, ...] = ()
    event_counts: Mapping[str, int] | None = None

    @property
    def keys(self) -> int:
        """The number of this installation's keys."""
        return sum(use.keys for use in self.kinds)

    @property
    def size_bytes(self) -> int | None:
        """The memory of these keys; None if the server does not report it."""
        sizes = [use.size_bytes for use in self.kinds]
        return None if None in sizes else sum(size for size in sizes if size is not None)


class GateKeys(Protocol):
    """The keys of one installation. Those of others are never touched."""

    async def survey(
        self, *, max_keys: int = 100_000, sample: int = 200, leases: bool = False, window_s: float = 0.0
    ) -> KeySurvey:
        """Scan the keys of the server.

        Args:
            max_keys: About how many keys to scan.
            sample: How many keys of each kind to measure.
            leases: Whether to read all leases, too.
            window_s: How far back to count events; 0: not at all.

        Raises:
            LimiterUnavailableError: The store is unavailable.
        """
        ...

    async def remove_leases(self, leases: Sequence[StoredLease]) -> list[StoredLease]:
        """Remove those of *leases* that were not renewed since the survey, and return those removed."""
        ...

    async def set_ttl(self, keys: Sequence[str], ttl_s: float) -> int:
        """Let those of *keys* without an expiry expire in *ttl_s* seconds; return how many."""
        ...

    async def clear(self) -> int:
        """Delete all keys of this installation; return how many."""
        ...
