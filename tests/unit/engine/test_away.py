"""While the database is away, calls go by what was read before: for a while, and no token past its end."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from fairlead._core.secret import Secret
from fairlead.engine.base.database_outage import CANCELLED_AFTER_S, PROBE_EVERY_S, UNRESPONSIVE_AFTER_S
from fairlead.engine.limits.admission import CallRequest
from fairlead.engine.ports import Connection, ConnectionKey
from fairlead.engine.tokens.reader import TokenReader
from fairlead.errors import DeadlineExceededError, DependencyUnavailableError, NotFoundError
from fairlead.events import ServedStale
from fairlead.policy.tokens.token import TokenSet
from fairlead.testing._kit.clock import ManualClock
from tests.support.engine import Recorder
from tests.support.entrances import ConnectionUnderTest, started_task

KEY = ConnectionKey("acme", "stripe")


class WayOfAnAbsentStore(ConnectionUnderTest):
    """Counts who asks; *away*: it cannot answer."""

    away = False
    hangs = False
    gone = False
    asked = 0

    async def _read(self, key: ConnectionKey) -> Connection:
        self.asked += 1
        if self.hangs:
            await asyncio.Event().wait()
        if self.away:
            raise DependencyUnavailableError("PostgreSQL does not answer")
        if self.gone:
            return None  # type: ignore[return-value]
        return await super()._read(key)

    opened: asyncio.Event | None = None

    async def _ready(self) -> None:
        if self.opened is not None:
            await self.opened.wait()
        await super()._ready()


async def test_a_connection_that_is_known_is_called_for_five_minutes() -> None:
    store = WayOfAnAbsentStore()
    await store.call()
    store.away = True
    await store.clock.advance(6.0)
    for _ in range(3):
        await store.call()
    assert store.asked == 2, "it is asked anew each 5 s, not by each call"
    assert store.told.of(ServedStale) == [ServedStale("acme", "stripe", "connection", 6.0)]
    await store.clock.advance(295.0)
    with pytest.raises(DependencyUnavailableError):
        await store.call()
    store.away = False
    await store.call()


async def test_uncached_connection_is_refused_and_a_removed_one_forgotten() -> None:
    store = WayOfAnAbsentStore()
    store.away = True
    with pytest.raises(DependencyUnavailableError):
        await store.call()
    store.away = False
    await store.call()
    store.gone = True
    await store.clock.advance(6.0)
    with pytest.raises(NotFoundError):
        await store.call()
    store.away = True
    with pytest.raises(DependencyUnavailableError):
        await store.call()


async def test_a_database_that_hangs_is_away_for_whoever_is_known() -> None:
    store = WayOfAnAbsentStore()
    await store.call()
    store.hangs = True
    await store.clock.advance(6.0)
    waits = started_task(store.call())
    await store.clock.advance(UNRESPONSIVE_AFTER_S - 0.1)
    assert not waits.done(), "it may only be slow"
    await store.clock.advance(0.1)
    assert waits.done()
    await waits
    await store.call()
    assert store.asked == 2, "nobody else waits for it within 5 s"
    assert store.told.of(ServedStale) == [ServedStale("acme", "stripe", "connection", 8.0)]
    await store.clock.advance(5.0)
    store.hangs = False
    await store.call()
    assert store.asked == 3


async def test_while_it_hangs_one_call_asks_it_and_no_other_waits() -> None:
    store, other = WayOfAnAbsentStore(), ConnectionKey("beta", "stripe")
    for key in (store.key, other):
        async with store.call_admitter.enter(CallRequest(key)):
            pass
    store.hangs = True
    await store.clock.advance(6.0)
    waits = started_task(store.call())
    await store.clock.advance(UNRESPONSIVE_AFTER_S)
    assert waits.done()
    await store.clock.advance(PROBE_EVERY_S)
    asks = started_task(store.call())
    await store.clock.advance(0.0)
    assert not asks.done()
    for _ in range(3):
        await store.call()
        async with store.call_admitter.enter(CallRequest(other)):
            pass
    assert store.asked == 4
    await store.clock.advance(UNRESPONSIVE_AFTER_S)
    assert asks.done()


async def test_calls_whose_time_is_short_find_out_too() -> None:
    store = WayOfAnAbsentStore()
    await store.call()
    store.hangs = True
    await store.clock.advance(6.0)
    for call_s, away in ((CANCELLED_AFTER_S - 0.1, False), (CANCELLED_AFTER_S, True)):
        waits = started_task(store.call(call_s=call_s))
        await store.clock.advance(call_s)
        with pytest.raises(DeadlineExceededError):
            await waits
        assert (store.call_admitter.cached_connection(store.key) is not None) is away


async def test_uncached_connection_is_waited_for_until_the_deadline() -> None:
    store = WayOfAnAbsentStore()
    store.hangs = True
    waits = started_task(store.call(call_s=4.0))
    await store.clock.advance(3.9)
    assert not waits.done()
    await store.clock.advance(0.1)
    assert waits.done()
    with pytest.raises(DeadlineExceededError, match=r"its connection .*acme.* hint: "):
        await waits


async def test_a_gate_that_does_not_open_holds_no_call_beyond_its_deadline() -> None:
    store, opened = WayOfAnAbsentStore(), asyncio.Event()
    store.opened = opened
    waits = started_task(store.call(call_s=4.0))
    await store.clock.advance(4.0)
    assert waits.done()
    with pytest.raises(DeadlineExceededError, match="the gate"):
        await waits
    opened.set()
    await store.call()


class Vault:
    """One credential, which lasts for *lasts_s* from now on."""

    def __init__(self, lasts_s: float | None) -> None:
        self.clock = ManualClock()
        self.told = Recorder()
        self.away = self.hangs = False
        self.state = "active"
        self._lasts_s = lasts_s
        cache: Any = self
        deps: Any = SimpleNamespace(store=cache, clock=self.clock, emit=self.told)
        self.reader = TokenReader(deps, cache, cache, 5.0)

    async def read(self, key: ConnectionKey) -> Any:
        if self.away:
            raise DependencyUnavailableError("PostgreSQL does not answer")
        if self.hangs:
            await asyncio.Event().wait()
        lasts: Any = {"expires_in_s": self._lasts_s, "urgent_in_s": None}
        return SimpleNamespace(state=self.state, refreshable=False, **lasts)

    async def open_token(self, credential: Any) -> Any:
        tokens = TokenSet(Secret("t1"))
        return SimpleNamespace(key=KEY, tokens=tokens, generation=1, expires_in_s=self._lasts_s)


@pytest.mark.parametrize(("lasts_s", "served_s"), [(60.0, 59.0), (None, 300.0), (4000.0, 300.0)])
async def test_a_token_is_served_until_its_end_and_for_five_minutes_at_most(
    lasts_s: float | None, served_s: float
) -> None:
    vault = Vault(lasts_s)
    first = await vault.reader.token(KEY)
    vault.away = True
    await vault.clock.advance(served_s - 1.0)
    assert await vault.reader.token(KEY) == first
    assert vault.told.of(ServedStale) == [ServedStale("acme", "stripe", "token", served_s - 1.0)]
    await vault.clock.advance(1.0)
    with pytest.raises(DependencyUnavailableError):
        await vault.reader.token(KEY)


async def test_a_token_that_is_at_hand_is_served_where_the_database_hangs() -> None:
    vault = Vault(4000.0)
    first = await vault.reader.token(KEY)
    vault.hangs = True
    await vault.clock.advance(6.0)
    waits = asyncio.create_task(vault.reader.token(KEY))
    await vault.clock.advance(UNRESPONSIVE_AFTER_S - 0.1)
    assert not waits.done()
    await vault.clock.advance(0.1)
    assert waits.done()
    assert waits.result() == first
    await vault.clock.advance(PROBE_EVERY_S - 0.1)
    assert await vault.reader.token(KEY) == first, "nobody asks it again so soon"


async def test_a_token_that_was_seen_to_need_its_customer_is_not_kept() -> None:
    vault = Vault(4000.0)
    await vault.reader.token(KEY)
    await vault.clock.advance(6.0)
    vault.state = "needs_reauth"
    await vault.reader.token(KEY)
    vault.away = True
    with pytest.raises(DependencyUnavailableError):
        await vault.reader.token(KEY)
