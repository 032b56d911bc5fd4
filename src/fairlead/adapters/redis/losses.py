"""When a server last lost what it knew, for leases that are longer than it waits after that (R23).

See include/clock.lua for the marker: slots are granted again from the time on that stands there. A cluster
has one for each domain.
"""

from __future__ import annotations

from struct import Struct
from typing import Any

from redis.asyncio import Redis
from redis.asyncio.cluster import RedisCluster
from redis.exceptions import RedisError

from fairlead.adapters.redis.link import unavailable
from fairlead.policy.gate.key import KeyKind, Keyspace
from fairlead.policy.gate.limit import MICRO, Domain
from fairlead.secret import Secret

TIMEOUT_S = 0.8
_TIMES: Any = {"socket_timeout": TIMEOUT_S, "socket_connect_timeout": TIMEOUT_S}
_MARKER = Struct("<ddd")


class RedisLosses:
    """One look at a time, on a connection of its own: bulk operations are rare. *pinned_us*: for tests."""

    def __init__(self, url: Secret, keys: Keyspace, *, pinned_us: int = 0) -> None:
        self._url = url
        self._keys = keys
        self.pinned_us = pinned_us

    async def granting_s(self, domain: Domain) -> float:
        """For how long slots of *domain* have been granted since the last loss; decades where there was none.

        Raises GateUnavailable.
        """
        client: Any = Redis.from_url(self._url.reveal(), protocol=2, **_TIMES)
        try:
            seconds, micros = await client.time()
            server = await client.info("server")
            if "cluster" in (server.get("server_mode"), server.get("redis_mode")):
                kept = await self._kept_in_cluster(domain)
            else:
                kept = await client.get(self._keys.marker)
        except (RedisError, OSError, TimeoutError) as error:
            raise unavailable(error) from None
        finally:
            await client.aclose()
        if kept is None:
            return 0.0
        _, grants_from_us, _ = _MARKER.unpack_from(kept)
        now_us = self.pinned_us or seconds * MICRO + micros
        return max(0.0, float(now_us - grants_from_us) / MICRO)

    async def _kept_in_cluster(self, domain: Domain) -> Any:
        client: Any = RedisCluster.from_url(self._url.reveal(), **_TIMES)
        try:
            return await client.get(self._keys.key(KeyKind.MARKER, domain))
        finally:
            await client.aclose()
