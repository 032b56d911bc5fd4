"""When a server last lost what it knew, for leases that are longer than it waits after that (R23).

See include/clock.lua for the marker: slots are granted again from the time on that stands there. A cluster
has one for each domain.
"""

from __future__ import annotations

from struct import Struct

from fairlead._core.secret import Secret
from fairlead.adapters.redis.admin_client import asking
from fairlead.policy.limits.key import KeyKind, Keyspace
from fairlead.policy.limits.limit import MICRO, Domain

TIMEOUT_S = 0.8
_MARKER = Struct("<ddd")


class RedisDataLoss:
    """One look at a time, on a connection of its own: bulk operations are rare. *pinned_us*: for tests."""

    def __init__(self, url: Secret, keys: Keyspace, *, pinned_us: int = 0) -> None:
        self._url = url
        self._keys = keys
        self.pinned_us = pinned_us

    async def granting_s(self, domain: Domain) -> float:
        """For how long slots of *domain* have been granted since the last loss; decades where there was none.

        Raises LimiterUnavailableError.
        """
        async with asking(self._url, timeout_s=TIMEOUT_S) as servers:
            marker = self._keys.key(KeyKind.MARKER, domain) if servers.in_cluster else self._keys.marker
            client = servers.of(marker)
            seconds, micros = await client.time()
            kept = await client.get(marker)
        if kept is None:
            return 0.0
        _, grants_from_us, _ = _MARKER.unpack_from(kept)
        now_us = self.pinned_us or seconds * MICRO + micros
        return max(0.0, float(now_us - grants_from_us) / MICRO)
