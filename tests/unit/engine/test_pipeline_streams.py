"""Answers that are streamed, and what they are judged by."""

from __future__ import annotations

from tests.unit.engine.test_pipeline import GET, World, answer


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
