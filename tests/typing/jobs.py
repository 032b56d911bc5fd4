"""What type checkers see of jobs: never run, read by mypy in strict mode (test_typing.py).

A line with ``type: ignore`` must be an error, or mypy tells that the comment is not needed.
"""

from __future__ import annotations

from typing import Any, assert_type
from uuid import UUID

from pydantic import BaseModel

from fairlead import EnqueuedJob, Fairlead, JobContext, JobRequest, RetryPolicy, Snooze
from fairlead.testing import MemoryFairlead

fl = Fairlead.from_env()


class Order(BaseModel):
    order_id: int


@fl.job
async def bare(ctx: JobContext, order_id: int, note: str | None = None) -> str:
    return f"{order_id} {note}"


@fl.job("by.place", queue="slow", retry=3, timeout_s=10, priority="urgent", group="shop")
def plain(ctx: JobContext, order: Order) -> int:
    return order.order_id


@fl.job(kind="by.name", retry=RetryPolicy(), group=lambda args: str(args["order_id"]))
async def may_snooze(ctx: JobContext) -> Snooze | None:
    return ctx.pause(60, reason="429", scope="tenant") if ctx.attempt == 1 else None


@fl.cron("0 3 * * *", missed="catch_up")
@fl.job(queue="slow")
async def nightly(ctx: JobContext, dry: bool = False) -> None: ...


@fl.cron("@hourly")
async def hourly(ctx: JobContext) -> None: ...


@fl.job  # type: ignore[arg-type]
async def takes_no_context(number: int) -> None: ...


async def used(ctx: JobContext) -> None:
    assert_type(await bare(ctx, 7, note="x"), str)
    assert_type(plain(ctx, Order(order_id=1)), int)
    assert_type(await may_snooze(ctx), Snooze | None)
    await nightly(ctx, dry=True)
    await bare(ctx, "seven")  # type: ignore[arg-type]
    await bare(ctx)  # type: ignore[call-arg]

    assert_type(await bare.enqueue(order_id=7, tenant="acme", delay_s=5), EnqueuedJob)
    await bare.enqueue(order_id=7)  # type: ignore[call-arg]
    assert_type(await bare.for_tenant("acme", unique_key="k").enqueue(7, note="x"), EnqueuedJob)
    await bare.for_tenant("acme").enqueue("seven")  # type: ignore[arg-type]
    await bare.for_tenant("acme").enqueue(7, nots="x")  # type: ignore[call-arg]
    bare.for_tenant("acme", prioritiy=1)  # type: ignore[call-arg]
    assert_type(bare.for_tenant("acme").request(7), JobRequest)
    assert_type(await plain.enqueue_many([{"order_id": 1}], tenant="acme"), list[EnqueuedJob])


async def stored() -> None:
    assert_type(await fl.enqueue("kind", {"a": 1}, tenant="acme", tags=["x"]), EnqueuedJob)
    assert_type(await fl.enqueue(bare, {"order_id": 1}, tenant="acme", transaction=object()), EnqueuedJob)
    await fl.enqueue("kind", {"a": 1})  # type: ignore[call-arg]
    await fl.enqueue("kind", tenant="acme", delay_s="soon")  # type: ignore[arg-type]
    assert_type(await fl.enqueue_many([JobRequest("kind", tenant="acme", priority="low")]), list[EnqueuedJob])
    assert_type(await fl.result(UUID(int=1), timeout_s=5), Any)
    fl.schedule("nightly.acme", "@daily", nightly, tenant="acme", args={"dry": True})
    fl.schedule("x", "@daily", "kind", missed="sometimes")  # type: ignore[arg-type]


def blocking() -> None:
    with fl.sync as sf:
        assert_type(sf.enqueue(bare, {"order_id": 1}, tenant="acme"), EnqueuedJob)
        assert_type(sf.enqueue_many([]), list[EnqueuedJob])
        sf.enqueue("kind")  # type: ignore[call-arg]
    assert_type(fl.sync.token("acme", "shopify").access_token.reveal(), str)


async def tested() -> None:
    async with MemoryFairlead(fl) as mem:
        (job,) = await mem.drain(60, raise_errors=True)
        assert_type(job.job_id, UUID)
