"""One request of a process over the network to a server of the world, and its answer's way back.

The request that has left arrives, whatever becomes of who sent it; the server works on it at that moment, in
one step. A caller that dies, is cancelled or gives up has hung up, and the server notices at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import Context
from dataclasses import dataclass
from functools import partial
from typing import Generic, Literal, TypeVar

from tests.simulation.process import SimProcess

T = TypeVar("T")

Disconnected = Literal["timeout", "reset"]
HowItEnded = Literal["answered", "lost", "cut", "died", "gave_up", "cancelled"]
"""As the server sees it, or as only the simulation knows: the answer left, or was lost on its way; the server
broke the connection; the caller died, had waited for too long, or did not want it any more."""


@dataclass(slots=True)
class WireResponse(Generic[T]):
    """What a server makes of a request: *answer* leaves it after *after_s*; None: the connection breaks then.

    *lost*: the answer leaves and never arrives. *ended* is told once how it ended, as the server sees it.
    """

    answer: T | None
    after_s: float
    ended: Callable[[HowItEnded], None]
    lost: bool = False


class Wire:
    """The way of one process to one server. *latency_s* is drawn for each way; while it *is_cut* no answer
    that is on its way arrives."""

    def __init__(
        self,
        process: SimProcess,
        latency_s: Callable[[], float],
        is_cut: Callable[[], bool] = lambda: False,
    ) -> None:
        self._process = process
        self._latency_s = latency_s
        self._is_cut = is_cut

    async def connect(self, deadline_s: float) -> bool:
        """The time that it takes to connect; False where that is more than *deadline_s*."""
        needs_s = self._latency_s() + self._latency_s()
        await asyncio.sleep(min(needs_s, deadline_s))
        return needs_s <= deadline_s

    async def ask(
        self, serve: Callable[[], WireResponse[T]], deadline_s: float, late_s: float = 0.0
    ) -> T | Disconnected:
        """Send, and wait for the answer at most *deadline_s*; *late_s*: the request is held up on its way."""
        result: asyncio.Future[T | Disconnected] = asyncio.get_running_loop().create_future()
        exchange = self.send(serve, deadline_s, partial(_tell, result), late_s)
        try:
            return await result
        finally:
            exchange.leave("cancelled")  # nothing where it has come

    def send(
        self,
        serve: Callable[[], WireResponse[T]],
        deadline_s: float,
        tell: Callable[[T | Disconnected], None],
        late_s: float = 0.0,
    ) -> Exchange[T]:
        """The same without anybody who waits: *tell* is told once, in the world or by the process's timer."""
        loop = asyncio.get_running_loop()
        exchange = Exchange(tell, serve, self._latency_s, self._is_cut)
        loop.call_later(self._latency_s() + late_s, exchange.arrive, context=Context())
        timer = loop.call_later(deadline_s, exchange.come, "timeout")
        exchange.forget = self._process.on_death(partial(exchange.hang_up, "died")), timer.cancel
        return exchange


class Exchange(Generic[T]):
    """One request on its way, at the server, and back. Runs in the world."""

    def __init__(
        self,
        tell: Callable[[T | Disconnected], None],
        serve: Callable[[], WireResponse[T]],
        latency_s: Callable[[], float],
        is_cut: Callable[[], bool],
    ) -> None:
        self._tell = tell
        self._serve = serve
        self._latency_s = latency_s
        self._is_cut = is_cut
        self._reply: WireResponse[T] | None = None
        self._leaving: asyncio.TimerHandle | None = None
        self._hung_up: HowItEnded | None = None
        self.forget: tuple[Callable[[], object], ...] = ()
        """What ends with it; nothing once it has."""

    def arrive(self) -> None:
        self._reply = reply = self._serve()
        if self._hung_up is not None:
            reply.ended(self._hung_up)
            return
        if not reply.after_s:
            self._leave(reply)
            return
        loop = asyncio.get_running_loop()
        self._leaving = loop.call_later(reply.after_s, self._leave, reply, context=Context())

    def _leave(self, reply: WireResponse[T]) -> None:
        self._leaving = None
        if reply.lost:
            reply.ended("lost")
            return
        reply.ended("cut" if reply.answer is None else "answered")
        answer: T | Disconnected = "reset" if reply.answer is None else reply.answer
        loop = asyncio.get_running_loop()
        loop.call_later(self._latency_s(), self._come_home, answer, context=Context())

    def _come_home(self, answer: T | Disconnected) -> None:
        self.come("reset" if self._is_cut() else answer)

    def come(self, value: T | Disconnected) -> None:
        """Tell *what* came of it, unless that was told before."""
        if self.leave("gave_up"):
            self._tell(value)

    def leave(self, how: HowItEnded) -> bool:
        """Nobody wants to know any more what comes of it; False where it was told before."""
        forget, self.forget = self.forget, ()
        for forget_callback in forget:
            forget_callback()
        if forget:
            self.hang_up(how)
        return bool(forget)

    def hang_up(self, how: HowItEnded) -> None:
        """The caller is gone, or has what it asked for."""
        self._hung_up = self._hung_up or how
        if self._leaving is not None and self._reply is not None:
            self._leaving.cancel()
            self._leaving = None
            self._reply.ended(how)


def _tell(result: asyncio.Future[T], value: T) -> None:
    if not result.done():
        result.set_result(value)
