"""What the gate keeps in its store, for those who look after it: kinds of keys, memory, leases (G9, G12)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

UNKNOWN = "unknown"
"""The kind of a key that has our prefix and is none of ours (policy/limits/key.py)."""


@dataclass(frozen=True, slots=True)
class KindUse:
    """All keys of one kind. *size_bytes* is computed from a sample; None where the server does not tell."""

    kind: str
    keys: int
    size_bytes: int | None
    no_ttl: int
    """Keys that would stay for ever; 0 for all that we write."""


@dataclass(frozen=True, slots=True)
class StoredLease:
    """A lease in the store. *until_us*: its end by the store's clock; *ends_in_s*: from the look on."""

    key: str
    """Of the slots of its pool."""
    holder: str
    lease_id: int
    process: str
    tenant: str
    job: str
    until_us: int
    ends_in_s: float


@dataclass(frozen=True, slots=True)
class KeySurvey:
    """One look at every key of ours, as far as it went."""

    kinds: tuple[KindUse, ...]
    looked_at: int
    """Keys of the whole server that were passed, roughly."""
    complete: bool
    """False: the bound was reached, and the counts are of a part."""
    server_keys: int
    used_bytes: int
    max_bytes: int
    """0: no bound."""
    no_ttl: tuple[str, ...]
    """Keys without a time to live, at most a thousand of them."""
    leases: tuple[StoredLease, ...] = ()
    happened: Mapping[str, int] | None = None
    """How often each kind of event stands in the logs of the last *since_s*; None where it was not asked."""

    @property
    def keys(self) -> int:
        """How many are ours."""
        return sum(use.keys for use in self.kinds)

    @property
    def size_bytes(self) -> int | None:
        """What they take; None where the server does not tell."""
        sizes = [use.size_bytes for use in self.kinds]
        return None if None in sizes else sum(size for size in sizes if size is not None)


class GateKeys(Protocol):
    """The keys of one installation. Those of others are passed by, and never touched."""

    async def survey(
        self, *, most: int = 100_000, weighed: int = 200, leases: bool = False, since_s: float = 0.0
    ) -> KeySurvey:
        """Look at about *most* keys of the server, and weigh *weighed* of each kind.

        *leases*: read every lease, too; *since_s*: count the events of so long. LimiterUnavailableError.
        """
        ...

    async def give_back(self, leases: Sequence[StoredLease]) -> list[StoredLease]:
        """Take these out, but for those that were renewed or ended since they were seen; those taken out."""
        ...

    async def give_ttl(self, keys: Sequence[str], ttl_s: float) -> int:
        """Have keys that have no end of their life end in *ttl_s*; how many were given it."""
        ...

    async def clear(self) -> int:
        """Delete every key of ours; how many."""
        ...
