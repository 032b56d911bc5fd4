"""Answers that are streamed, and what they are judged by."""

from __future__ import annotations

import pytest

from fairlead.engine.calls.buffered import MAX_FAILURE_BYTES
from fairlead.engine.ports import HttpRequest, HttpResponse, NoResponse
from fairlead.errors import CallFailedError, InvalidInputError
from fairlead.policy.limits.breaker import DestinationHealth
from tests.unit.engine.test_pipeline import GET, Streamed, World, answer, credentials


async def test_a_success_that_is_read_whole_is_judged_by_its_body() -> None:
    throttled = b'{"errors": [{"message": "Throttled", "extensions": {"code": "THROTTLED"}}]}'
    world = World([answer(200, throttled), answer(200, b'{"data": {"a": 1}}')])
    async with world.pipeline().stream(GET, read_whole=lambda stream: True) as stream:
        assert [chunk async for chunk in stream] == [b'{"data": {"a": 1}}']
        assert world.inside == 0, "it has come, and holds nothing"
    assert [event.then for event in world.events] == ["retry", "return"]


async def test_partial_result_is_returned_with_any_status() -> None:
    """It would else be asked for until the deadline."""
    part = b'{"data": {"a": 1}, "errors": [{"message": "no b", "extensions": {"code": "B"}}]}'
    world = World([answer(400, part)])
    async with world.pipeline().stream(GET) as stream:
        assert (stream.status, [chunk async for chunk in stream]) == (400, [part])
    assert len(world.sent) == 1


class Strict(World):
    async def send(self, request: HttpRequest) -> HttpResponse | NoResponse:
        raise InvalidInputError("a header of a call has a character that HTTP does not allow")


async def test_request_that_http_cannot_express_costs_nothing() -> None:
    world = Strict([answer(200)])
    with pytest.raises(InvalidInputError):
        await world.pipeline().send(GET)
    with pytest.raises(InvalidInputError):
        async with world.pipeline().stream(GET):
            pytest.fail("it has no answer")
    assert [admission.actual_cost for admission in world.admissions] == [{0: 0.0}] * 2
    theirs = World([answer(200)])
    with pytest.raises(InvalidInputError):
        async with theirs.pipeline().stream(GET):
            raise InvalidInputError("of the caller's own")
    assert theirs.admissions[0].actual_cost == {}, "it was sent"


@pytest.mark.parametrize("reads_all", [True, False])
async def test_a_failure_is_read_whole_where_somebody_wants_it(reads_all: bool) -> None:
    body = b"x" * (2 * MAX_FAILURE_BYTES)
    with pytest.raises(CallFailedError) as failed:
        async with World([answer(400, body)]).pipeline().stream(GET, read_whole=lambda _stream: reads_all):
            pytest.fail("it failed")
    assert failed.value.response is not None
    assert failed.value.response.body == (body if reads_all else body[:MAX_FAILURE_BYTES])


async def test_a_stream_that_ends_with_its_readers_time_says_nothing_of_the_destination(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whoever reads slowly would open the breaker of a vendor that answers well."""
    monkeypatch.setattr(Streamed, "kind", "timeout")
    world = World([answer(200, b"broken")])
    with pytest.raises(CallFailedError) as failed:
        async with world.pipeline().stream(GET) as stream:
            _ = [chunk async for chunk in stream]
    assert failed.value.reason == "timeout"
    assert world.admissions[0].health is DestinationHealth.NEUTRAL


async def test_of_two_streams_that_are_read_together_the_one_that_broke_off_is_charged() -> None:
    broken, well = World([answer(200, b"broken")]), World([answer(200, b"chunk")])

    async def together() -> None:
        async with broken.pipeline().stream(GET) as first, well.pipeline().stream(GET) as other:
            assert [chunk async for chunk in other] == [b"chunk"]
            _ = [chunk async for chunk in first]

    with pytest.raises(CallFailedError):
        await together()
    assert broken.admissions[0].health is DestinationHealth.UNHEALTHY
    assert well.admissions[0].health is DestinationHealth.HEALTHY


async def test_a_streamed_answer_holds_its_place_until_the_block_ends() -> None:
    world = World([answer(401), answer(200, b"chunk")])
    async with world.pipeline().stream(GET) as stream:
        assert (stream.status, world.inside) == (200, 1)
        assert [chunk async for chunk in stream] == [b"chunk"]
    assert world.inside == 0
    assert credentials(world) == ["Bearer t1", "Bearer t2"]


async def test_a_stream_that_breaks_off_has_failed() -> None:
    world = World([answer(200, b"broken")])
    with pytest.raises(CallFailedError, match="its head was given") as failed:
        async with world.pipeline().stream(GET) as stream:
            _ = [chunk async for chunk in stream]
    assert failed.value.reason == "reset"
    assert world.admissions[0].health is DestinationHealth.UNHEALTHY
    world = World([answer(404, b'{"message": "no such file"}')])
    with pytest.raises(CallFailedError, match="no such file"):
        async with world.pipeline().stream(GET):
            pytest.fail("a failure is not streamed")
