"""Named points where a test may hold a request: no sleeps, no races.

    hold = issuer.hold("processed", connection="acme")
    ...                       # the client under test sends its refresh
    await hold.reached()      # the token is spent, no byte of the answer has left
    hold.release()

A `Hook` does whatever else a test needs at such a point, for example kill the client.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Literal, get_args

from fairlead.errors import InvalidInputError

Point = Literal["arrived", "processed", "answering"]


@dataclass(frozen=True, slots=True)
class Moment:
    """A request at a point: *arrived* (recorded, nothing done), *processed* (tokens changed, if they
    change at all), *answering* (the next thing is the first byte)."""

    point: Point
    request: int
    endpoint: str
    provider: str
    connection: str | None
    generation: int | None


Hook = Callable[[Moment], Awaitable[None]]
"""Awaited at each point of each request; the request goes on when it returns."""


class Hold:
    """A gate at one point for the next *times* requests that match; made by `Issuer.hold`."""

    def __init__(
        self, hooks: list[Hook], point: str, provider: str | None, connection: str | None, times: int
    ) -> None:
        if point not in get_args(Point):
            raise InvalidInputError(
                f"test server: there is no point {point!r}", hint=f"one of {', '.join(get_args(Point))}"
            )
        self._point, self._provider, self._connection = point, provider, connection
        self._hooks = hooks
        self._left = times
        self._parked = 0
        self._news = asyncio.Condition()
        self._open = asyncio.Event()
        hooks.append(self)

    async def __call__(self, moment: Moment) -> None:
        """The hook itself: parks a matching request until `release`."""
        if self._left <= 0 or not self._matches(moment):
            return
        self._left -= 1
        async with self._news:
            self._parked += 1
            self._news.notify_all()
        await self._open.wait()

    def _matches(self, moment: Moment) -> bool:
        return (
            moment.point == self._point
            and self._provider in (None, moment.provider)
            and self._connection in (None, moment.connection)
        )

    async def reached(self, count: int = 1) -> None:
        """Return once *count* requests have been parked here since the hold was made."""
        async with self._news:
            await self._news.wait_for(lambda: self._parked >= count)

    def release(self) -> None:
        """Let the parked requests go on, and hold no more. Twice is no error."""
        self._left = 0
        if self in self._hooks:
            self._hooks.remove(self)
        self._open.set()
