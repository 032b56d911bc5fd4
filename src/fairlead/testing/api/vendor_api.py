"""The base of the vendor APIs: ledger, switches, and the order of steps for one request.

    record arrival > failure switch > 401 > the vendor's limits > holds and slowness > response

The first part of each path is the account, where the vendor has a host name of its own:
``f"{api.url}/acme"`` stands for https://acme.myshopify.com.
"""

from __future__ import annotations

import asyncio
import json
from abc import abstractmethod
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from random import Random
from typing import ClassVar

from aiohttp import web

from fairlead._core.clock import Clock
from fairlead.testing._kit.clock import SystemClock
from fairlead.testing._kit.request_barrier import Hold, Moment
from fairlead.testing._kit.server import LocalServer
from fairlead.testing.api.api_control import api_control
from fairlead.testing.api.leaky import LeakyBucket, RollingWindow
from fairlead.testing.api.request_log import Arrival, RequestLog
from fairlead.testing.api.switches import Switches
from fairlead.testing.api.worker_slots import WorkerSlots

JSON = "application/json"
_MAX_BODY_BYTES = 32 << 20
_STOP_S = 1.0
_POLL_S = 0.02  # how often a hung request checks whether its client has left
_CREDENTIALS = ("Authorization", "X-Shopify-Access-Token")
_CONNECTION_CUT = "hung up on purpose"


@dataclass(frozen=True, slots=True)
class ApiResponse:
    """One response. *body* is text or bytes as they are, anything else as JSON; *refused* names the limit that
    refused the call."""

    body: object = None
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    content_type: str = JSON
    refused: str | None = None

    def encoded(self) -> bytes:
        """Return the body as bytes."""
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
        """The account that the request is for."""
        return self.arrival.account

    @property
    def json(self) -> object:
        """The body as JSON; None if it is none."""
        try:
            return json.loads(self.body)
        except ValueError:
            return None

    @property
    def fields(self) -> Mapping[str, object]:
        """The members of a JSON object in the body; empty if it is none."""
        return self.json if isinstance(self.json, dict) else {}

    def ids(self, name: str) -> list[str]:
        """Return the ids of the objects in a list of the JSON body."""
        items = self.fields.get(name, [])
        return (
            [str(item.get("id", "")) for item in items if isinstance(item, dict)]
            if isinstance(items, list)
            else []
        )

    def part(self, name: str) -> str:
        """Return a named part of the path."""
        return self.request.match_info[name]

    def parameter(self, name: str, default: str = "") -> str:
        """Return a parameter of the query."""
        return self.request.query.get(name, default)

    def number(self, name: str, default: int, *, most: int) -> int:
        """Return a parameter of the query as a number from 0 to *most*, or *default* if it is no number."""
        text = self.parameter(name)
        return min(int(text), most) if text.isascii() and text.isdigit() else default


Handler = Callable[[ApiRequest], Awaitable[ApiResponse]]
Route = tuple[str, str, Handler]
"""Method, path below the account, and handler."""


