"""Places among bulk operations, on every gate: they outlive runs, and go by their token alone (G5)."""

from __future__ import annotations

import asyncio

import pytest

from fairlead.engine.limits.bulk_slots import BulkRequest
from fairlead.errors import (
    BulkLimitReachedError,
    InvalidInputError,
    LimiterUnavailableError,
    LimitExceededError,
    SlotLostError,
)
from fairlead.events import BulkAdopted, GateWouldRefuse
from fairlead.policy.limits.bulk_token import UNTIED
from fairlead.policy.limits.feedback.raw_response import RawResponse
from fairlead.policy.limits.override import OverrideKind
from fairlead.testing._kit.clock import ManualClock
from tests.contract.bulk import LEASE_S, OTHER, RUNNING, SHOP, Fleet
from tests.contract.gates import Timed


@pytest.fixture
def fleet(timed: Timed) -> Fleet:
    return Fleet(timed, ManualClock(start=1000.0))


async def test_a_place_outlives_its_block_and_is_given_back_by_token_elsewhere(fleet: Fleet) -> None:
    starter, poller = fleet.process("p1"), fleet.process("p2")
    token = await starter.begin()
    assert not await poller.is_free()
    for _ in range(10):
        await fleet.tick(LEASE_S - 1)
        assert await poller.come_back(token) == RUNNING
        assert not await starter.is_free(), "who looks after it renews it"
    assert await poller.come_back(token, done=True) == RUNNING
    assert await starter.is_free()


async def test_a_block_that_began_nothing_gives_its_place_back(fleet: Fleet) -> None:
    first = fleet.process("p1")
    with pytest.raises(ValueError, match="the vendor said no"):
        await first.fail("the vendor said no")
    assert await first.is_free()


async def test_a_block_that_fails_after_it_began_keeps_its_place(fleet: Fleet) -> None:
    first = fleet.process("p1")
    with pytest.raises(ValueError, match="afterwards"):
        await first.fail("afterwards", running_id=RUNNING)
    assert not await first.is_free()


async def test_bulk_place_ends_with_its_lease(fleet: Fleet) -> None:
    first = fleet.process("p1")
    await first.begin()
    await fleet.tick(LEASE_S - 1)
    assert not await first.is_free()
    await fleet.tick(2)
    assert await first.is_free()


async def test_a_stale_token_neither_renews_nor_gives_back_what_is_anothers(fleet: Fleet) -> None:
    late, next_one = fleet.process("p1"), fleet.process("p2")
    old = await late.begin()
    await fleet.tick(LEASE_S + 1)
    new = await next_one.begin(running_id="another")
    with pytest.raises(SlotLostError, match=r"acme.*shopify.*hint: take a place anew"):
        await late.come_back(old)
    with pytest.raises(SlotLostError):
        await late.come_back(old, done=True)
    assert not await late.is_free(), "the new one is still held"
    assert await next_one.come_back(new) == "another"
    assert int(new.split(".")[1]) > int(old.split(".")[1]), "a later place has a larger fence"
    await fleet.tick(LEASE_S - 1)
    with pytest.raises(SlotLostError):
        await late.come_back(old)
    await fleet.tick(2)
    assert await late.is_free(), "the stale token has renewed nothing"


async def test_a_holder_that_was_overtaken_within_its_block_gives_nothing_back(fleet: Fleet) -> None:
    late, next_one = fleet.process("p1"), fleet.process("p2")
    async with late.bulks.enter(BulkRequest(SHOP, "query", "2025-10")):
        fleet.timed.tick(LEASE_S + 1)  # its machine slept, and so did its clock: nobody renewed
        await next_one.begin()
    assert not await late.is_free()


async def test_a_block_whose_place_is_lost_is_ended(fleet: Fleet) -> None:
    late, next_one = fleet.process("p1"), fleet.process("p2")

    async def overtaken() -> None:
        async with late.bulks.enter(BulkRequest(SHOP, "query", "2025-10")):
            await fleet.tick(LEASE_S + 1)
            await next_one.begin()
            await late.renewer.beat()
            await asyncio.Event().wait()

    with pytest.raises(SlotLostError, match="shopify"):
        await overtaken()


async def test_types_are_apart_before_2026_01_and_five_together_since(fleet: Fleet) -> None:
    first = fleet.process("p1")
    await first.begin()
    async with first.bulks.enter(BulkRequest(SHOP, "MUTATION", "2025-10")):
        pass
    for number in range(5):
        await first.begin(running_id=f"op-{number}", api_version="2026-01")
    with pytest.raises(BulkLimitReachedError, match=r"5 bulk operation") as busy:
        async with first.bulks.enter(BulkRequest(SHOP, "mutation", "2026-04")):
            pass
    assert busy.value.retry_after_s == 30


async def test_shops_do_not_share(fleet: Fleet) -> None:
    first = fleet.process("p1")
    await first.begin()
    assert not await first.is_free()
    assert await first.is_free(OTHER)


async def test_an_operation_that_runs_already_is_adopted_and_counts(fleet: Fleet) -> None:
    """Somebody unknown began it: it takes a place here, and is looked after until it is done."""
    first = fleet.process("p1")
    refusal = {"bulkOperation": None, "userErrors": [{"code": "OPERATION_IN_PROGRESS", "message": "..."}]}
    async with first.bulks.enter(BulkRequest(SHOP, "query", "2025-10")) as operation:
        assert operation.rejection_code(RawResponse(200, body={"data": {"bulkOperationRunQuery": refusal}}))
        operation.adopt(RUNNING)
    assert [event.running_id for event in first.told.of(BulkAdopted)] == [RUNNING]
    assert not await first.is_free()
    assert await first.come_back(operation.token, done=True) == RUNNING
    assert await first.is_free()


