"""E36: waits that a vendor asks for, in every form of V1, V2 and V3, sane and not (R15, C4).

What is readable is kept to and capped, what is not is as good as not said, and nothing is tried again before
its time: neither by the call itself nor by the next one, which the gate holds back.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from itertools import cycle, islice
from pathlib import Path
from random import Random

import pytest

from fairlead.adapters.embedded import Endpoints
from fairlead.adapters.postgres.session import DatabaseSettings
from fairlead.engine.gate import learn
from fairlead.errors import CallFailed, GateClosed
from fairlead.policy.classify import judge as judge_module
from fairlead.policy.classify import strategy as strategy_module
from fairlead.testing.api.raw import RawConnection, RawServer
from tests.faults.support.calls import Callers, calling, settings_of
from tests.faults.support.report import Figures, quantiles, sized

pytestmark = pytest.mark.slow

CAP_S = 900.0
NEXT_S = 2e-5  # in which a bucket that is empty when a wait ends has room for a call, at 100,000 a second
SPREAD, BACKOFF_S = 1.1, 5.0
"""A wait may be longer than what was asked for: by a tenth, or by the backoff where that is more."""
HINTS = sized(0, 1000)
"""How many of each kind: 0 is each form of it once."""
TIMED = sized(20, 200)
AT_ONCE = 20
DEADLINE_S = 4.0
"""Too short for another try: the wait is told."""

Told = tuple[list[tuple[str, str]], float | None]
"""Header lines, and the wait in seconds that they ask for; None: none that is readable."""


def _v1(draw: Random) -> Iterator[Told]:
    """Seconds."""
    readable = {"5": 5, " 5 ": 5, "5.5": 6, "0.001": 1, "007": 7, "120, 5": 120, "9999999999": 9_999_999_999}
    nonsense = (
        "0", "-1", "-0", "+5", "1e3", "1e400", "nan", "inf", "1_000", "\u0663\u0666", "0x10", "9" * 5000, "",
        "5,", "soon", "120, soon", "99999999999", "true", "5 s", "\u00b2",
    )  # fmt: skip
    yield from (([("Retry-After", value)], wait_s) for value, wait_s in readable.items())
    yield from (([("Retry-After", value)], None) for value in nonsense)
    yield [("Retry-After", "5"), ("Retry-After", "120")], 120
    while True:
        number = draw.randrange(1, 10 ** draw.randrange(1, 11))
        yield [("Retry-After", str(number))], number


def _v2(draw: Random) -> Iterator[Told]:
    """Dates, by the vendor's clock and by ours."""
    theirs = datetime(2026, 11, 20, 9, 0, 0, tzinfo=UTC)
    date = ("Date", _imf(theirs))
    for ahead_s in (90, 3600, 10_800):
        yield [date, ("Retry-After", _imf(theirs + timedelta(seconds=ahead_s)))], ahead_s
    for text in ("Friday, 20-Nov-26 09:01:30 GMT", "Fri Nov 20 09:01:30 2026"):
        yield [date, ("Retry-After", text)], 90
    for text in (
        _imf(theirs - timedelta(days=1)), "Fri, 31 Dec 9999 23:59:59 GMT", "Fri, 31 Dec 99999 23:59:59 GMT",
        "Fri, 20 Nov 26 09:01:30 GMT", "Fri, 20 Nov 2026 09:01:30 -0000", "Fri, 20 Nov 2026 09:01:30 +9999",
        "Fri, 31 Feb 2026 09:01:30 GMT", "tomorrow", "2026-11-20T09:01:30Z", "Fri, 20 Nov 2026",
    ):  # fmt: skip
        yield [date, ("Retry-After", text)], None
    while True:
        ahead_s = draw.randrange(1, 10**7)
        yield [date, ("Retry-After", _imf(theirs + timedelta(seconds=ahead_s)))], ahead_s


