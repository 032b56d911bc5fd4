"""The rows of a bulk operation: fetched once more where they break off, without the credential, bounded."""

from __future__ import annotations

import pytest

from fairlead.engine.ports import NoResponse
from fairlead.errors import BulkLimitReachedError, CallFailedError
from tests.unit.engine.bulk_vendor import ID, ROWS, TEXT, URL, File, Vendor, in_a_job, operation


async def test_bulk_operation_is_polled_with_growing_waits() -> None:
    vendor = Vendor(["CREATED", "RUNNING", "RUNNING", "RUNNING", "COMPLETED"])
    began_s = vendor.clock.monotonic()
    assert await vendor.ids() == [1, 2, 3]
    assert vendor.clock.monotonic() - began_s == pytest.approx(0.75 * (1 + 2 + 4 + 8))
    assert (vendor.begun, vendor.looks, vendor.left_running) == (1, 4, False)


async def test_the_credential_does_not_go_to_where_the_rows_are() -> None:
    vendor = Vendor()
    await vendor.ids()
    (request,) = vendor.fetched
    assert (request.url, dict(request.headers)) == (URL, {"accept": "*/*"})


async def test_a_fetch_that_breaks_off_goes_on_after_the_last_row_given() -> None:
    files = [File(ROWS[:15], broken=True), NoResponse(False, "connect", "refused"), File(status=503), File()]
    vendor = Vendor(files=[*files])
    assert await vendor.ids() == [1, 2, 3]
    vendor = Vendor(files=[*files[:3], File(ROWS[:15], broken=True)])
    with pytest.raises(CallFailedError, match="cut off") as failed:
        await vendor.ids()
    assert (len(vendor.fetched), failed.value.category) == (4, "transient_network")
    assert "signature" not in str(failed.value)


@pytest.mark.parametrize(
    ("file", "reason"),
    [
        (File(status=403), "http_403"),
        (File(b'{"id": 1}\n{"id":\n'), "not_json"),
        (File(b'{"id": "' + b"x" * 2000 + b'"}\n'), "line_too_long"),
    ],
)
async def test_rows_that_cannot_be_had_are_told_of_at_once(file: File, reason: str) -> None:
    vendor = Vendor(files=[file])
    with pytest.raises(CallFailedError) as failed:
        async with vendor.run() as run:
            _ = [row async for row in run.rows(longest_bytes=1000)]
    assert (failed.value.reason, failed.value.category.partition("_")[0]) == (reason, "permanent")  # type: ignore[union-attr]


async def test_without_a_file_there_are_no_rows() -> None:
    assert await Vendor(url=None, files=[]).ids() == []


async def test_objects_without_a_file_are_no_empty_result() -> None:
    """Some days after its end the vendor has no file of it; an empty list would say that it found nothing."""
    with pytest.raises(CallFailedError, match="no file for its 3 objects") as failed:
        await Vendor(url=None, files=[], objects="3").ids()
    assert (failed.value.reason, failed.value.category) == ("no_file", "permanent_request")


@pytest.mark.parametrize(
    ("status", "code", "category"),
    [
        ("FAILED", "INTERNAL_SERVER_ERROR", "transient_server"),
        ("FAILED", "ACCESS_DENIED", "permanent_permission"),
        ("CANCELED", None, "permanent_request"),
        ("EXPIRED", None, "permanent_request"),
    ],
)
async def test_an_operation_that_failed_says_so_and_frees_its_place(
    status: str, code: str | None, category: str
) -> None:
    vendor = Vendor(["RUNNING", status], error_code=code)
    with pytest.raises(CallFailedError, match=f"ended as {status}") as failed:
        await vendor.ids()
    assert (failed.value.category, failed.value.reason) == (category, code or status)
    assert vendor.left_running is False


async def test_refused_bulk_operation_fails_with_the_vendors_reason() -> None:
    vendor = Vendor(refused="INVALID")
    with pytest.raises(CallFailedError, match="not begun: no") as failed:
        await vendor.ids()
    assert (failed.value.reason, vendor.left_running) == ("INVALID", False)


# ---- what runs already -----------------------------------------------------------------------------


async def test_the_same_one_that_runs_already_is_adopted() -> None:
    vendor = Vendor(
        ["COMPLETED"], others=[operation("{ shop }", number=9), operation(TEXT.replace(" ", "\n  "))]
    )
    async with vendor.run() as run:
        assert (run.adopted, run.id) == (True, ID)
        assert [row["id"] async for row in run.rows()] == [1, 2, 3]
    assert (vendor.begun, vendor.left_running) == (0, False)


async def test_another_one_or_one_that_has_ended_is_not() -> None:
    vendor = Vendor(others=[operation("{ shop }", number=9), operation(status="COMPLETED", number=8)])
    async with vendor.run() as run:
        assert (run.adopted, run.id) == (False, ID)
    assert vendor.begun == 1


async def test_in_a_place_that_was_ours_one_that_has_ended_is_taken_if_it_was_begun_after_its_job() -> None:
    """The one of last night has the same text, and the rows of last night."""
    for created_at, started_at in (
        ("2026-01-01T00:01:00Z", 0),
        ("2025-12-31T00:00:00Z", 1),
        (None, 1),
        ("soon", 1),
    ):
        vendor = Vendor(others=[{**operation(status="COMPLETED"), "createdAt": created_at}], resumed=True)
        async with in_a_job():
            assert await vendor.ids() == [1, 2, 3]
        assert vendor.begun == started_at


@pytest.mark.parametrize("code", ["OPERATION_IN_PROGRESS", "LIMIT_REACHED"])
async def test_where_a_stranger_runs_it_is_said_when_to_come_back(code: str) -> None:
    vendor = Vendor(refused=code, others=[operation("{ shop }")])
    with pytest.raises(BulkLimitReachedError) as busy:
        await vendor.ids()
    assert (busy.value.retry_after_s, busy.value.reason, vendor.left_running) == (30.0, code, False)


async def test_of_mutations_the_text_does_not_tell_which_lines_they_read() -> None:
    text = "mutation ($input: X!) { productUpdate(input: $input) { product { id } } }"
    vendor = Vendor(others=[operation(text)])
    async with vendor.run(text) as run:
        assert not run.adopted
    vendor = Vendor(others=[operation(text)], resumed=True)
    async with vendor.run(text) as run:
        assert run.adopted
