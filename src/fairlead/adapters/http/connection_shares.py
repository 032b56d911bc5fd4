"""Divide the connections of this process among its tenants: the fewer are free, the fewer a tenant may use.

Without shares, one tenant with hanging calls would use up every connection to a host. A tenant may take one
more connection while it uses fewer than SHARE times the number that are free. A tenant alone gets four fifths
of all, two with hanging calls get four ninths each, and a further tenant always gets one. Spec: R50.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict, deque

SHARE = 4
TenantAtHost = tuple[object, str]
"""The host and the tenant of a connection that is in use or waited for."""


class ConnectionShares:
    """The connections of one process.

    Args:
        max_connections: The bound on all connections.
        max_per_host: The bound on connections to one host.
    """

    def __init__(self, max_connections: int, max_per_host: int) -> None:
        self._max_connections = max_connections
        self._max_per_host = max_per_host
        self._used = 0
        self._used_by_host: defaultdict[object, int] = defaultdict(int)
        self._used_by_tenant: defaultdict[TenantAtHost, int] = defaultdict(int)
        self._waiters: dict[TenantAtHost, deque[asyncio.Future[None]]] = {}
        self._queues: dict[object, dict[int, dict[TenantAtHost, None]]] = {}
        """The waiting tenants of each host, by the number of connections that they use, in order of arrival."""

    def try_acquire(self, key: TenantAtHost) -> bool:
        """Acquire a connection for *key* without waiting; return whether it was granted."""
        if key in self._waiters or not self._is_eligible(key):
            return False
        self._add(key, 1)
        return True

    async def acquire(self, key: TenantAtHost, timeout_s: float) -> bool:
        """Acquire a connection for *key* within *timeout_s* seconds; return whether it was granted."""
        if self.try_acquire(key):
            return True
        waiter = asyncio.get_running_loop().create_future()
        if key not in self._waiters:
            self._waiters[key] = deque()
            self._enqueue(key)
        self._waiters[key].append(waiter)
        try:
            await asyncio.wait((waiter,), timeout=max(0.0, timeout_s))
        except asyncio.CancelledError:
            if waiter.done():
                self.release(key)
            raise
        finally:
            if not waiter.done():
                self._remove_waiter(key, waiter)
        return waiter.done()

    def release(self, key: TenantAtHost) -> None:
        """Release a connection of *key* to the eligible waiting tenant that uses the fewest."""
        self._add(key, -1)
        while self._waiters and (tenant := self._next_tenant()) is not None:
            self._add(tenant, 1)
            waiter = self._waiters[tenant][0]
            waiter.set_result(None)
            self._remove_waiter(tenant, waiter)

    def _next_tenant(self) -> TenantAtHost | None:
        """Return the eligible waiting tenant that uses the fewest connections."""
        firsts = (next(iter(queue[min(queue)])) for queue in self._queues.values())
        return min(
            filter(self._is_eligible, firsts), key=lambda key: self._used_by_tenant.get(key, 0), default=None
        )

    def _is_eligible(self, key: TenantAtHost) -> bool:
        """Return whether *key* may use one more connection."""
        free_at_host = self._max_per_host - self._used_by_host.get(key[0], 0)
        used = self._used_by_tenant.get(key, 0)
        return used < SHARE * free_at_host and used < SHARE * (self._max_connections - self._used)

    def _enqueue(self, key: TenantAtHost) -> None:
        """Put the tenant into its host's queue of waiting tenants."""
        self._queues.setdefault(key[0], {}).setdefault(self._used_by_tenant.get(key, 0), {})[key] = None

    def _dequeue(self, key: TenantAtHost) -> None:
        """Take the tenant out of its host's queue. It must use as many connections as when it was put there."""
        queue, used = self._queues[key[0]], self._used_by_tenant.get(key, 0)
        del queue[used][key]
        if not queue[used]:
            del queue[used]
        if not queue:
            del self._queues[key[0]]

    def _add(self, key: TenantAtHost, change: int) -> None:
        """Add *change* connections to those in use by *key*, which may move it in its queue."""
        is_waiting = key in self._waiters
        if is_waiting:
            self._dequeue(key)
        self._used += change
        self._used_by_tenant[key] = used = self._used_by_tenant[key] + change
        if is_waiting:
            self._enqueue(key)
        if not used:
            del self._used_by_tenant[key]
        self._used_by_host[key[0]] = used_at_host = self._used_by_host[key[0]] + change
        if not used_at_host:
            del self._used_by_host[key[0]]

    def _remove_waiter(self, key: TenantAtHost, waiter: asyncio.Future[None]) -> None:
        """Remove a request that got a connection or gave up, and its tenant if none of it waits any more."""
        waiters = self._waiters[key]
        waiters.remove(waiter)
        if not waiters:
            self._dequeue(key)
            del self._waiters[key]
