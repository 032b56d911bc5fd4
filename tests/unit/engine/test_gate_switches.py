"""Switches as a process heeds them: no question to anybody for a call, and the last good answer kept."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

import pytest

from fairlead.engine.limits.override_cache import RETRY_AFTER_S, Overrides
from fairlead.engine.ports import ConnectionKey, Override, Rollout
from fairlead.errors import DependencyUnavailableError, LimitExceededError
from fairlead.events import Event, GateBypassed
from fairlead.policy.limits.override import EVERYTHING, OverrideKind, OverrideScope, rollout_position
from fairlead.testing._kit.clock import ManualClock

KEY = ConnectionKey("acme", "stripe", "default")
ITS_OWN = OverrideScope("acme", "stripe", "default")
OTHERS = [
    ConnectionKey("beta", "stripe", "default"),
    ConnectionKey("acme", "hubspot", "default"),
    ConnectionKey("acme", "stripe", "second"),
]


class Table:
    """The rows; *away* as a database that is."""

    def __init__(self) -> None:
        self.rows: list[Override] = []
        self.away = False

    async def search(self) -> Sequence[Override]:
        if self.away:
            raise DependencyUnavailableError("away")
        return self.rows

    def put(self, act: OverrideKind, reach: OverrideScope, rollout: Rollout | None = None) -> None:
        self.rows.append(Override(act, reach, "vendor asked", "cli:ann", datetime.now(UTC), rollout))


class World:
    def __init__(self) -> None:
        self.clock = ManualClock(start=100.0)
        self.table = Table()
        self.alone: list[str | None] = []
        self.events: list[Event] = []
        self.overrides = Overrides(
            self.table,  # type: ignore[arg-type]
            self._stand_alone,
            clock=self.clock,
            emit=self.events.append,
        )

    async def _stand_alone(self, why: str | None) -> None:
        self.alone.append(why)

    async def override_store(
        self, act: OverrideKind, reach: OverrideScope, rollout: Rollout | None = None
    ) -> None:
        self.table.put(act, reach, rollout)
        await self.overrides.refresh()

    def is_open(self, key: ConnectionKey) -> bool:
        try:
            self.overrides.check(key)
        except LimitExceededError:
            return False
        return True


@pytest.fixture
def world() -> World:
    return World()


async def test_nothing_is_switched(world: World) -> None:
    await world.overrides.refresh()
    assert world.is_open(KEY)
    assert not world.overrides.bypasses(KEY)
    assert world.alone == [None]
    assert world.events == []


async def test_isolated_connection_is_refused_with_actor_and_reason(world: World) -> None:
    await world.override_store(OverrideKind.ISOLATED, ITS_OWN)
    with pytest.raises(LimitExceededError, match=r"vendor asked \(cli:ann.*gate breaker reset") as refused:
        world.overrides.check(KEY)
    assert (refused.value.reason, refused.value.retry_after_s) == ("isolated", RETRY_AFTER_S)
    assert all(world.is_open(other) for other in OTHERS)


@pytest.mark.parametrize(
    ("reach", "reached"),
    [(ITS_OWN, set()), (OverrideScope(provider="stripe"), {0, 2}), (EVERYTHING, {0, 1, 2})],
)
@pytest.mark.parametrize("act", [OverrideKind.ISOLATED, OverrideKind.DISABLED])
async def test_a_switch_reaches_what_it_names(
    world: World, act: OverrideKind, reach: OverrideScope, reached: set[int]
) -> None:
    await world.override_store(act, reach)
    for key, expected in [(KEY, True), *((other, i in reached) for i, other in enumerate(OTHERS))]:
        assert world.is_open(key) is not (expected and act is OverrideKind.ISOLATED)
        assert world.overrides.bypasses(key) is (expected and act is OverrideKind.DISABLED)
        assert world.overrides.enforces(key) is not (expected and act is OverrideKind.DISABLED)


async def test_calls_past_their_limits_are_counted_and_reported_at_each_refresh(world: World) -> None:
    await world.override_store(OverrideKind.DISABLED, EVERYTHING)
    for key in (KEY, KEY, *OTHERS):
        assert world.overrides.bypasses(key)
    await world.overrides.refresh()
    assert world.events == [GateBypassed("hubspot", 1), GateBypassed("stripe", 4)]
    await world.overrides.refresh()
    assert len(world.events) == 2


async def test_limits_come_back_for_more_and_more_connections(world: World) -> None:
    keys = [ConnectionKey(f"t{number}", "stripe", "default") for number in range(200)]
    await world.override_store(OverrideKind.DISABLED, EVERYTHING, Rollout(age_s=50.0, step_s=60.0))
    for share in (0.1, 0.25, 0.5, 1.0):
        back = {key for key in keys if not world.overrides.bypasses(key)}
        assert back == {
            key for key in keys if rollout_position(key.tenant, key.provider, key.account) < share
        }
        await world.clock.advance(60)


async def test_of_two_that_reach_a_call_one_is_enough(world: World) -> None:
    await world.override_store(OverrideKind.DISABLED, EVERYTHING, Rollout(age_s=1e6, step_s=60.0))
    assert not world.overrides.bypasses(KEY)
    await world.override_store(OverrideKind.DISABLED, ITS_OWN)
    assert world.overrides.bypasses(KEY)


async def test_removed_override_ends_at_the_next_read(world: World) -> None:
    await world.override_store(OverrideKind.ISOLATED, EVERYTHING)
    world.table.rows.clear()
    await world.overrides.refresh()
    assert world.is_open(KEY)


async def test_a_read_that_fails_keeps_the_last_good_one(world: World) -> None:
    await world.override_store(OverrideKind.ISOLATED, EVERYTHING)
    world.table.rows.clear()
    world.table.away = True
    with pytest.raises(DependencyUnavailableError):
        await world.overrides.refresh()
    assert not world.is_open(KEY)


async def test_the_gate_is_told_at_each_look_whether_it_is_degraded(world: World) -> None:
    await world.override_store(OverrideKind.DEGRADED, EVERYTHING)
    world.table.rows.clear()
    await world.overrides.refresh()
    assert world.alone == ["vendor asked (cli:ann)", None]
    assert world.is_open(KEY)
