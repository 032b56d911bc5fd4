"""The token endpoints of the simulated world: the families of the test issuer, in virtual time.

What is told of each request is the ledger of the test issuer, line for line, so the same judge reads it
(fairlead.testing.ledger).
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, fields, replace
from random import Random
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from fairlead._core.faultpoint import faultpoint
from fairlead.engine.ports import HttpResponse, NoResponse, TokenCall
from fairlead.testing.issuer.entries import LedgerRecorder
from fairlead.testing.issuer.families import Families, Family, RefreshGranted, RefreshRefused
from fairlead.testing.issuer.token_request import TokenRequestInfo
from fairlead.testing.ledger import Ledger, LedgerEntry
from tests.simulation.process import SimProcess
from tests.simulation.providers import ACCESS_TTL_S, RULES
from tests.simulation.wire import HowItEnded, Wire, WireResponse

WORK_S = 0.02
"""How long an answer takes that nothing holds up."""
JSON = {"content-type": ["application/json"]}


@dataclass
class IssuerManner:
    """How it treats requests; shares from 0 to 1, all 0 when it is well.

    *down*: of requests that find nobody; *late*: of those that are held up on their way, for up to *late_s*;
    *slow*: of answers that take up to *late_s*; *lost*: of answers that never arrive; *cut*: of requests
    whose connection breaks, before or after they are done; *busy*: 429; *ill*: 503.
    """

    down: float = 0.0
    late: float = 0.0
    slow: float = 0.0
    late_s: float = 12.0
    lost: float = 0.0
    cut: float = 0.0
    busy: float = 0.0
    ill: float = 0.0

    def heal(self) -> None:
        """Be well again."""
        for field in fields(self):
            setattr(self, field.name, field.default)


class Tokens(NamedTuple):
    """A first grant."""

    access_token: str
    refresh_token: str
    expires_in_s: float
    account_id: str


@dataclass(slots=True)
class Leave:
    """*process* asked for leave to send a token at *at*.

    *done_at*: when it had done with that send, as an answer had come, nothing had left, or it did not want to
    wait any more. None: it died, or its answer never came.
    """

    process: str
    at: float
    done_at: float | None = None


class _Lines:
    """The ledger's lines in memory, numbered from 1."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self.entries: list[LedgerEntry] = []

    def write(self, ev: str, **fields: object) -> None:
        """Add one; what is None is left out."""
        fields_set = {name: value for name, value in fields.items() if value is not None}
        self.entries.append(LedgerEntry(1, self._now(), len(self.entries) + 1, ev, fields_set))


class SimIssuer:
    """All token endpoints, and what they know of their tokens. *strikes* counts what they did to requests."""

    def __init__(self, now: Callable[[], float], draw: Random, strikes: Counter[str] | None = None) -> None:
        self.strikes: Counter[str] = Counter() if strikes is None else strikes
        self._now = now
        self._draw = draw
        self._lines = _Lines(now)
        self._entries = LedgerRecorder(self._lines)
        self._minted = 0
        self.families = Families(self._mint)
        self.manner = IssuerManner()
        self.senders: dict[int, str] = {}
        """Which process sent a request, by its number."""
        self.deadlines: dict[int, float] = {}
        """How long its sender would wait, in seconds."""
        self.leaves: dict[str, list[Leave]] = {}
        """Who asked for leave to send a refresh token, by its text."""
        self.asked: dict[int, float] = {}
        """When the sender of a request asked for leave to send it."""
        self.ends: dict[int, HowItEnded] = {}
        """How it ended."""
        self.since: dict[int, float] = {}
        """Since when it may have been under way, as far as the clock of a database can tell."""
        self.late: set[int] = set()
        """Those that left late."""

    def _mint(self, kind: str) -> str:
        self._minted += 1
        return f"{kind}-{self._minted}"

    def register(self, provider: str, tenant: str, life_s: float = ACCESS_TTL_S) -> Tokens:
        """A customer has consented; the connection has his name, its first access token *life_s* to live."""
        family = self.families.register(
            Family(provider, tenant, RULES[provider], "", f"account-{tenant}"),
            now=self._now(),
            ttl_s=life_s,
        )
        self._entries.registered(family, "registered")
        first = family.current
        return Tokens(first.access.text, first.text, life_s, f"account-{tenant}")

    def transport(self, process: SimProcess, latency_s: Callable[[], float]) -> IssuerRoad:
        """The way there of one process."""
        return IssuerRoad(self, process, Wire(process, latency_s))

    def verdict(self, access_text: str) -> tuple[str, Family | None]:
        """live, expired, revoked or unknown; and whose token it is."""
        access = self.families.access(access_text)
        return self.families.verdict_on(access, self._now()), None if access is None else access.family

    def ledger(self) -> Ledger:
        """All that happened here so far."""
        return Ledger(tuple(self._lines.entries))

    # ---- a request -----------------------------------------------------------------------------

    def chance(self, behaviour: str, part: float = 1.0) -> bool:
        """Whether it treats a request so; *part* of the share of *manner*."""
        share = getattr(self.manner, behaviour) * part
        if share > 0 and self._draw.random() < share:
            self.strikes[f"issuer_{behaviour}"] += 1
            return True
        return False

    def up_to(self, most_s: float) -> float:
        """A time of at most *most_s*."""
        return self._draw.random() * most_s

    def arrive(
        self,
        call: TokenCall,
        process: str,
        since: float | None = None,
        late_s: float = 0.0,
        requested_at: float | None = None,
    ) -> WireResponse[HttpResponse]:
        """One request is here; what becomes of it is decided now."""
        visit = self._visit(call)
        self.asked[visit.number] = self._now() if requested_at is None else requested_at
        self.since[visit.number] = self._now() if since is None else since
        if late_s:
            self.late.add(visit.number)
        self.senders[visit.number], self.deadlines[visit.number] = process, call.deadline_s
        self._entries.arrived(visit, self._now(), query=False, complete=True)
        if self.chance("cut", 0.5):
            return self._reply(visit, None)
        if self.chance("busy"):
            return self._reply(visit, _answer(429, {"error": "rate_limited"}, {"retry-after": ["2"]}))
        if self.chance("ill"):
            return self._reply(visit, _answer(503, {"error": "temporarily_unavailable"}))
        return self._process(visit)

    def _visit(self, call: TokenCall) -> TokenRequestInfo:
        provider = urlsplit(call.url).path.split("/")[1]
        form = {name: value.reveal() for name, value in call.form.items()}
        visit = TokenRequestInfo(len(self.senders) + 1, "token", provider, form, form.get("client_id"), None)
        visit.generation = self.families.find(form.get("refresh_token", ""))
        if visit.generation is not None:
            visit.connection = visit.generation.family.connection
        return visit

    def _process(self, visit: TokenRequestInfo) -> WireResponse[HttpResponse]:
        if visit.generation is None:
            self._entries.processed(visit, RefreshRefused("unknown"))
            return self._reply(visit, _answer(400, {"error": "invalid_grant"}))
        outcome = self.families.refresh(visit.generation, now=self._now(), ttl_s=ACCESS_TTL_S)
        self._entries.processed(visit, outcome)
        if isinstance(outcome, RefreshRefused):
            return self._reply(visit, _answer(400, {"error": "invalid_grant"}))
        answer = None if self.chance("cut", 0.5) else _answer(200, _token(outcome))
        return self._reply(visit, answer, outcome, lost=self.chance("lost"))

    def _reply(
        self,
        visit: TokenRequestInfo,
        answer: HttpResponse | None,
        granted: RefreshGranted | None = None,
        *,
        lost: bool = False,
    ) -> WireResponse[HttpResponse]:
        def ended(how: HowItEnded) -> None:
            self.ends[visit.number] = how
            self._entries.answered(
                visit,
                status=None if answer is None else answer.status,
                delivered=how == "answered",
                granted=granted,
                complete=True,
            )

        slow = self.chance("slow")
        after_s = WORK_S + (self.up_to(self.manner.late_s) if slow else 0.0)
        return WireResponse(answer, after_s, ended, lost=lost)


