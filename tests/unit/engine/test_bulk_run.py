"""The rows of a bulk operation: fetched once more where they break off, without the credential, bounded.

Over 400 lines because it is one scenario in many ends.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass, field
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest

from fairlead.engine.calls.bulk_operation import BulkOrder, BulkRun, BulkRuns
from fairlead.engine.jobs.handler import JobContext, current_job
from fairlead.engine.limits.bulk_slots import BulkOperation, BulkRequest
from fairlead.engine.ports import ConnectionKey, HttpRequest, NoResponse, StreamBroken
from fairlead.errors import BulkLimitReachedError, BulkStillRunningError, CallFailedError
from fairlead.policy.calls.bulk import BULK_PROTOCOLS
from fairlead.policy.calls.bulk.protocol import BulkQuery
from fairlead.policy.limits.bulk_token import BulkToken
from fairlead.policy.limits.feedback.raw_response import RawResponse
from fairlead.testing import ManualClock

KEY = ConnectionKey("acme", "shopify", "default")
ID = "gid://shopify/BulkOperation/1"
URL = "https://storage.example/rows?signature=s"
TEXT = "{ orders { nodes { id } } }"
ROWS = b'{"id": 1}\n{"id": 2}\n{"id": 3}\n'


@dataclass
class File:
    """One answer to the fetch of the rows: what comes, and whether it breaks off after it."""

    body: bytes = ROWS
    status: int = 200
    broken: bool = False


class Streamed:
    def __init__(self, file: File) -> None:
        self.status, self.headers, self._file = file.status, {}, file

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for at in range(0, len(self._file.body), 7):
            yield self._file.body[at : at + 7]
        if self._file.broken:
            raise StreamBroken(NoResponse(True, "reset", "cut off"), self)


@dataclass
class Vendor:
    """A vendor whose operation has had these statuses; *others*: what runs there already, newest first."""

    statuses: list[str] = field(default_factory=lambda: ["COMPLETED"])
    files: list[File | NoResponse] = field(default_factory=lambda: [File()])
    others: list[dict[str, Any]] = field(default_factory=list)
    refused: str | None = None
    url: str | None = URL
    objects: str | None = None
    error_code: str | None = None
    clock: ManualClock = field(default_factory=lambda: ManualClock(autojump_s=0.0))
    begun: int = 0
    looks: int = 0
    fetched: list[HttpRequest] = field(default_factory=list)
    place: BulkOperation = field(init=False)
    left_running: bool | None = None
    resumed: bool = False

    @asynccontextmanager
    async def enter(self, wish: BulkRequest) -> AsyncIterator[BulkOperation]:
        assert wish.knows_running
        token = BulkToken(1, 1, "bulk:p", "")
        self.place = BulkOperation(KEY, token, "shopify", lambda _event: None, resumed=self.resumed)
        try:
            yield self.place
        finally:
            self.left_running = self.place.running_id is not None

    def shown(self) -> dict[str, Any]:
        status = self.statuses.pop(0) if len(self.statuses) > 1 else self.statuses[0]
        told = {"url": self.url, "errorCode": self.error_code, "objectCount": self.objects}
        return {"id": ID, "status": status, "query": TEXT, **told}

    async def ask(self, ask: BulkQuery) -> RawResponse:
        if ask.changes:
            self.begun += 1
            if self.refused:
                denied = {"bulkOperation": None, "userErrors": [{"code": self.refused, "message": "no"}]}
                reply = RawResponse(200, {}, body={"data": {"bulkOperationRunQuery": denied}})
                if self.refused == "INVALID":
                    return reply
                raise CallFailedError("refused", raw_response=reply, reason=self.refused)
            return RawResponse(
                200, {}, body={"data": {"bulkOperationRunQuery": {"bulkOperation": self.shown()}}}
            )
        if "bulkOperations" in ask.query:
            return RawResponse(200, {}, body={"data": {"bulkOperations": {"nodes": self.others}}})
        self.looks += 1
        return RawResponse(200, {}, body={"data": {"bulkOperation": self.shown()}})

    @asynccontextmanager
    async def stream(self, request: HttpRequest) -> AsyncIterator[Any]:
        self.fetched.append(request)
        came = self.files.pop(0)
        yield came if isinstance(came, NoResponse) else Streamed(came)

    @asynccontextmanager
    async def run(self, text: str = TEXT, **order: Any) -> AsyncIterator[BulkRun]:
        world: Any = self
        runs = BulkRuns(world, world, clock=self.clock, draw=lambda: 0.5)
        key = order.pop("key", KEY)
        way = BULK_PROTOCOLS["shopify"]
        variables = {"stagedUploadPath": "tmp/x"} if way.kind_of(text) == "mutation" else {}
        known = {"version": "2026-01", "again_s": 30.0, "text": text, "variables": variables}
        async with runs.enter(BulkOrder(key, way, way.kind_of(text), **(known | order)), self.ask) as run:
            yield run

    async def ids(self, **more: Any) -> list[int]:
        async with self.run(**more) as run:
            return [row["id"] async for row in run.rows()]


@asynccontextmanager
async def in_a_job(
    before: JobContext | None = None, clock: ManualClock | None = None
) -> AsyncIterator[JobContext]:
    """What is done in the block is done by a run of a job, the one after *before*; with *clock* for 60 s."""
    args = (before._next_args or before.job.args) if before else {}
    created_at = datetime(2026, 1, 1, tzinfo=UTC)
    job: Any = SimpleNamespace(attempt=1, job_id="job-1", tenant_id="acme", args=args, created_at=created_at)
    ends_s = 60.0 + clock.monotonic() if clock else 0.0
    context = JobContext(job, lambda: ends_s - clock.monotonic() if clock else 300.0)
    running = current_job.set(context)
    try:
        yield context
    finally:
        current_job.reset(running)


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


def other(text: str = TEXT, status: str = "RUNNING", number: int = 1) -> dict[str, Any]:
    return {"id": f"gid://shopify/BulkOperation/{number}", "status": status, "query": text, "url": URL}


async def test_the_same_one_that_runs_already_is_adopted() -> None:
    vendor = Vendor(["COMPLETED"], others=[other("{ shop }", number=9), other(TEXT.replace(" ", "\n  "))])
    async with vendor.run() as run:
        assert (run.adopted, run.id) == (True, ID)
        assert [row["id"] async for row in run.rows()] == [1, 2, 3]
    assert (vendor.begun, vendor.left_running) == (0, False)


async def test_another_one_or_one_that_has_ended_is_not() -> None:
    vendor = Vendor(others=[other("{ shop }", number=9), other(status="COMPLETED", number=8)])
    async with vendor.run() as run:
        assert (run.adopted, run.id) == (False, ID)
    assert vendor.begun == 1


async def test_in_a_place_that_was_ours_one_that_has_ended_is_taken_if_it_was_begun_after_its_job() -> None:
    """The one of last night has the same text, and the rows of last night."""
    for created_at, begun in (
        ("2026-01-01T00:01:00Z", 0),
        ("2025-12-31T00:00:00Z", 1),
        (None, 1),
        ("soon", 1),
    ):
        vendor = Vendor(others=[{**other(status="COMPLETED"), "createdAt": created_at}], resumed=True)
        async with in_a_job():
            assert await vendor.ids() == [1, 2, 3]
        assert vendor.begun == begun


@pytest.mark.parametrize("code", ["OPERATION_IN_PROGRESS", "LIMIT_REACHED"])
async def test_where_a_stranger_runs_it_is_said_when_to_come_back(code: str) -> None:
    vendor = Vendor(refused=code, others=[other("{ shop }")])
    with pytest.raises(BulkLimitReachedError) as busy:
        await vendor.ids()
    assert (busy.value.retry_after_s, busy.value.reason, vendor.left_running) == (30.0, code, False)


async def test_of_mutations_the_text_does_not_tell_which_lines_they_read() -> None:
    text = "mutation ($input: X!) { productUpdate(input: $input) { product { id } } }"
    vendor = Vendor(others=[other(text)])
    async with vendor.run(text) as run:
        assert not run.adopted
    vendor = Vendor(others=[other(text)], resumed=True)
    async with vendor.run(text) as run:
        assert run.adopted


# ---- in a job, and without end ---------------------------------------------------------------------


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
    vendor.statuses, vendor.resumed, vendor.others = ["COMPLETED"], place_kept, [other(number=9)]
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
