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
        most: The bound on all connections.
        most_per_host: The bound on connections to one host.
    """

    def __init__(self, most: int, most_per_host: int) -> None:
        self._most = most
        self._most_per_host = most_per_host
        self._used = 0
        self._of_host: defaultdict[object, int] = defaultdict(int)
        self._counts: defaultdict[TenantAtHost, int] = defaultdict(int)
        self._waiting: dict[TenantAtHost, deque[asyncio.Future[None]]] = {}
        self._lines: dict[
            object, dict[int, dict[TenantAtHost, None]]
        ] = {}  # by host and number of connections in use

    def take_at_once(self, key: TenantAtHost) -> bool:
        """Return whether *key* was free and is now taken by the caller, which must give it back."""
        if key in self._waiting or not self._is_free(key):
            return False
        self._count(key, 1)
        return True

    async def take(self, key: TenantAtHost, at_most_s: float) -> bool:
        """Wait up to *at_most_s* seconds for *key*; return whether the caller has taken it."""
        if self.take_at_once(key):
            return True
        turn = asyncio.get_running_loop().create_future()
        if key not in self._waiting:
            self._waiting[key] = deque()
            self._line_up(key)
        self._waiting[key].append(turn)
        try:
            await asyncio.wait((turn,), timeout=max(0.0, at_most_s))
        except asyncio.CancelledError:
            if turn.done():
                self.give_back(key)
            raise
        finally:
            if not turn.done():
                self._forget(key, turn)
        return turn.done()

    def give_back(self, key: TenantAtHost) -> None:
        """Release *key* to the eligible waiting tenant that uses the fewest connections."""
        self._count(key, -1)
        while self._waiting and (served := self._next()) is not None:
            self._count(served, 1)
            turn = self._waiting[served][0]
            turn.set_result(None)
            self._forget(served, turn)

    def _next(self) -> TenantAtHost | None:
        firsts = (next(iter(line[min(line)])) for line in self._lines.values())
        return min(filter(self._is_free, firsts), key=lambda key: self._counts.get(key, 0), default=None)

    def _is_free(self, key: TenantAtHost) -> bool:
        free_at_host = self._most_per_host - self._of_host.get(key[0], 0)
        count = self._counts.get(key, 0)
        return count < SHARE * free_at_host and count < SHARE * (self._most - self._used)

    def _line_up(self, key: TenantAtHost) -> None:
        self._lines.setdefault(key[0], {}).setdefault(self._counts.get(key, 0), {})[key] = None

    def _step_out(self, key: TenantAtHost) -> None:
        line, count = self._lines[key[0]], self._counts.get(key, 0)
        del line[count][key]
        if not line[count]:
            del line[count]
        if not line:
            del self._lines[key[0]]

    def _count(self, key: TenantAtHost, change: int) -> None:
        waits = key in self._waiting
        if waits:
            self._step_out(key)
        self._used += change
        self._counts[key] = count = self._counts[key] + change
        if waits:
            self._line_up(key)
        if not count:
            del self._counts[key]
        self._of_host[key[0]] = used = self._of_host[key[0]] + change
        if not used:
            del self._of_host[key[0]]

    def _forget(self, key: TenantAtHost, turn: asyncio.Future[None]) -> None:
        turns = self._waiting[key]
        turns.remove(turn)
        if not turns:
            self._step_out(key)
            del self._waiting[key]