async def test_an_answer_without_such_a_refusal_blocks_nothing(fleet: Fleet) -> None:
    started = {"bulkOperation": {"id": RUNNING, "status": "CREATED"}, "userErrors": []}
    async with fleet.process("p1").bulks.enter(BulkRequest(SHOP, "query")) as operation:
        assert (
            operation.rejection_code(RawResponse(200, body={"data": {"bulkOperationRunQuery": started}}))
            is None
        )
        with pytest.raises(InvalidInputError, match="id in the provider's response"):
            operation.started("not a name")


async def test_bulk_operation_that_may_wait_queues(fleet: Fleet) -> None:
    first, other = fleet.process("p1"), fleet.process("p2")
    token = await first.begin()
    entered = asyncio.Event()

    async def waits() -> None:
        async with other.bulks.enter(BulkRequest(SHOP, "query", "2025-10", wait_s=30)):
            entered.set()

    waiting = asyncio.create_task(waits())
    while not fleet.clock.sleepers:  # it is in line, and asks again within a second
        await asyncio.sleep(0)
    await first.come_back(token, done=True)
    await fleet.tick(1)
    await asyncio.wait_for(entered.wait(), 10)
    await waiting


async def test_observed_bulk_operation_is_reported_and_admitted(fleet: Fleet) -> None:
    await fleet.process("p1").begin()
    observer = fleet.process("p2", observe=True)
    token = await observer.begin(running_id="beside")
    assert await observer.come_back(token) == "beside"
    assert len(observer.told.of(GateWouldRefuse)) == 2


async def test_manual_switch_overrides_bulk_places(fleet: Fleet) -> None:
    first, other = fleet.process("p1"), fleet.process("p2")
    await other.switch(OverrideKind.ISOLATED)
    with pytest.raises(LimitExceededError, match="stopped by hand: because"):
        await other.begin()
    token = await first.begin()
    await other.switch(OverrideKind.DISABLED)
    assert await other.begin(running_id="beside"), "nobody is refused where limits are off"
    assert await first.come_back(token, done=True) == RUNNING


async def test_a_token_is_checked_and_without_the_store_it_waits(fleet: Fleet) -> None:
    first = fleet.process("p1")
    with pytest.raises(InvalidInputError, match=r"operation\.token"):
        await first.come_back("something")
    token = await first.begin()
    await first.gate._fail_over(LimiterUnavailableError("away"))
    with pytest.raises(LimiterUnavailableError) as refused:
        await first.come_back(token)
    assert refused.value.retry_after_s == 5


async def test_bulk_place_finished_elsewhere_is_not_restored_after_an_outage(fleet: Fleet) -> None:
    """Else the return would bring a place back that another process has given back meanwhile."""
    first, other = fleet.process("p1"), fleet.process("p2")
    token = await first.begin()
    degraded = await first.gate._fail_over(LimiterUnavailableError("cut off"))
    assert await other.come_back(token, done=True) == RUNNING
    await first.gate._return_to_fleet(degraded)
    assert await other.is_free()


async def test_bulk_place_left_during_an_outage_is_not_restored_after_it(fleet: Fleet) -> None:
    first, other = fleet.process("p1"), fleet.process("p2")
    async with first.bulks.enter(BulkRequest(SHOP, "query", "2025-10")) as operation:
        operation.started(RUNNING)
        degraded = await first.gate._fail_over(LimiterUnavailableError("cut off"))
    assert await other.come_back(operation.token, done=True) == RUNNING
    await first.gate._return_to_fleet(degraded)
    assert await other.is_free()


async def test_a_block_that_goes_on_with_a_token_goes_on_through_an_outage(fleet: Fleet) -> None:
    first, other = fleet.process("p1"), fleet.process("p2")
    token = await first.begin()
    async with other.bulks.enter(BulkRequest(SHOP, "query", "2025-10", token)):
        degraded = await other.gate._fail_over(LimiterUnavailableError("cut off"))
        await fleet.tick(10)
        await other.renewer.beat()
        await other.gate._return_to_fleet(degraded)
        assert not await first.is_free()


@pytest.mark.parametrize(("job", "is_found"), [("job-1", True), ("job-2", False)])
async def test_a_job_finds_the_place_that_an_earlier_run_of_it_left_taken(
    fleet: Fleet, job: str, is_found: bool
) -> None:
    """Whoever ran before is dead or elsewhere: what the gate keeps of the place is enough."""
    first, second = fleet.process(f"{UNTIED}p1"), fleet.process(f"{UNTIED}p2")
    with fleet.in_job("job-1"):
        token = await first.begin()
    second.sees(token)
    with fleet.in_job(job):
        if not is_found:
            with pytest.raises(BulkLimitReachedError):
                await second.enter_own()
            return
        async with second.bulks.enter(BulkRequest(SHOP, "query", "2025-10", knows_running=True)) as operation:
            assert (operation.resumed, operation.running_id) == (True, None)
            with pytest.raises(BulkLimitReachedError):  # one is in it already
                await second.enter_own()
        assert await first.is_free()
    with pytest.raises(SlotLostError):
        await first.come_back(token)
