"""What answers told of limits is written down when it changed, and not more often than need be (G3)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from uuid import UUID

import pytest

from fairlead.engine.limits.learned_limits import MIN_INTERVAL_S, LearnedLimitsWriter
from fairlead.engine.limits.limit_plans import Plans
from fairlead.engine.ports import SLOTS_LIMIT, Connection, ConnectionKey, LearnedLimit, Observation
from fairlead.errors import DependencyUnavailableError
from fairlead.policy.providers.profile_load import load_profiles
from fairlead.testing._kit.clock import ManualClock

PROFILES = load_profiles([])
PLANS = Plans(lambda provider, variant: PROFILES[provider])
SHOP = Connection(UUID(int=1), ConnectionKey("acme", "shopify"), None, "shop-1", "app-1", {}, {}, version=7)
FASTER = Observation(remaining=900, capacity=2000, per_s=100)


class Notes:
    """Keeps what is written, each batch for itself."""

    def __init__(self) -> None:
        self.batches: list[list[LearnedLimit]] = []
        self.away = False

    async def save(self, limits: Sequence[LearnedLimit]) -> None:
        if self.away:
            raise DependencyUnavailableError("the database is away")
        self.batches.append(list(limits))

    @property
    def written(self) -> list[tuple[float, float]]:
        return [(limit.capacity, limit.per_s) for batch in self.batches for limit in batch]


class World:
    def __init__(self) -> None:
        self.clock = ManualClock(start=5000.0)
        self.notes = Notes()
        self.learned_limits = LearnedLimitsWriter(self.notes, clock=self.clock)  # type: ignore[arg-type]

    def hears(self, observation: Observation, of: Connection = SHOP) -> None:
        self.learned_limits.record(of, PLANS.of(of, "graphql").plan, {0: observation})


@pytest.fixture
def world() -> World:
    return World()


async def test_observation_that_differs_from_the_plan_is_stored_once(world: World) -> None:
    for _ in range(100):
        world.hears(FASTER)
    await world.learned_limits.write()
    world.hears(FASTER)
    await world.clock.advance(MIN_INTERVAL_S)
    await world.learned_limits.write()
    assert world.notes.batches == [[LearnedLimit(SHOP.connection_id, "points", 7, 2000, 100)]]


@pytest.mark.parametrize(
    "observation",
    [Observation(remaining=3), Observation(wait_s=5), Observation(900, 1000, 50), Observation(per_s=50)],
)
async def test_observation_equal_to_the_plan_is_not_stored(world: World, observation: Observation) -> None:
    world.hears(observation)
    await world.learned_limits.write()
    assert world.notes.batches == []


async def test_a_part_that_was_not_told_stays_as_it_was(world: World) -> None:
    world.hears(Observation(per_s=100))
    world.hears(Observation(capacity=2000))
    await world.learned_limits.write()
    assert world.notes.written == [(2000, 100)]


async def test_a_limit_that_changes_all_the_time_is_written_once_a_minute(world: World) -> None:
    for second in range(120):
        world.hears(Observation(per_s=100 + second))
        await world.learned_limits.write()
        await world.clock.advance(1.0)
    assert world.notes.written == [(1000, 100), (1000, 160)]
    await world.learned_limits.write(write_all=True)
    assert world.notes.written[-1] == (1000, 219), "the end writes the latest, whenever the last one was"


async def test_return_to_the_plan_is_stored(world: World) -> None:
    world.hears(FASTER)
    await world.learned_limits.write()
    world.hears(Observation(capacity=1000, per_s=50))
    await world.clock.advance(MIN_INTERVAL_S)
    await world.learned_limits.write()
    assert world.notes.written == [(2000, 100), (1000, 50)]


async def test_slots_are_kept_beside_the_limits(world: World) -> None:
    netsuite = replace(SHOP, key=ConnectionKey("acme", "netsuite"))
    plan = PLANS.of(netsuite).plan
    for slots in (5, None, 8, 8):  # 5 is the profile's
        world.learned_limits.record(netsuite, plan, {}, slots)
        await world.learned_limits.write(write_all=True)
    assert world.notes.batches == [[LearnedLimit(SHOP.connection_id, SLOTS_LIMIT, 7, 8, 1.0)]]


async def test_under_newer_settings_it_is_learnt_anew(world: World) -> None:
    world.hears(FASTER)
    await world.learned_limits.write()
    await world.clock.advance(MIN_INTERVAL_S)
    world.hears(FASTER, replace(SHOP, version=8))
    await world.learned_limits.write()
    assert [batch[0].version for batch in world.notes.batches] == [7, 8]


async def test_failed_write_is_repeated_later(world: World) -> None:
    world.notes.away = True
    world.hears(FASTER)
    with pytest.raises(DependencyUnavailableError):
        await world.learned_limits.write()
    world.notes.away = False
    await world.learned_limits.write()
    assert world.notes.written == [(2000, 100)]


@pytest.mark.parametrize(
    "observation", [Observation(capacity=1e300), Observation(per_s=0), Observation(capacity=float("nan"))]
)
async def test_impossible_observation_is_not_stored(world: World, observation: Observation) -> None:
    world.hears(observation)
    await world.learned_limits.write()
    assert world.notes.batches == []
