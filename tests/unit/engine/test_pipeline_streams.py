"""Answers that are streamed, and what they are judged by."""

from __future__ import annotations

import pytest

from fairlead.errors import CallFailed
from fairlead.policy.gate.breaker import Health
from tests.unit.engine.test_pipeline import GET, World, answer, credentials


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


async def test_a_streamed_answer_holds_its_place_until_the_block_ends() -> None:
    world = World([answer(401), answer(200, b"chunk")])
    async with world.pipeline().stream(GET) as stream:
        assert (stream.status, world.inside) == (200, 1)
        assert [chunk async for chunk in stream] == [b"chunk"]
    assert world.inside == 0
    assert credentials(world) == ["Bearer t1", "Bearer t2"]


async def test_a_stream_that_breaks_off_has_failed() -> None:
    world = World([answer(200, b"broken")])
    with pytest.raises(CallFailed, match="its head was given") as failed:
        async with world.pipeline().stream(GET) as stream:
            _ = [chunk async for chunk in stream]
    assert failed.value.reason == "reset"
    assert world.passages[0].health is Health.UNHEALTHY
    world = World([answer(404, b'{"message": "no such file"}')])
    with pytest.raises(CallFailed, match="no such file"):
        async with world.pipeline().stream(GET):
            pytest.fail("a failure is not streamed")