def _v3(draw: Random) -> Iterator[Told]:
    """RateLimit, new and old; Retry-After wins over it."""
    for text, wait_s in (
        ('"default";r=0;t=30', 30), ("default;r=0;t=7", 7), ('"a";r=0;t=10, "b";r=0;t=40', 40),
        ("limit=100, remaining=0, reset=30", 30), ('"default";r=0;t=9999999999', 9_999_999_999),
        ('"default";r=0;t=-30', None), ('"default";r=0;t=1e9', None), ("r=0;t=;;,,", None), (",", None),
        (f'"default";r={"9" * 20};t=1', None), ('"default";r=1.5;t=30', None),
        ('"x";r=1;' + "a" * 9000, None),
    ):  # fmt: skip
        yield [("RateLimit", text)], wait_s
    yield [("RateLimit", '"default";r=0;t=600'), ("Retry-After", "5")], 5
    three = (("0", "30", 30), ("0", "-30", None), ("0", "1e9", None), ("x", "30", None), ("0, 5", "30", None))
    for remaining, reset, wait_s in three:
        yield [("RateLimit-Remaining", remaining), ("RateLimit-Reset", reset)], wait_s
    while True:
        reset_s = draw.randrange(1, 10**9)
        yield [("RateLimit", f'"default";r=0;t={reset_s}')], reset_s


FORMS = {"V1": (_v1, 28), "V2": (_v2, 15), "V3": (_v3, 18)}


def _imf(moment: datetime) -> str:
    return format_datetime(moment, usegmt=True)


class _Vendor:
    """Refuses the first call to ``/N`` with the N-th lines, and answers later ones; knows when each came."""

    def __init__(self) -> None:
        self.cases: list[Told] = []
        self.came_s: dict[int, list[float]] = {}

    async def script(self, connection: RawConnection) -> None:
        while (request := await connection.request()) is not None:
            number = int(request.split(b" ", 2)[1][1:])
            came_s = self.came_s.setdefault(number, [])
            came_s.append(time.monotonic())
            status = "200 OK" if len(came_s) > 1 else "429 Too Many Requests"
            lines = "".join(f"{name}: {value}\r\n" for name, value in self.cases[number][0])
            head = f"HTTP/1.1 {status}\r\nContent-Length: 2\r\n{lines if len(came_s) == 1 else ''}\r\n"
            await connection.say(head.encode() + b"{}")


