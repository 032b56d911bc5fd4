"""What all rude APIs share: life, ledger, switches, and the way of a request.

    arrival > control? > failure > 401 > the vendor's limits > holds and slowness > answer

The first part of each path is the account, where the real thing has a host name of its own:
``f"{api.url}/acme"`` stands for https://acme.myshopify.com.
"""

from __future__ import annotations

import asyncio
import json
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from random import Random
from types import TracebackType
from typing import ClassVar, Self

from aiohttp import web

from fairlead._core.clock import Clock
from fairlead.testing._kit.clock import SystemClock
from fairlead.testing._kit.request_barrier import Hold, Hook, Moment
from fairlead.testing.api.api_control import CONTROL, ApiControl
from fairlead.testing.api.leaky import LeakyBucket, RollingWindow
from fairlead.testing.api.request_log import Arrival, RequestLog
from fairlead.testing.api.switches import Switches
from fairlead.testing.api.worker_slots import WorkerSlots

JSON = "application/json"
_MAX_BODY_BYTES = 32 << 20
_STOP_S = 1.0
_LOOK_S = 0.02  # how often a hung request looks whether its client has left
_CREDENTIALS = ("Authorization", "X-Shopify-Access-Token")
_GONE = "hung up on purpose"


@dataclass(frozen=True, slots=True)
class ApiResponse:
    """One answer. *body*: a text or bytes as they are, anything else as JSON. *refused*: the limit that
    refused the call."""

    body: object = None
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    content_type: str = JSON
    refused: str | None = None

    def encoded(self) -> bytes:
        """The body as it goes on the wire."""
        if isinstance(self.body, bytes):
            return self.body
        return (self.body if isinstance(self.body, str) else json.dumps(self.body)).encode()


@dataclass(slots=True)
class ApiRequest:
    """One request as a handler sees it."""

    request: web.Request
    arrival: Arrival
    body: bytes

    @property
    def account(self) -> str:
        """Whose request it is."""
        return self.arrival.account

    @property
    def json(self) -> object:
        """The body as JSON; None where it is none."""
        try:
            return json.loads(self.body)
        except ValueError:
            return None

    def part(self, name: str) -> str:
        """A named part of the path."""
        return self.request.match_info[name]

    def asked(self, name: str, otherwise: str = "") -> str:
        """A parameter of the query."""
        return self.request.query.get(name, otherwise)

    def number(self, name: str, otherwise: int, *, most: int) -> int:
        """A parameter of the query as a number from 0 to *most*; what is no number is *otherwise*."""
        text = self.asked(name)
        return min(int(text), most) if text.isascii() and text.isdigit() else otherwise


Handler = Callable[[ApiRequest], Awaitable[ApiResponse]]
Route = tuple[str, str, Handler]
"""Method, path below the account, and what answers it."""


