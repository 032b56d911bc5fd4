"""Reads since when slots have been granted again after a data loss.

Leases that are longer than the pause after a loss need it. The pause ends at the time in the marker, see
include/clock.lua. A cluster has one marker per domain.

Spec: R23.
"""

from __future__ import annotations

from struct import Struct

from fairlead._core.secret import Secret
from fairlead.adapters.redis.admin_client import admin_clients
from fairlead.policy.limits.key import KeyKind, Keyspace
from fairlead.policy.limits.limit import MICRO, Domain

TIMEOUT_S = 0.8
_MARKER = Struct("<ddd")


class RedisDataLoss:
    """The DataLoss port on Redis. Each call opens a connection, because bulk operations are rare.

    Args:
        pinned_us: The time to use, for tests; 0: the server's clock.
    """

    def __init__(self, url: Secret, keys: Keyspace, *, pinned_us: int = 0) -> None:
        self._url = url
        self._keys = keys
        self.pinned_us = pinned_us

    async def granting_s(self, domain: Domain) -> float:
        """Return for how long slots of *domain* have been granted since the last loss, in seconds.

        Without a loss the result is decades.

        Raises:
            LimiterUnavailableError: The server does not respond.
        """
        async with admin_clients(self._url, timeout_s=TIMEOUT_S) as servers:
            marker = self._keys.key(KeyKind.MARKER, domain) if servers.in_cluster else self._keys.marker
            client = servers.client_for(marker)
            seconds, micros = await client.time()
            stored = await client.get(marker)
        if stored is None:
            return 0.0
        _, grants_from_us, _ = _MARKER.unpack_from(stored)
        now_us = self.pinned_us or seconds * MICRO + micros
        return max(0.0, float(now_us - grants_from_us) / MICRO)