class _Ground:
    def __init__(self, callers: Callers, vendor: _Vendor, url: str, figures: Figures) -> None:
        self.callers, self.vendor, self.url, self.figures = callers, vendor, url, figures
        self.crashes = self.early = self.over_cap = self.unheld = 0
        self.over_s: list[float] = []

    async def judged(self) -> None:
        """Each case at a connection of its own, tried once: how long it is told to wait, and who else is."""
        numbers = iter(range(len(self.vendor.cases)))

        async def ask_on() -> None:
            for number in numbers:
                await self._judged(number)

        await asyncio.gather(*(ask_on() for _ in range(AT_ONCE)))

    async def _judged(self, number: int) -> None:
        tenant, asked_s = f"tenant{number}", self.vendor.cases[number][1]
        await self.callers.connect(tenant)
        began_s = time.monotonic()
        try:
            came = await self.callers.call(tenant, f"{self.url}/{number}", deadline_s=DEADLINE_S)
            held = await self.callers.call(tenant, f"{self.url}/{number}", wait_s=0.0) if asked_s else None
        except Exception as error:
            self.crashes += 1
            self.figures.note(crash=repr(error)[:200])
            return
        if not isinstance(came, CallFailed):
            self.crashes += 1
            return
        wait_s, told_s = came.retry_after_s or 0.0, min(asked_s or 0.0, CAP_S)
        self.early += wait_s < told_s
        self.over_cap += wait_s > max(told_s * SPREAD, told_s + BACKOFF_S)
        if asked_s:
            self.over_s.append(wait_s - told_s)
            self._held(held, told_s, number, time.monotonic() - began_s)

    def _held(self, held: object, told_s: float, number: int, took_s: float) -> None:
        """The next call waits at the gate, unless the time is over already."""
        if not isinstance(held, GateClosed) or held.retry_after_s is None:
            first_s, *later_s = self.vendor.came_s[number]
            self.unheld += not later_s or later_s[0] - first_s < told_s
            return
        self.early += held.retry_after_s < told_s - took_s
        self.over_cap += held.retry_after_s > CAP_S + NEXT_S

    async def timed(self) -> list[float]:
        """Calls that try again by themselves: the second request is never before its time."""
        waits = list(islice(cycle(((1, "1"), (2, "1.2"), (1, "0.5"), (2, "2"))), TIMED))
        first = len(self.vendor.cases)
        self.vendor.cases += [([("Retry-After", text)], wait_s) for wait_s, text in waits]

        async def one(number: int) -> float:
            await self.callers.connect(f"tenant{number}", max_retries=1)
            await self.callers.call(f"tenant{number}", f"{self.url}/{number}", deadline_s=30.0)
            came_s, asked_s = self.vendor.came_s[number], self.vendor.cases[number][1]
            assert asked_s is not None
            self.crashes += len(came_s) != 2
            return came_s[-1] - came_s[0] - asked_s

        late_s = list(await asyncio.gather(*(one(number) for number in range(first, first + TIMED))))
        self.early += sum(each_s < 0 for each_s in late_s)
        return late_s

    def note(self) -> None:
        self.figures.note(n=len(self.vendor.cases), longer_s=quantiles(self.over_s))
        self.figures.zero(crashes=self.crashes, early=self.early, over_cap=self.over_cap)
        self.figures.zero(next_call_not_held=self.unheld)


@asynccontextmanager
async def _ground(
    figures: Figures, servers: Endpoints, database: DatabaseSettings, folder: Path
) -> AsyncIterator[_Ground]:
    vendor = _Vendor()
    async with (
        RawServer(vendor.script) as server,
        calling(settings_of(servers, database, folder)) as callers,
    ):
        yield _Ground(callers, vendor, server.url, figures)


@pytest.mark.parametrize("kind", FORMS)
async def test_E36_hints(
    kind: str, servers: Endpoints, database_settings: DatabaseSettings, tmp_path: Path
) -> None:
    figures = Figures("E36")
    figures.note(kind=kind)
    told, forms = FORMS[kind]
    async with _ground(figures, servers, database_settings, tmp_path) as ground:
        ground.vendor.cases = list(islice(told(figures.draw), max(forms, HINTS)))
        await ground.judged()
        ground.note()
    figures.conclude()


async def test_E36_timed(servers: Endpoints, database_settings: DatabaseSettings, tmp_path: Path) -> None:
    figures = Figures("E36")
    async with _ground(figures, servers, database_settings, tmp_path) as ground:
        figures.note(kind="timed", late_s=quantiles(await ground.timed()))
        ground.note()
    figures.conclude()


@pytest.mark.parametrize("ablation", ["no_cap", "hint_not_heard", "python_reads_numbers"])
async def test_E36_ablation(
    ablation: str,
    servers: Endpoints,
    database_settings: DatabaseSettings,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    figures = Figures("E36", ablation=ablation)
    match ablation:
        case "no_cap":
            monkeypatch.setattr(strategy_module, "HINT_CAP_S", 1e12)
        case "hint_not_heard":
            monkeypatch.setattr(judge_module, "_hint_s", lambda _case: None)
            monkeypatch.setattr(learn, "clamp_hint", lambda *_given, **_named: 0.0)
        case "python_reads_numbers":
            monkeypatch.setattr("fairlead.policy.hint._seconds", float)
    async with _ground(figures, servers, database_settings, tmp_path) as ground:
        ground.vendor.cases = list(islice(_v1(figures.draw), 28))
        await ground.judged()
        ground.note()
    figures.conclude()