class VendorApi(LocalServer):
    """One API on 127.0.0.1, used by ``async with``; every account exists.

    Args:
        takes_s: Seconds that an admitted call takes (default 0).
        workers: Calls processed at once (default: all); others wait inside, in flight.
        clock: Times limits and waits (default: the real one).
        seed: Draws which calls fail.
        port: 0 takes a free port.
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
        super().__init__(host, port)
        self.clock: Clock = clock or SystemClock()
        self.ledger = RequestLog(self.clock.monotonic)
        self.switches = Switches()
        self._takes_s = takes_s
        self._draw = Random(seed).random
        self._limits: dict[tuple[str, str], LeakyBucket | RollingWindow] = {}
        self._locked: set[str] = set()
        self._workers = WorkerSlots(workers, self._share)
        self._control = api_control(self)

    # ---- what a vendor adds ------------------------------------------------------------------------

    @abstractmethod
    def routes(self) -> Iterable[Route]:
        """Return the endpoints."""

    @abstractmethod
    def unauthorised(self, call: ApiRequest) -> ApiResponse:
        """Return the vendor's 401."""

    async def absent(self, call: ApiRequest) -> ApiResponse:
        """Return the vendor's 404."""
        return ApiResponse({"message": "not found"}, 404)

    def _make_runner(self) -> web.AppRunner:
        app = web.Application(client_max_size=_MAX_BODY_BYTES)
        app.router.add_post("/_control/{operation}", self._answer_control)
        for method, path, handler in self.routes():
            app.router.add_route(method, "/{account}" + path, self._serving(handler))
        app.router.add_route("*", "/{account}{rest:.*}", self._serving(self.absent))
        return web.AppRunner(app, access_log=None, shutdown_timeout=_STOP_S)

    async def _answer_control(self, request: web.Request) -> web.Response:
        status, body = await self._control.handle(request.match_info["operation"], await request.read())
        return web.Response(status=status, body=body, content_type=JSON)

    # ---- faults ------------------------------------------------------------------------------------

    def switch(self, **changes: object) -> Switches:
        """Change some of the `Switches`, at once and for every account, and return all of them.

        Raises:
            InvalidConfigError: A value or a name is impossible.
        """
        self._refill()
        switches = self.switches.model_dump(exclude_unset=True) | changes
        self.switches = Switches.read(switches, "the switches")
        self._workers.wake()
        return self.switches

    def calm(self) -> None:
        """Reset every switch and every lock."""
        self._refill()
        self.switches = Switches()
        self._workers.wake()
        self._locked.clear()

    def _refill(self) -> None:
        """Refill every limit at the old rate, before the rate changes."""
        for limit in self._limits.values():
            limit.refill()

    def lock(self, *ids: str) -> None:
        """Lock objects: vendors that know locks refuse calls that touch them."""
        self._locked.update(ids)

    def unlock(self, *ids: str) -> None:
        """Unlock objects."""
        self._locked.difference_update(ids)

    def hold(self, account: str | None = None, *, times: int = 1) -> Hold:
        """Park the next *times* admitted calls of *account*, or of all: in flight until released."""
        return self._barriers.hold("processed", self.name, account, times)[1]

    def limits(self, account: str) -> Mapping[str, Mapping[str, float]]:
        """Return the state of those limits of *account* that have been used, by name."""
        return {name: limit.ledger() for (owner, name), limit in self._limits.items() if owner == account}

    # ---- for vendors -------------------------------------------------------------------------------

    def bucket(self, account: str, name: str, capacity: float, per_s: float) -> LeakyBucket:
        """Return the leaky bucket of this name; it is full at its first use."""
        limit = self._limits.get((account, name))
        if not isinstance(limit, LeakyBucket):
            limit = LeakyBucket(capacity, per_s, self.clock.monotonic, self._share)
            limit.level = limit.capacity_now
            self._limits[account, name] = limit
        return limit

    def window(self, account: str, name: str, calls: int, window_s: float) -> RollingWindow:
        """Return the rolling window of this name; it is empty at its first use."""
        limit = self._limits.get((account, name))
        if not isinstance(limit, RollingWindow):
            limit = RollingWindow(calls, window_s, self.clock.monotonic, self._share)
            self._limits[account, name] = limit
        return limit

    def slots(self, limit: int) -> int:
        """Return how many of *limit* calls may be in flight under the current switches, at least one."""
        return max(1, int(limit * self._share()))

    def locked(self, *ids: str) -> bool:
        """Return whether one of these objects is locked."""
        return not self._locked.isdisjoint(ids)

    async def serve(self, call: ApiRequest) -> None:
        """Admit *call*, which is in flight from now on, then wait for holds and for its processing time."""
        self.ledger.admit(call.arrival)
        await self._barriers.reach(
            Moment("processed", call.arrival.number, call.arrival.target, self.name, call.account, None)
        )
        async with self._workers.acquire():
            takes_s = self._takes_s + self.switches.slow_s
            if takes_s:
                await self.clock.sleep(takes_s)

    def _share(self) -> float:
        return self.switches.capacity

    # ---- the steps of a request --------------------------------------------------------------------

    def _serving(self, handler: Handler) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
        async def serve(request: web.Request) -> web.StreamResponse:
            arrival = self._record_arrival(request)
            response: ApiResponse | None = None
            try:
                response = await self._answer(ApiRequest(request, arrival, await request.read()), handler)
            finally:
                refused = response.refused if response else None
                self.ledger.end(arrival, response.status if response else None, refused)
            return self._send(request, response)

        return serve

    def _record_arrival(self, request: web.Request) -> Arrival:
        credential = next((value for name in _CREDENTIALS if (value := request.headers.get(name))), "")
        return self.ledger.begin(request.match_info["account"], request.method, request.path_qs, credential)

    async def _answer(self, call: ApiRequest, handler: Handler) -> ApiResponse | None:
        """Return the handler's response, or the failure that a switch asks for; None: the connection is cut."""
        switches = self.switches
        fails = switches.failing > 0 and self._draw() < switches.failing
        if fails and not switches.after_effect:
            return await self._fail(call)
        if self._is_unwelcome(call.arrival.authorization):
            return self.unauthorised(call)
        response = await handler(call)
        return await self._fail(call) if fails and not response.refused else response

    async def _fail(self, call: ApiRequest) -> ApiResponse | None:
        how = self.switches.how
        if how == "hang":
            await self._hang(call.request)
        if isinstance(how, str):
            return None
        return ApiResponse(f"<html><body><h1>{how}</h1></body></html>", how, content_type="text/html")

    async def _hang(self, request: web.Request) -> None:
        while not self._stopping.is_set() and request.transport is not None:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), _POLL_S)

    def _is_unwelcome(self, authorization: str) -> bool:
        token = authorization.rpartition(" ")[2]
        return bool(token) and token in self.switches.unauthorised

    def _send(self, request: web.Request, response: ApiResponse | None) -> web.StreamResponse:
        if response is None:
            if request.transport is not None:
                request.transport.abort()
            return web.Response(
                text=_CONNECTION_CUT
            )  # aiohttp wants a response, but the connection is closed
        headers = {**response.headers, "Content-Type": response.content_type}
        retry_after = self.switches.retry_after
        if retry_after is not None and (response.refused or response.status >= 500):
            headers.pop("Retry-After", None)
            if retry_after:
                headers["Retry-After"] = retry_after
        return web.Response(status=response.status, body=response.encoded(), headers=headers)
