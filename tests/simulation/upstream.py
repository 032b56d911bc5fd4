"""The API of the simulated world: it knows whose token a call shows, and tells what reaches it.

That is the truth about limits: the calls of an account at the same time, and in any window, as they arrive.
Who hangs up is noticed, and his call is over; who dies is not, and his call is worked on to its end.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, fields
from random import Random
from typing import Any

from fairlead._core.secret import Secret
from fairlead.engine.ports import HttpRequest, HttpResponse, HttpStream, NoResponse
from tests.simulation.admission import take
from tests.simulation.issuer import SimIssuer
from tests.simulation.process import SimProcess
from tests.simulation.watch import Arrived, Left, SimulatedAdmission, TimedOut, Watch
from tests.simulation.wire import HowItEnded, Wire, WireResponse

WORK_S = 0.15
"""How long an answer takes that nothing holds up."""
FAULTS_OF = {"storm": "storm", "ill": "ill", "cut": "cut_calls", "slow": "slow_calls"}
"""What the faults of a swarm are called, by what it does to a call."""
CALL_HEADER = "x-call"
"""One id for a call and its retries."""


@dataclass
class UpstreamManner:
    """How it treats calls; shares from 0 to 1, all 0 when it is well.

    *storm*: 429; *ill*: 503; *cut*: of calls whose connection breaks; *slow*: of answers that take up to
    *slow_s*.
    """

    storm: float = 0.0
    ill: float = 0.0
    cut: float = 0.0
    slow: float = 0.0
    slow_s: float = 20.0

    def heal(self) -> None:
        """Be well again."""
        for field in fields(self):
            setattr(self, field.name, field.default)


class SimUpstream:
    """One API of all vendors. The account of a call is that of its token: a connection of the issuer's."""

    def __init__(self, now: Callable[[], float], draw: Random, watch: Watch, issuer: SimIssuer) -> None:
        self._now = now
        self._draw = draw
        self.watch = watch
        self._issuer = issuer
        self._numbers = 0
        self._in_flight: dict[str, set[int]] = {}
        self._orphans: list[tuple[float, set[int], int]] = []
        """Calls of the dead that it works on: until when, and where they count."""
        self.manner = UpstreamManner()

    def transport(self, process: SimProcess, latency_s: Callable[[], float]) -> UpstreamRoad:
        """The way there of one process."""
        return UpstreamRoad(self, process, Wire(process, latency_s))

    def arrive(
        self, request: HttpRequest, process: str, admission: SimulatedAdmission | None = None
    ) -> WireResponse[HttpResponse]:
        """One call is here; what it is answered is decided now. *admission*: how it got in."""
        self._numbers += 1
        number = self._numbers
        verdict, family = self._issuer.verdict(_bearer(request.headers))
        account = "nobody" if family is None else f"{family.provider}/{family.connection}"
        self._let_go()
        here = self._in_flight.setdefault(account, set())
        here.add(number)
        status, call = self._status(verdict), str(request.headers.get(CALL_HEADER, ""))
        self.watch.tell(Arrived(number, account, call, status, tuple(sorted(here)), admission), process)

        after_s = WORK_S + (self._draw.random() * self.manner.slow_s if self._chance("slow") else 0.0)
        over_s = self._now() + after_s

        def ended(how: HowItEnded) -> None:
            if how == "died":
                self._orphans.append((over_s, here, number))
            else:
                here.discard(number)
            self.watch.tell(Left(number, account, how), process)

        answer = _answer(status, "" if family is None else family.connection)
        return WireResponse(None if self._chance("cut") else answer, after_s, ended)

    def _let_go(self) -> None:
        """What the dead had asked for is over in time."""
        now_s = self._now()
        for over_s, here, number in self._orphans:
            if over_s <= now_s:
                here.discard(number)
        self._orphans = [call for call in self._orphans if call[0] > now_s]

    def _status(self, verdict: str) -> int:
        if self._chance("storm"):
            return 429
        if self._chance("ill"):
            return 503
        return 200 if verdict == "live" else 401

    def _chance(self, behaviour: str) -> bool:
        """Whether it treats this call so."""
        share: float = getattr(self.manner, behaviour)
        if share > 0 and self._draw.random() < share:
            self.watch.strikes[FAULTS_OF[behaviour]] += 1
            return True
        return False


class UpstreamRoad:
    """The call transport of one process; see fairlead.engine.ports.http.Transport."""

    def __init__(self, upstream: SimUpstream, process: SimProcess, wire: Wire) -> None:
        self._upstream = upstream
        self._process = process
        self._wire = wire

    async def send(self, request: HttpRequest) -> HttpResponse | NoResponse:
        """Send once."""
        start_at, name, admission = asyncio.get_running_loop().time(), self._process.name, take()
        response = await self._wire.ask(
            lambda: self._upstream.arrive(request, name, admission), request.deadline_s
        )
        if isinstance(response, HttpResponse):
            response.took_s = asyncio.get_running_loop().time() - start_at
            return response
        if response == "timeout" and admission is not None and admission.slot is not None:
            self._upstream.watch.tell(TimedOut(admission.slot, request.deadline_s), name)
        return NoResponse(sent=True, kind=response, why="the answer did not come")

    @asynccontextmanager
    async def stream(self, request: HttpRequest) -> AsyncIterator[HttpStream | NoResponse]:
        """Nothing in the simulated fleet reads an answer piece by piece."""
        raise NotImplementedError("the simulated upstream does not stream")
        yield  # pragma: no cover


def _bearer(headers: Mapping[str, str | Secret]) -> str:
    for name, value in headers.items():
        if name.lower() == "authorization":
            text = value.reveal() if isinstance(value, Secret) else value
            return text.removeprefix("Bearer ")
    return ""


def _answer(status: int, tenant: str) -> HttpResponse:
    headers: dict[str, Any] = {"content-type": ["application/json"]}
    if status == 429:
        headers["retry-after"] = ["2"]
    return HttpResponse(status, headers, json.dumps({"tenant": tenant}).encode(), WORK_S)
