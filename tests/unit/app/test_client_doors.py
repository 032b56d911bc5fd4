"""By whatever door: a database that hangs does not hold a caller beyond his deadline (C6)."""

from __future__ import annotations

from typing import Any

import pytest

from fairlead.app.client.client import Client
from fairlead.app.client.response import Response
from fairlead.engine.ports import Connection, ConnectionKey
from fairlead.errors import DeadlineExceededError, InvalidInputError
from fairlead.policy.providers.profile_load import load_profiles
from tests.unit.engine.test_pipeline import KEY, World, answer

PROFILES = load_profiles([])
BY_CURSOR = {"kind": "link", "items": "data"}
NONE: Any = None
DOORS = ("get", "graphql", "soap", "stream", "paginate", "bulk")


class AnsweringWorld(World):
    """Its database takes *reads_s* to tell of a connection, of which nothing is remembered."""

    reads_s = 90.0

    async def connection(self, key: ConnectionKey) -> Connection:
        await self.clock.sleep(self.reads_s)
        return await super().connection(key)


def client(world: World) -> Client:
    return Client(KEY, world.pipeline(), lambda provider, _variant: PROFILES[provider], NONE)


async def through(door: str, api: Any, deadline_s: float) -> None:
    url = "https://api.stripe.com/v1/items"
    match door:
        case "stream":
            async with api.stream("GET", url, deadline_s=deadline_s):
                pytest.fail("it was begun")
        case "bulk":
            async with api.bulk("{ a }", deadline_s=deadline_s):
                pytest.fail("it was begun")
        case "paginate":
            listing = api.paginate(url, pages=BY_CURSOR, deadline_s=deadline_s)
            assert [item async for item in listing] == []
            if listing.error is not None:
                raise listing.error
        case "get":
            await api.get(url, deadline_s=deadline_s)
        case "graphql":
            await api.graphql("{ a }", api="rest", deadline_s=deadline_s)
        case "soap":
            await api.soap("get", "<a/>", path=url, deadline_s=deadline_s)


@pytest.mark.parametrize("door", DOORS)
async def test_no_door_waits_for_the_connection_past_the_deadline(door: str) -> None:
    world = AnsweringWorld([answer(200)])
    with pytest.raises(DeadlineExceededError, match="connection"):
        await through(door, client(world), 4.0)
    assert (world.clock.monotonic(), world.sent) == (4.0, [])


@pytest.mark.parametrize("door", [door for door in DOORS if door != "bulk"])
async def test_wait_for_the_database_counts_against_the_deadline(door: str) -> None:
    """Read twice, 3 s each: the second read has but a second left."""
    world = AnsweringWorld([answer(200)])
    world.reads_s = 3.0
    with pytest.raises(DeadlineExceededError, match="connection"):
        await through(door, client(world), 4.0)
    assert (world.clock.monotonic(), world.sent) == (4.0, [])


async def test_call_without_a_deadline_waits_for_a_minute() -> None:
    world = AnsweringWorld([])
    with pytest.raises(DeadlineExceededError, match="connection"):
        async with client(world):
            pytest.fail("it was entered")
    assert world.clock.monotonic() == 60.0


def test_a_deadline_that_is_none_is_no_deadline_of_a_list() -> None:
    with pytest.raises(InvalidInputError, match="deadline_s"):
        client(AnsweringWorld([])).paginate("/items", deadline_s=0.0)


async def test_batch_reports_its_done_items_when_the_database_hangs() -> None:
    raw = b'{"items": [{"status": 200}, {"status": 503}]}'
    world = AnsweringWorld([answer(207, raw)])
    world.reads_s = 0.0
    api = client(world)

    async def send(_items: list[str]) -> Response:
        response = await api.post("https://api.stripe.com/v1/items", json=[])
        world.reads_s = 90.0
        return response

    result = await api.batch(["a", "b"], send, item_id=str)
    assert [failure.item for failure in result.failed] == ["b"]
    assert isinstance(result.error, DeadlineExceededError)
    assert (len(result.responses), world.clock.monotonic()) == (1, 60.0)
