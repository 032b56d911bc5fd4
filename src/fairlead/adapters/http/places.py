"""How many of this process's connections one tenant may have in use: the fewer, the fewer are free (R50).

A vendor that hangs for one account would otherwise take every connection to its host, and all other tenants
would find none. A tenant may take one more while it has fewer than SHARE times those that are free: alone it
gets four fifths of all, two that hang get four ninths each, and however many hang, a newcomer finds a place.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict, deque

SHARE = 4
Place = tuple[object, str]
"""A connection that a tenant uses, or waits for: its host, and the tenant."""


class Places:
    """Of one process: *most* in all, *most_per_host* to one host."""

    def __init__(self, most: int, most_per_host: int) -> None:
        self._most = most
        self._most_per_host = most_per_host
        self._used = 0
        self._of_host: defaultdict[object, int] = defaultdict(int)
        self._held: defaultdict[Place, int] = defaultdict(int)
        self._waiting: dict[Place, deque[asyncio.Future[None]]] = {}
        self._lines: dict[object, dict[int, dict[Place, None]]] = {}  # by host and connections in use

    def take_at_once(self, place: Place) -> bool:
        """Return whether *place* is the caller's now, to be given back."""
        if place in self._waiting or not self._is_free(place):
            return False
        self._count(place, 1)
        return True

    async def take(self, place: Place, at_most_s: float) -> bool:
        """Wait for *place*, at most *at_most_s* seconds; whether it is the caller's now."""
        if self.take_at_once(place):
            return True
        turn = asyncio.get_running_loop().create_future()
        if place not in self._waiting:
            self._waiting[place] = deque()
            self._line_up(place)
        self._waiting[place].append(turn)
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
        """Its connection is free: of the tenants that wait and may have it, one with the fewest gets it."""
        self._count(place, -1)
        while self._waiting and (served := self._next()) is not None:
            self._count(served, 1)
            turn = self._waiting[served][0]
            turn.set_result(None)
            self._forget(served, turn)

    def _next(self) -> Place | None:
        firsts = (next(iter(line[min(line)])) for line in self._lines.values())
        return min(filter(self._is_free, firsts), key=lambda place: self._held.get(place, 0), default=None)

    def _is_free(self, place: Place) -> bool:
        free_at_host = self._most_per_host - self._of_host.get(place[0], 0)
        held = self._held.get(place, 0)
        return held < SHARE * free_at_host and held < SHARE * (self._most - self._used)

    def _line_up(self, place: Place) -> None:
        self._lines.setdefault(place[0], {}).setdefault(self._held.get(place, 0), {})[place] = None

    def _step_out(self, place: Place) -> None:
        line, held = self._lines[place[0]], self._held.get(place, 0)
        del line[held][place]
        if not line[held]:
            del line[held]
        if not line:
            del self._lines[place[0]]

    def _count(self, place: Place, change: int) -> None:
        waits = place in self._waiting
        if waits:
            self._step_out(place)
        self._used += change
        self._held[place] = held = self._held[place] + change
        if waits:
            self._line_up(place)
        if not held:
            del self._held[place]
        self._of_host[place[0]] = used = self._of_host[place[0]] + change
        if not used:
            del self._of_host[place[0]]

    def _forget(self, place: Place, turn: asyncio.Future[None]) -> None:
        turns = self._waiting[place]
        turns.remove(turn)
        if not turns:
            self._step_out(place)
            del self._waiting[place]
