"""A bulk operation within a job: the job leaves while it has time, and its next run continues."""

from __future__ import annotations

import json
from contextlib import nullcontext
from typing import Any

import pytest

from fairlead.engine.ports import ConnectionKey, NoResponse
from fairlead.errors import BulkStillRunningError, CallFailedError
from tests.unit.engine.bulk_vendor import ID, File, Vendor, in_a_job, operation


async def test_a_job_does_not_stay_with_it_and_keeps_its_place() -> None:
    vendor = Vendor(["RUNNING"])
    async with in_a_job():
        began_s = vendor.clock.monotonic()
        with pytest.raises(BulkStillRunningError) as unfinished:
            await vendor.ids()
        assert vendor.clock.monotonic() - began_s < 4
    assert (unfinished.value.retry_after_s, vendor.left_running) == (30.0, True)


async def test_a_job_that_may_wait_long_leaves_while_it_has_time() -> None:
    """`inline_wait_s` may be 60, and no wait for a look is longer than 30: they would take all its time."""
    vendor = Vendor(["RUNNING"])
    async with in_a_job(clock=vendor.clock) as job:
        with pytest.raises(BulkStillRunningError) as unfinished:
            await vendor.ids(inline_wait_s=60.0)
        assert 20 <= job.remaining_s < 45, "what it needs to end, and an attempt before"
    assert (unfinished.value.retry_after_s, vendor.left_running) == (30.0, True)


async def test_a_job_fetches_its_rows_again_only_while_it_has_time() -> None:
    vendor = Vendor(files=[NoResponse(False, "connect", "refused")] * 4)
    async with in_a_job(clock=vendor.clock) as job:
        await vendor.clock.sleep(39.0)
        with pytest.raises(CallFailedError):
            await vendor.ids(inline_wait_s=60.0)
        assert job.remaining_s >= 20
    assert len(vendor.fetched) == 2, "after 0.75 s, and not after 1.5 s more"


@pytest.mark.parametrize("place_kept", [True, False])
async def test_the_next_run_goes_on_with_the_same_one_whatever_became_of_its_place(place_kept: bool) -> None:
    """It has ended meanwhile, and the vendor has had others since; nothing is begun or searched for."""
    vendor = Vendor(["RUNNING"])
    async with in_a_job() as first:
        with pytest.raises(BulkStillRunningError):
            await vendor.ids()
    vendor.statuses, vendor.resumed, vendor.others = ["COMPLETED"], place_kept, [operation(number=9)]
    async with in_a_job(first) as second, vendor.run() as run:
        assert (run.adopted, run.id) == (True, ID)
        assert [row["id"] async for row in run.rows()] == [1, 2, 3]
    assert (vendor.begun, vendor.left_running) == (1, False)
    vendor.others = []
    async with in_a_job(second), vendor.run() as run:
        assert not run.adopted, "a block that ended well is behind the job"


async def test_a_job_that_runs_the_same_for_two_tenants_keeps_them_apart() -> None:
    acme, beta = Vendor(["RUNNING"]), Vendor()
    async with in_a_job() as first:
        with pytest.raises(BulkStillRunningError):
            await acme.ids()
        async with beta.run(key=ConnectionKey("beta", "shopify", "default")) as run:
            assert not run.adopted, "the operation of another tenant"
    acme.statuses = ["COMPLETED"]
    async with in_a_job(first), acme.run() as run:
        assert run.adopted, "its note is still there"


async def test_after_a_failure_the_next_run_begins_anew() -> None:
    vendor = Vendor(["FAILED"], error_code="TIMEOUT")
    async with in_a_job() as first:
        with pytest.raises(CallFailedError):
            await vendor.ids()
    vendor.statuses = ["COMPLETED"]
    async with in_a_job(first), vendor.run() as run:
        assert not run.adopted


async def test_after_rows_that_will_never_be_had_the_next_run_begins_anew() -> None:
    """A file is kept for some days: the redrive of a dead letter that is older finds it gone."""
    vendor = Vendor(files=[File(status=403), File()])
    async with in_a_job() as first:
        with pytest.raises(CallFailedError, match="cannot be had"):
            await vendor.ids()
    assert vendor.left_running is False
    async with in_a_job(first), vendor.run() as run:
        assert not run.adopted
        assert [row["id"] async for row in run.rows()] == [1, 2, 3]
    assert vendor.begun == 2


async def test_after_rows_that_were_not_to_be_had_just_then_it_reads_the_same_ones() -> None:
    away = NoResponse(False, "connect", "refused")
    vendor = Vendor(files=[away, away, away, File()])
    async with in_a_job() as first:
        with pytest.raises(CallFailedError, match="cannot be had"):
            await vendor.ids(inline_wait_s=1.5)
    async with in_a_job(first), vendor.run() as run:
        assert run.adopted
        assert [row["id"] async for row in run.rows()] == [1, 2, 3]
    assert vendor.begun == 1


@pytest.mark.parametrize("job", [True, False])
async def test_a_job_that_fails_over_its_rows_keeps_its_place_for_the_next_run(job: bool) -> None:
    async def falls(vendor: Vendor) -> None:
        async with vendor.run() as run:
            async for _ in run.rows():
                raise ValueError("of the handler")

    vendor = Vendor()
    async with in_a_job() if job else nullcontext():
        with pytest.raises(ValueError, match="of the handler"):
            await falls(vendor)
    assert vendor.left_running is job


async def test_bulk_operation_is_polled_until_the_deadline() -> None:
    vendor = Vendor(["RUNNING"])
    began_s = vendor.clock.monotonic()
    with pytest.raises(BulkStillRunningError):
        await vendor.ids(deadline_s=600.0)
    assert 500 < vendor.clock.monotonic() - began_s <= 600
    assert vendor.left_running is True


async def test_a_row_is_any_json() -> None:
    values: list[Any] = [{"a": [1]}, 7, "ñ", None]
    body = "".join(f"{json.dumps(value)}\r\n" for value in values).encode() + b"\n"
    vendor = Vendor(files=[File(body)])
    async with vendor.run() as run:
        assert [row async for row in run.rows()] == values