class IssuerRoad:
    """The token transport of one process; see fairlead.engine.ports.TokenTransport."""

    def __init__(self, issuer: SimIssuer, process: SimProcess, wire: Wire) -> None:
        self._issuer = issuer
        self._process = process
        self._wire = wire

    async def send(
        self, call: TokenCall, before_sent: Callable[[], Awaitable[None]]
    ) -> HttpResponse | NoResponse:
        """Connect, ask for leave, send once."""
        loop, issuer = asyncio.get_running_loop(), self._issuer
        start_at = loop.time()
        if issuer.chance("down"):
            await asyncio.sleep(issuer.up_to(call.deadline_s))
            return NoResponse(sent=False, kind="connect", why="nobody answers there")
        if not await self._wire.connect(call.deadline_s):
            return NoResponse(sent=False, kind="connect", why="nobody answers there in time")
        token = call.form.get("refresh_token")
        leave = Leave(self._process.name, loop.time())
        issuer.leaves.setdefault("" if token is None else token.reveal(), []).append(leave)
        try:
            answer = await self._leave(call, before_sent, start_at, leave.at)
        except (Exception, asyncio.CancelledError):
            leave.done_at = loop.time()
            raise
        if isinstance(answer, HttpResponse) or not answer.sent:
            leave.done_at = loop.time()
        return answer

    async def _leave(
        self,
        call: TokenCall,
        before_sent: Callable[[], Awaitable[None]],
        started_at: float,
        requested_at: float,
    ) -> HttpResponse | NoResponse:
        loop, issuer = asyncio.get_running_loop(), self._issuer
        await before_sent()
        let_go = loop.time()
        if let_go - started_at >= call.deadline_s:  # it stood still after the mark
            return NoResponse(sent=False, kind="timeout", why="no time was left to send")
        faultpoint("token.before_write")
        await asyncio.sleep(0)  # who was stopped there goes on from here
        sent_at = loop.time()
        late_s, since, name = sent_at - let_go, requested_at + sent_at - let_go, self._process.name
        on_its_way_s = issuer.up_to(issuer.manner.late_s) if issuer.chance("late") else 0.0
        response = await self._wire.ask(
            lambda: issuer.arrive(call, name, since, late_s, requested_at), call.deadline_s, on_its_way_s
        )
        if isinstance(response, HttpResponse):
            return replace(response, late_s=late_s)
        return NoResponse(sent=True, kind=response, why="the answer did not come")


def _token(granted: RefreshGranted) -> dict[str, object]:
    body: dict[str, object] = {
        "access_token": granted.access.text,
        "token_type": "Bearer",
        "expires_in": int(granted.access.life_s),
        "account_id": granted.family.account_id,
    }
    if granted.successor is not None:
        body["refresh_token"] = granted.successor.text
    return body


def _answer(status: int, body: dict[str, object], more: dict[str, list[str]] | None = None) -> HttpResponse:
    headers: dict[str, Any] = JSON | (more or {})
    return HttpResponse(status, headers, json.dumps(body).encode(), WORK_S)