class VendorApi(ABC):
    """One API on 127.0.0.1; every account exists. Used as ``async with``.

    *takes_s*: how long it thinks about an admitted call (default 0). *workers*: how many it thinks about at
    once (default: all); the others stand in line inside it, in flight. *clock* (default: the real one)
    times limits and waits. *seed* draws which calls fail. *host*, *port*: where it listens (0: a free port).
    """

    name: ClassVar[str]

    def __init__(
        self,
        *,
        takes_s: float = 0.0,
        workers: int | None = None,
        clock: Clock | None = None,
        seed: int = 1,
        host: str = "127.0.0.1",
        port: int = 0,
    ) -> None:
        self.clock: Clock = clock or SystemClock()
        self.ledger = RequestLog(self.clock.monotonic)
        self.switches = Switches()
        self.url = ""
        self._takes_s = takes_s
        self._draw = Random(seed).random
        self._host, self._port = host, port
        self._limits: dict[tuple[str, str], LeakyBucket | RollingWindow] = {}
        self._locked: set[str] = set()
        self._workers = WorkerSlots(workers, self._share)
        self._hooks: list[Hook] = []
        self._holds: list[Hold] = []
        self._stopping = asyncio.Event()

    # ---- what a vendor adds ------------------------------------------------------------------------

    @abstractmethod
    def routes(self) -> Iterable[Route]:
        """Its endpoints."""

    @abstractmethod
    def unauthorised(self, call: ApiRequest) -> ApiResponse:
        """Its 401."""

    async def absent(self, call: ApiRequest) -> ApiResponse:
        """Its 404."""
        return ApiResponse({"message": "not found"}, 404)

    # ---- life --------------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        app = web.Application(client_max_size=_MAX_BODY_BYTES)
        control = ApiControl(self)
        app.router.add_post(CONTROL, control.answer)
        for method, path, handler in self.routes():
            app.router.add_route(method, "/{account}" + path, self._serving(handler))
        app.router.add_route("*", "/{account}{rest:.*}", self._serving(self.absent))
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=_STOP_S)
        await self._runner.setup()
        try:
            await web.TCPSite(self._runner, self._host, self._port, backlog=1024).start()
        except BaseException:
            await self._runner.cleanup()
            raise
        host, port = self._runner.addresses[0][:2]
        self.url = f"http://{host}:{port}"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopping.set()
        for hold in self._holds:
            hold.release()
        await self._runner.cleanup()

    # ---- rudeness ----------------------------------------------------------------------------------

    def switch(self, **changes: object) -> Switches:
        """Change some of the `Switches`, at once and for every account; the rest stays as it is.

        Raises InvalidConfigError where a value or a name is impossible.
        """
        self._refill()
        told = self.switches.model_dump(exclude_unset=True) | changes
        self.switches = Switches.read(told, "the switches")
        self._workers.wake()
        return self.switches

    def calm(self) -> None:
        """Take back every switch and every lock."""
        self._refill()
        self.switches = Switches()
        self._workers.wake()
        self._locked.clear()

    def _refill(self) -> None:
        """What came back until now came at the old rate."""
        for limit in self._limits.values():
            limit.refill()

    def lock(self, *ids: str) -> None:
        """Objects that somebody else works on: calls that touch them are refused, by vendors who do so."""
        self._locked.update(ids)

    def unlock(self, *ids: str) -> None:
        """They are free again."""
        self._locked.difference_update(ids)

    def hold(self, account: str | None = None, *, times: int = 1) -> Hold:
        """Park the next *times* admitted calls, of *account* or of all: in flight until released."""
        made = Hold(self._hooks, "processed", self.name, account, times)
        self._holds.append(made)
        return made

    # ---- truth -------------------------------------------------------------------------------------

    def limits(self, account: str) -> Mapping[str, Mapping[str, float]]:
        """Where the limits of *account* stand that have been used, by their names."""
        return {name: limit.ledger() for (owner, name), limit in self._limits.items() if owner == account}

    # ---- for vendors -------------------------------------------------------------------------------

    def bucket(self, account: str, name: str, capacity: float, per_s: float) -> LeakyBucket:
        """The leaky bucket of this name, made full at its first use."""
        limit = self._limits.get((account, name))
        if not isinstance(limit, LeakyBucket):
            limit = LeakyBucket(capacity, per_s, self.clock.monotonic, self._share)
            limit.level = limit.capacity_now
            self._limits[account, name] = limit
        return limit

    def window(self, account: str, name: str, limit: int, window_s: float) -> RollingWindow:
        """The rolling window of this name, made empty at its first use."""
        found = self._limits.get((account, name))
        if not isinstance(found, RollingWindow):
            found = RollingWindow(limit, window_s, self.clock.monotonic, self._share)
            self._limits[account, name] = found
        return found

    def slots(self, limit: int) -> int:
        """How many of *limit* calls may be in flight, as things stand; one always may."""
        return max(1, int(limit * self._share()))

    def locked(self, *ids: str) -> bool:
        """Whether one of these objects is locked."""
        return not self._locked.isdisjoint(ids)

    async def serve(self, call: ApiRequest) -> None:
        """Admit *call*: it is in flight until its answer is made. Waits for holds, and thinks."""
        self.ledger.admit(call.arrival)
        moment = Moment(
            "processed", call.arrival.number, call.arrival.target, self.name, call.account, generation=None
        )
        for hook in tuple(self._hooks):
            await hook(moment)
        async with self._workers.one():
            takes_s = self._takes_s + self.switches.slow_s
            if takes_s:
                await self.clock.sleep(takes_s)

    def _share(self) -> float:
        return self.switches.capacity

    # ---- the way of a request ----------------------------------------------------------------------

    def _serving(self, handler: Handler) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
        async def serve(request: web.Request) -> web.StreamResponse:
            arrival = self._arrived(request)
            answer: ApiResponse | None = None
            try:
                answer = await self._answer(ApiRequest(request, arrival, await request.read()), handler)
            finally:
                refused = answer.refused if answer else None
                self.ledger.end(arrival, answer.status if answer else None, refused)
            return self._response(request, answer)

        return serve

    def _arrived(self, request: web.Request) -> Arrival:
        told = next((value for name in _CREDENTIALS if (value := request.headers.get(name))), "")
        return self.ledger.begin(request.match_info["account"], request.method, request.path_qs, told)

    async def _answer(self, call: ApiRequest, handler: Handler) -> ApiResponse | None:
        """What *handler* says, unless a switch says otherwise; None: nothing, ever."""
        switches = self.switches
        fails = switches.failing > 0 and self._draw() < switches.failing
        if fails and not switches.after:
            return await self._failed(call)
        if self._unwelcome(call.arrival.authorization):
            return self.unauthorised(call)
        answer = await handler(call)
        return await self._failed(call) if fails and not answer.refused else answer

    async def _failed(self, call: ApiRequest) -> ApiResponse | None:
        how = self.switches.how
        if how == "hang":
            await self._hang(call.request)
        if isinstance(how, str):
            return None
        return ApiResponse(f"<html><body><h1>{how}</h1></body></html>", how, content_type="text/html")

    async def _hang(self, request: web.Request) -> None:
        while not self._stopping.is_set() and request.transport is not None:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), _LOOK_S)

    def _unwelcome(self, authorization: str) -> bool:
        token = authorization.rpartition(" ")[2]
        return bool(token) and token in self.switches.unauthorised

    def _response(self, request: web.Request, answer: ApiResponse | None) -> web.StreamResponse:
        if answer is None:
            if request.transport is not None:
                request.transport.abort()
            return web.Response(text=_GONE)  # nobody will see it: the connection is gone
        headers = {**answer.headers, "Content-Type": answer.content_type}
        told = self.switches.retry_after
        if told is not None and (answer.refused or answer.status >= 500):
            headers.pop("Retry-After", None)
            if told:
                headers["Retry-After"] = told
        return web.Response(status=answer.status, body=answer.encoded(), headers=headers)
