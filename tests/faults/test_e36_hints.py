"""E36: waits that a vendor asks for, in every form of V1, V2 and V3, sane and not (R15, C4).

What is readable is kept to and capped, what is not is as good as not said, and nothing is tried again before
its time: neither by the call itself nor by the next one, which the gate holds back. In full size each form is
followed by others like it with other numbers, every second of them not readable.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import cycle, islice
from pathlib import Path

import pytest

from fairlead.adapters.embedded import Endpoints
from fairlead.adapters.postgres.connection_setup import DatabaseSettings
from fairlead.app.client import Response
from fairlead.engine.limits import observations
from fairlead.errors import CallFailedError, LimitExceededError
from fairlead.policy.calls.classify import classifier as judge_module
from fairlead.policy.failures import strategy as strategy_module
from fairlead.testing.api.raw import RawConnection, RawServer
from tests.faults.support.calls import Callers, calling, settings_of
from tests.faults.support.hints import CAP_S, KINDS, HintLines
from tests.faults.support.report import Figures, conclude, quantiles, sized

pytestmark = pytest.mark.slow

NEXT_S = 2e-5  # in which a bucket that is empty when a wait ends has room for a call, at 100,000 a second
SPREAD, BACKOFF_S = 1.1, 5.0
"""A wait may be longer than what was asked for: by a tenth, or by the backoff where that is more."""
HINTS = sized(0, 1000)
"""How many of each kind: 0 is each form of it once."""
TIMED = sized(20, 200)
AT_ONCE = 20
DEADLINE_S = 4.0
"""Too short for another try: the wait is told."""


ALWAYS = ("crashes", "unheard", "early", "over_cap")
NEXT = ("next_call_early", "next_call_late")


class _Vendor:
    """Refuses the first call to ``/N`` with the N-th lines, and answers later ones; knows when each came."""

    def __init__(self) -> None:
        self.cases: list[HintLines] = []
        self.came_s: dict[int, list[float]] = {}

    async def script(self, connection: RawConnection) -> None:
        while (request := await connection.request()) is not None:
            number = int(request.split(b" ", 2)[1][1:])
            came_s = self.came_s.setdefault(number, [])
            came_s.append(time.monotonic())
            status = "200 OK" if len(came_s) > 1 else "429 Too Many Requests"
            lines = "".join(f"{name}: {value}\r\n" for name, value in self.cases[number][0])
            head = f"HTTP/1.1 {status}\r\nContent-Length: 2\r\n{lines if len(came_s) == 1 else ''}\r\n"
            await connection.send(head.encode() + b"{}")


class _Ground:
    """What came of hints that can be read, and of nonsense."""

    def __init__(self, callers: Callers, vendor: _Vendor, url: str) -> None:
        self.callers, self.vendor, self.url = callers, vendor, url
        self.readable, self.nonsense = Counter[str](), Counter[str]()
        self.over_s: list[float] = []
        self.wrong = self.crash = ""
        """One of them, to begin with."""

    async def judged(self) -> None:
        """Each case at a connection of its own, tried once: how long it is told to wait, and who else is."""
        numbers = iter(range(len(self.vendor.cases)))

        async def ask_on() -> None:
            for number in numbers:
                await self._judged(number)

        await asyncio.gather(*(ask_on() for _ in range(AT_ONCE)))

    async def _judged(self, number: int) -> None:
        tenant, asked_s = f"tenant{number}", self.vendor.cases[number][1]
        counts = self.readable if asked_s else self.nonsense
        counts["n"] += 1
        await self.callers.connect(tenant)
        began_s = time.monotonic()
        try:
            outcome = await self.callers.call(tenant, f"{self.url}/{number}", deadline_s=DEADLINE_S)
            outcome_after = await self.callers.call(tenant, f"{self.url}/{number}", wait_s=0.0)
        except Exception as error:
            counts["crashes"] += 1
            self.crash = repr(error)[:200]
            return
        if not isinstance(outcome, CallFailedError):
            counts["crashes"] += 1
            return
        counts["unheard"] += (
            outcome.response is None or outcome.response.status != 429
        )  # else nothing was asked for
        wait_s, told_s = outcome.retry_after_s or 0.0, min(asked_s or 0.0, CAP_S)
        longest_s = max(told_s * SPREAD, told_s + BACKOFF_S)
        self._note_wrong(counts, number, early=wait_s < told_s, over_cap=wait_s > longest_s)
        if asked_s:
            self.over_s.append(wait_s - told_s)
            self._held(outcome_after, told_s, number, time.monotonic() - began_s)
        else:
            at_s = (
                (outcome_after.retry_after_s or CAP_S)
                if isinstance(outcome_after, LimitExceededError)
                else 0.0
            )
            is_held = at_s > NEXT_S or not isinstance(outcome_after, Response | LimitExceededError)
            self._note_wrong(counts, number, next_call_held=is_held)

    def _held(self, outcome_after: object, told_s: float, number: int, took_s: float) -> None:
        """The next call waits at the gate for as long, unless the time is over already."""
        if not isinstance(outcome_after, LimitExceededError) or outcome_after.retry_after_s is None:
            first_s, *later_s = self.vendor.came_s[number]
            is_early = not later_s or later_s[0] - first_s < told_s
            self._note_wrong(self.readable, number, next_call_early=is_early)
            return
        is_early, is_late = (
            outcome_after.retry_after_s < told_s - took_s,
            outcome_after.retry_after_s > told_s + NEXT_S,
        )
        self._note_wrong(self.readable, number, next_call_early=is_early, next_call_late=is_late)

    def _note_wrong(self, counts: Counter[str], number: int, **wrong: bool) -> None:
        counts.update(wrong)
        if any(wrong.values()):
            self.wrong = repr(self.vendor.cases[number])[:200]

    async def timed(self) -> list[float]:
        """Calls that try again by themselves: the second request is never before its time."""
        waits = list(islice(cycle(((1, "1"), (2, "1.2"), (1, "0.5"), (2, "2"))), TIMED))
        first = len(self.vendor.cases)
        self.vendor.cases += [([("Retry-After", text)], wait_s) for wait_s, text in waits]

        async def call_one(number: int) -> float:
            await self.callers.connect(f"tenant{number}", max_retries=1)
            await self.callers.call(f"tenant{number}", f"{self.url}/{number}", deadline_s=30.0)
            came_s, asked_s = self.vendor.came_s[number], self.vendor.cases[number][1]
            assert asked_s is not None
            self.readable["crashes"] += len(came_s) != 2
            return came_s[-1] - came_s[0] - asked_s

        late_s = list(await asyncio.gather(*(call_one(number) for number in range(first, first + TIMED))))
        self.readable.update(n=len(late_s), early=sum(each_s < 0 for each_s in late_s))
        return late_s

    def note(self, readable: Figures, nonsense: Figures | None = None) -> None:
        """Each with its own chances."""
        readable.note(what="readable", n=self.readable["n"], longer_s=quantiles(self.over_s))
        readable.zero(**{name: self.readable[name] for name in (*ALWAYS, *NEXT)})
        if nonsense is not None:
            nonsense.note(what="nonsense", n=self.nonsense["n"])
            nonsense.zero(**{name: self.nonsense[name] for name in (*ALWAYS, "next_call_held")})
        for figures in (readable, nonsense):
            if figures is not None and (self.wrong or self.crash):
                figures.note(wrong=self.wrong, crash=self.crash)


@asynccontextmanager
async def _ground(servers: Endpoints, database: DatabaseSettings, folder: Path) -> AsyncIterator[_Ground]:
    vendor = _Vendor()
    async with (
        RawServer(vendor.script) as server,
        calling(settings_of(servers, database, folder)) as callers,
    ):
        yield _Ground(callers, vendor, server.url)


@pytest.mark.parametrize("kind", KINDS)
async def test_E36_hints(
    kind: str, servers: Endpoints, database_settings: DatabaseSettings, tmp_path: Path
) -> None:
    readable, nonsense = Figures("E36"), Figures("E36")
    hint_kind = KINDS[kind]
    async with _ground(servers, database_settings, tmp_path) as ground:
        ground.vendor.cases = list(islice(hint_kind.cases(readable.draw), max(len(hint_kind.forms), HINTS)))
        await ground.judged()
        ground.note(readable, nonsense)
    conclude(readable, nonsense)


async def test_E36_timed(servers: Endpoints, database_settings: DatabaseSettings, tmp_path: Path) -> None:
    figures = Figures("E36")
    async with _ground(servers, database_settings, tmp_path) as ground:
        figures.note(late_s=quantiles(await ground.timed()))
        ground.note(figures)
    figures.conclude()


@pytest.mark.parametrize(
    ("ablation", "part_name", "sees"),
    [
        ("no_cap", "readable", "over_cap"),
        ("call_does_not_hear", "readable", "early"),
        ("gate_does_not_hear", "readable", "next_call_early"),
        ("python_reads_numbers", "nonsense", "next_call_held"),
    ],
)
async def test_E36_ablation(
    ablation: str,
    part_name: str,
    sees: str,
    servers: Endpoints,
    database_settings: DatabaseSettings,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    both = {part_name: Figures("E36", ablation=ablation, sees=sees) for part_name in ("readable", "nonsense")}
    match ablation:
        case "no_cap":
            monkeypatch.setattr(strategy_module, "HINT_CAP_S", 1e12)
        case "call_does_not_hear":
            monkeypatch.setattr(judge_module, "_hint_s", lambda _case: None)
        case "gate_does_not_hear":
            monkeypatch.setattr(observations, "clamp_hint", lambda *_args, **_named: 0.0)
        case "python_reads_numbers":
            monkeypatch.setattr("fairlead.policy.failures.hint._seconds", float)
    async with _ground(servers, database_settings, tmp_path) as ground:
        ground.vendor.cases = list(KINDS["V1"].forms)
        await ground.judged()
        ground.note(**both)
    both[part_name].conclude()
