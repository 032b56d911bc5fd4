"""A vendor of bulk operations for unit tests: it plays statuses and files, and keeps what was asked of it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

from fairlead.engine.calls.bulk_operation import BulkRun, BulkRuns
from fairlead.engine.calls.bulk_order import BulkOrder
from fairlead.engine.jobs.handler import JobContext, current_job
from fairlead.engine.limits.bulk_slots import BulkOperation, BulkRequest
from fairlead.engine.ports import ConnectionKey, HttpRequest, NoResponse, StreamBrokenError
from fairlead.errors import CallFailedError
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
            raise StreamBrokenError(NoResponse(True, "reset", "cut off"), self)


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
    async def enter(self, request: BulkRequest) -> AsyncIterator[BulkOperation]:
        assert request.knows_running
        token = BulkToken(1, 1, "bulk:p", "")
        self.place = BulkOperation(KEY, token, "shopify", lambda _event: None, resumed=self.resumed)
        try:
            yield self.place
        finally:
            self.left_running = self.place.running_id is not None

    def shown(self) -> dict[str, Any]:
        status = self.statuses.pop(0) if len(self.statuses) > 1 else self.statuses[0]
        fields = {"url": self.url, "errorCode": self.error_code, "objectCount": self.objects}
        return {"id": ID, "status": status, "query": TEXT, **fields}

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
        file = self.files.pop(0)
        yield file if isinstance(file, NoResponse) else Streamed(file)

    @asynccontextmanager
    async def run(self, text: str = TEXT, **order: Any) -> AsyncIterator[BulkRun]:
        world: Any = self
        runs = BulkRuns(world, world, clock=self.clock, draw=lambda: 0.5)
        key = order.pop("key", KEY)
        bulk_protocol = BULK_PROTOCOLS["shopify"]
        variables = {"stagedUploadPath": "tmp/x"} if bulk_protocol.kind_of(text) == "mutation" else {}
        fields = {"version": "2026-01", "retry_after_s": 30.0, "text": text, "variables": variables}
        async with runs.enter(
            BulkOrder(key, bulk_protocol, bulk_protocol.kind_of(text), **(fields | order)), self.ask
        ) as run:
            yield run

    async def ids(self, **more: Any) -> list[int]:
        async with self.run(**more) as run:
            return [row["id"] async for row in run.rows()]


@asynccontextmanager
async def in_a_job(
    job_context: JobContext | None = None, clock: ManualClock | None = None
) -> AsyncIterator[JobContext]:
    """What is done in the block is done by a run of a job, the one after *before*; with *clock* for 60 s."""
    args = (job_context._next_args or job_context.job.args) if job_context else {}
    created_at = datetime(2026, 1, 1, tzinfo=UTC)
    job: Any = SimpleNamespace(attempt=1, job_id="job-1", tenant_id="acme", args=args, created_at=created_at)
    ends_s = 60.0 + clock.monotonic() if clock else 0.0
    context = JobContext(job, lambda: ends_s - clock.monotonic() if clock else 300.0)
    running = current_job.set(context)
    try:
        yield context
    finally:
        current_job.reset(running)


def operation(text: str = TEXT, status: str = "RUNNING", number: int = 1) -> dict[str, Any]:
    """Return an operation as the vendor lists it."""
    return {"id": f"gid://shopify/BulkOperation/{number}", "status": status, "query": text, "url": URL}
