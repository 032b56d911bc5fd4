"""How many of this process's connections one tenant may have in use: the fewer, the fewer are free (R50).

A vendor that hangs for one account would otherwise take every connection to its host, and all other tenants
would find none. A tenant may take one more while it has fewer than SHARE times those that are free: alone it
gets four fifths of all, two that hang get four ninths each, and however many hang, a newcomer finds a place.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import NamedTuple

SHARE = 4


class Place(NamedTuple):
    """A connection to a host that a tenant uses, or waits for."""

    host: object
    holder: str


class Places:
    """Of one process: *most* in all, *most_per_host* to one host."""

    def __init__(self, most: int, most_per_host: int) -> None:
        self._most = most
        self._most_per_host = most_per_host
        self._used = 0
        self._of_host: dict[object, int] = {}  # a Counter costs a call as much again
        self._held: dict[Place, int] = {}
        self._waiting: dict[Place, deque[asyncio.Future[None]]] = {}

    async def take(self, place: Place, at_most_s: float) -> bool:
        """Wait for *place*, at most *at_most_s* seconds; whether it is the caller's now, to be given back."""
        if place not in self._waiting and self._is_free(place):
            self._count(place, 1)
            return True
        turn = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(place, deque()).append(turn)
        try:
            await asyncio.wait((turn,), timeout=max(0.0, at_most_s))
        except asyncio.CancelledError:
            if turn.done():
                self.give_back(place)
            raise
        finally:
            if not turn.done():
                self._forget(place, turn)
        return turn.done()

    def give_back(self, place: Place) -> None:
        """Its connection is free: whoever may have it now is served, tenant by tenant."""
        self._count(place, -1)
        for waiting, turns in list(self._waiting.items()):
            if self._is_free(waiting):
                self._count(waiting, 1)
                turns[0].set_result(None)
                self._forget(waiting, turns[0])

    def _is_free(self, place: Place) -> bool:
        free = min(self._most - self._used, self._most_per_host - self._of_host.get(place.host, 0))
        return self._held.get(place, 0) < SHARE * free

    def _count(self, place: Place, change: int) -> None:
        self._used += change
        self._held[place] = held = self._held.get(place, 0) + change
        if not held:
            del self._held[place]
        self._of_host[place.host] = used = self._of_host.get(place.host, 0) + change
        if not used:
            del self._of_host[place.host]

    def _forget(self, place: Place, turn: asyncio.Future[None]) -> None:
        turns = self._waiting[place]
        turns.remove(turn)
        if not turns:
            del self._waiting[place]
