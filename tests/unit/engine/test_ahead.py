"""What is in use is read again before it is too old, and none of its callers waits for that."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from fairlead._core.secret import Secret
from fairlead.engine.base.background_refresh import BackgroundRefresh
from fairlead.engine.limits.connection_cache import AHEAD_S, FRESH_S, ConnectionCache
from fairlead.engine.ports import Connection, ConnectionKey
from fairlead.engine.tokens.reader import AHEAD_SHARE, TokenReader
from fairlead.errors import DependencyUnavailableError, ReauthRequiredError
from fairlead.policy.tokens.token import TokenSet
from fairlead.testing._kit.clock import ManualClock
from tests.support.engine import Recorder
from tests.support.entrances import settled

KEY = ConnectionKey("acme", "stripe")
CACHE_S = 5.0


class Slow:
    """A store whose reads are answered when ``answer`` is set, with what it is by then."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.asked = 0
        self.answer = asyncio.Event()
        self.answer.set()
        self.away = self.gone = False
        self.generation = 1
        self.state = "active"

    async def _answered(self) -> None:
        self.asked += 1
        await self.answer.wait()
        if self.away:
            raise DependencyUnavailableError("PostgreSQL does not answer")


class Connections(Slow):
    """Connections of which the version tells when they were read."""

    def __init__(self) -> None:
        super().__init__()
        self.cache = ConnectionCache(self._read, clock=self.clock, emit=Recorder())

    async def _read(self, key: ConnectionKey) -> Connection | None:
        await self._answered()
        if self.gone:
            return None
        return cast(Connection, SimpleNamespace(version=self.generation))


async def test_a_connection_in_use_is_read_behind_its_callers() -> None:
    store = Connections()
    first = await store.cache.connection(KEY)
    await store.clock.advance(FRESH_S - AHEAD_S)
    store.answer.clear()
    for _ in range(3):
        assert store.cache.cached(KEY) is first
        await settled()
    assert store.asked == 2, "one look is under way, and nobody begins another"
    store.generation = 2
    store.answer.set()
    await settled()
    await store.clock.advance(AHEAD_S)
    again = store.cache.cached(KEY)
    assert again is not None
    assert again.version == 2, "its age counts from the look"


async def test_unused_entry_is_not_refreshed() -> None:
    store = Connections()
    await store.cache.connection(KEY)
    await store.clock.advance(FRESH_S - AHEAD_S - 0.1)
    assert store.cache.cached(KEY) is not None
    await store.clock.advance(10 * FRESH_S)
    assert store.asked == 1


async def test_a_look_that_fails_has_found_the_database_away() -> None:
    store = Connections()
    first = await store.cache.connection(KEY)
    await store.clock.advance(FRESH_S - AHEAD_S)
    store.away = True
    assert store.cache.cached(KEY) is first
    await settled()
    await store.clock.advance(AHEAD_S + 0.1)
    assert store.cache.cached(KEY) is first, "nobody had to find that out by waiting"
    assert store.asked == 2


async def test_removed_connection_leaves_the_cache_after_a_refresh() -> None:
    store = Connections()
    await store.cache.connection(KEY)
    await store.clock.advance(FRESH_S - AHEAD_S)
    store.gone = True
    assert store.cache.cached(KEY) is not None
    await settled()
    assert store.cache.cached(KEY) is None


class Tokens(Slow):
    """A credential of which the token tells when it was read."""

    def __init__(self) -> None:
        super().__init__()
        cache: Any = self
        deps: Any = SimpleNamespace(store=cache, clock=self.clock, emit=Recorder())
        self.reader = TokenReader(deps, cache, cache, CACHE_S)

    async def read(self, key: ConnectionKey) -> Any:
        read = SimpleNamespace(
            state=self.state,
            refreshable=False,
            expires_in_s=None,
            urgent_in_s=None,
            generation=self.generation,
            connection=SimpleNamespace(connection_id=1, key=KEY),
        )
        await self._answered()
        return None if self.gone else read

    async def open_token(self, credential: Any) -> Any:
        return self._fresh(credential.generation)

    async def refresh(self, connection_id: object, newer_than: int, actor: str) -> Any:
        self.generation = newer_than + 1
        return self._fresh(self.generation)

    def _fresh(self, generation: int) -> Any:
        tokens = TokenSet(Secret(f"t{generation}"))
        return SimpleNamespace(key=KEY, tokens=tokens, generation=generation, expires_in_s=None)


async def test_a_token_in_use_is_looked_up_behind_its_callers() -> None:
    store = Tokens()
    first = await store.reader.token(KEY)
    await store.clock.advance(CACHE_S * (1 - AHEAD_SHARE))
    store.answer.clear()
    store.generation = 2
    for _ in range(3):
        assert store.reader.cached(KEY) == first
        await settled()
    assert store.asked == 2
    store.answer.set()
    await settled()
    await store.clock.advance(CACHE_S * AHEAD_SHARE)
    served = store.reader.cached(KEY)
    assert served is not None
    assert served.generation == 2


async def test_a_look_that_began_before_a_refresh_brings_no_old_token_back() -> None:
    store = Tokens()
    await store.reader.token(KEY)
    await store.clock.advance(CACHE_S * (1 - AHEAD_SHARE))
    store.answer.clear()
    store.reader.cached(KEY)
    await settled()
    late, store.answer = store.answer, asyncio.Event()
    store.answer.set()
    assert (await store.reader.refreshed_after(KEY, 1)).generation == 2
    late.set()
    await settled()
    assert store.reader.cached(KEY) is None
    assert (await store.reader.token(KEY)).generation == 2


@pytest.mark.parametrize("state", ["revoked", "needs_reauth"])
async def test_result_of_a_background_refresh_is_used(state: str) -> None:
    store = Tokens()
    await store.reader.token(KEY)
    await store.clock.advance(CACHE_S * (1 - AHEAD_SHARE))
    store.state = state
    assert store.reader.cached(KEY) is not None
    await settled()
    assert store.reader.cached(KEY) is None
    if state == "revoked":
        with pytest.raises(ReauthRequiredError):
            await store.reader.token(KEY)


async def test_of_one_key_one_look_is_under_way() -> None:
    looks, started_count, go_on = BackgroundRefresh(), 0, asyncio.Event()

    async def read() -> None:
        nonlocal started_count
        started_count += 1
        await go_on.wait()

    looks.start("a", read)
    looks.start("a", read)
    looks.start("b", read)
    await settled()
    assert started_count == 2
    looks.cancel("a")
    looks.start("a", read)
    await settled()
    assert started_count == 3, "what was dropped is not waited for"
    go_on.set()
    await settled()
    looks.start("a", read)
    await settled()
    assert started_count == 4
