"""Answers that are streamed, and what they are judged by."""

from __future__ import annotations

import pytest

from fairlead.errors import CallFailed
from fairlead.policy.gate.breaker import Health
from tests.unit.engine.test_pipeline import GET, Streamed, World, answer


async def test_a_success_that_is_read_whole_is_judged_by_its_body() -> None:
    throttled = b'{"errors": [{"message": "Throttled", "extensions": {"code": "THROTTLED"}}]}'
    world = World([answer(200, throttled), answer(200, b'{"data": {"a": 1}}')])
    async with world.pipeline().stream(GET, read_whole=lambda stream: True) as stream:
        assert [chunk async for chunk in stream] == [b'{"data": {"a": 1}}']
        assert world.inside == 0, "it has come, and holds nothing"
    assert [event.then for event in world.events] == ["again", "give"]


async def test_what_is_done_in_part_is_given_whatever_its_status() -> None:
    """It would else be asked for until the deadline."""
    part = b'{"data": {"a": 1}, "errors": [{"message": "no b", "extensions": {"code": "B"}}]}'
    world = World([answer(400, part)])
    async with world.pipeline().stream(GET) as stream:
        assert (stream.status, [chunk async for chunk in stream]) == (400, [part])
    assert len(world.sent) == 1


async def test_a_stream_that_ends_with_its_readers_time_says_nothing_of_the_destination(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whoever reads slowly would open the breaker of a vendor that answers well."""
    monkeypatch.setattr(Streamed, "kind", "timeout")
    world = World([answer(200, b"broken")])
    with pytest.raises(CallFailed) as failed:
        async with world.pipeline().stream(GET) as stream:
            _ = [chunk async for chunk in stream]
    assert failed.value.reason == "timeout"
    assert world.passages[0].health is Health.NEUTRAL


async def test_of_two_streams_that_are_read_together_the_one_that_broke_off_is_charged() -> None:
    broken, well = World([answer(200, b"broken")]), World([answer(200, b"chunk")])

    async def together() -> None:
        async with broken.pipeline().stream(GET) as one, well.pipeline().stream(GET) as other:
            assert [chunk async for chunk in other] == [b"chunk"]
            _ = [chunk async for chunk in one]

    with pytest.raises(CallFailed):
        await together()
    assert broken.passages[0].health is Health.UNHEALTHY
    assert well.passages[0].health is Health.HEALTHY
