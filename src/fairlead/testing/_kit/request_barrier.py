"""Named points at which a test can hold a request, without sleeps and races.

    hold = issuer.hold("processed", connection="acme")
    ...                       # the client under test sends its refresh
    await hold.reached()      # the token is spent, and no byte of the response was sent
    hold.release()

A `Hook` does anything else that a test needs at such a point, for example kill the client.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Literal, get_args

from fairlead.errors import InvalidInputError

Point = Literal["arrived", "processed", "answering"]


@dataclass(frozen=True, slots=True)
class Moment:
    """A request at a point: *arrived* (recorded, not processed), *processed* (tokens have changed, if they
    change at all) or *answering* (the first byte of the response is next)."""

    point: Point
    request: int
    endpoint: str
    provider: str
    connection: str | None
    generation: int | None


Hook = Callable[[Moment], Awaitable[None]]
"""Awaited at each point of each request; the request continues when it returns."""


class Hold:
    """A barrier at one point for the next *times* matching requests, made by `hold` of a server."""

    def __init__(
        self, hooks: list[Hook], point: str, provider: str | None, connection: str | None, times: int
    ) -> None:
        if point not in get_args(Point):
            raise InvalidInputError(
                f"test server: there is no point {point!r}", hint=f"one of {', '.join(get_args(Point))}"
            )
        self._point, self._provider, self._connection = point, provider, connection
        self._hooks = hooks
        self._open_places = times
        self._parked = 0
        self._parking = asyncio.Condition()
        self._released = asyncio.Event()
        hooks.append(self)

    async def __call__(self, moment: Moment) -> None:
        """Park a matching request until `release`; this is the hook itself."""
        if self._open_places <= 0 or not self._matches(moment):
            return
        self._open_places -= 1
        async with self._parking:
            self._parked += 1
            self._parking.notify_all()
        await self._released.wait()

    def _matches(self, moment: Moment) -> bool:
        return (
            moment.point == self._point
            and self._provider in (None, moment.provider)
            and self._connection in (None, moment.connection)
        )

    async def reached(self, count: int = 1) -> None:
        """Return once *count* requests have been parked here since the hold was made."""
        async with self._parking:
            await self._parking.wait_for(lambda: self._parked >= count)

    def release(self) -> None:
        """Let the parked requests continue, and hold no more. A second call does nothing."""
        self._open_places = 0
        if self in self._hooks:
            self._hooks.remove(self)
        self._released.set()


class Barriers:
    """The hooks and numbered holds of one server."""

    def __init__(self, hooks: Iterable[Hook] = ()) -> None:
        self._hooks = list(hooks)
        self._holds: dict[int, Hold] = {}

    def hold(self, point: str, provider: str | None, connection: str | None, times: int) -> tuple[int, Hold]:
        """Add a hold and return it with its number."""
        hold = Hold(self._hooks, point, provider, connection, times)
        number = len(self._holds) + 1
        self._holds[number] = hold
        return number, hold

    def get(self, number: int) -> Hold:
        """Return the hold of this number; raise InvalidInputError when there is none."""
        hold = self._holds.get(number)
        if hold is None:
            raise InvalidInputError(
                f"test server: there is no hold {number}", hint="make one with hold first"
            )
        return hold

    def release_all(self) -> None:
        """Let every parked request continue."""
        for hold in self._holds.values():
            hold.release()

    @property
    def any(self) -> bool:
        """Whether a request has to call `reach`."""
        return bool(self._hooks)

    async def reach(self, moment: Moment) -> None:
        """Await every hook with *moment*."""
        for hook in tuple(self._hooks):
            await hook(moment)
