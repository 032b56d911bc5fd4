"""`@fl.job`: what it declares, what enqueueing by it stores, and how its functions are run."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date

import pytest
from pydantic import BaseModel

from fairlead import Fairlead, JobContext, JobRequest, RetryPolicy, Snooze
from fairlead.errors import InvalidConfigError, InvalidInputError, TransientFailureError
from fairlead.policy.failures.category import Category
from fairlead.policy.failures.retry import DEFAULT_POLICY
from fairlead.policy.jobs.job import Priority
from fairlead.testing import MemoryFairlead


class Report(BaseModel):
    pages: int


@dataclass
class Total:
    cents: int


# ---- declaring -------------------------------------------------------------------------------------


def test_the_kind_is_the_functions_name_unless_it_is_given(fl: Fairlead) -> None:
    @fl.job
    async def bare(ctx: JobContext) -> None:
        """What it does."""

    @fl.job()
    async def called(ctx: JobContext) -> None: ...

    @fl.job("by.place")
    async def noop(ctx: JobContext) -> None: ...

    @fl.job(kind="by.name", queue="slow", timeout_s=5, priority="urgent", group="shared", retry=0)
    def two(ctx: JobContext) -> None: ...

    assert [handler.kind for handler in fl.handlers] == ["bare", "called", "by.place", "by.name"]
    assert (bare.__name__, bare.__doc__) == ("bare", "What it does.")
    assert (two.queue, two.priority, two.group) == ("slow", Priority.URGENT, "shared")
    assert (two.handler.timeout_s, noop.handler.timeout_s) == (5, 60)
    assert noop.handler.retry is DEFAULT_POLICY
    assert "by.name" in repr(two)


async def test_the_decorated_function_is_still_the_function(fl: Fairlead) -> None:
    @fl.job
    async def add(ctx: JobContext, first: int, other: int = 1) -> int:
        return first + other

    @fl.job
    def shout(ctx: JobContext, word: str) -> str:
        return word.upper()

    context: JobContext = None  # type: ignore[assignment]
    assert await add(context, 2) == 3
    assert shout(context, word="a") == "A"


def test_taken_name_or_late_declaration_is_refused(fl: Fairlead) -> None:
    @fl.job
    async def work(ctx: JobContext) -> None: ...

    with pytest.raises(InvalidConfigError, match="'work' is already declared"):
        fl.job("work")(work)
    with pytest.raises(InvalidConfigError, match=r"'token\.mine' is already declared"):
        fl.job("token.mine")(lambda ctx: None)
    with MemoryFairlead(fl), pytest.raises(InvalidConfigError, match="is too late"):
        fl.job("late")(lambda ctx: None)
    fl.job("late")(lambda ctx: None)


def test_impossible_job_function_is_refused_at_declaration(fl: Fairlead) -> None:
    async def run(ctx: JobContext) -> None: ...

    async def takes_tenant(ctx: JobContext, tenant: str) -> None: ...

    def yields(ctx: JobContext) -> Iterator[int]:
        yield 1

    for options, error, expected in (
        ({"kind": "No Kind"}, InvalidInputError, "kind"),
        ({"queue": "No Queue"}, InvalidInputError, "queue"),
        ({"timeout_s": 0}, InvalidConfigError, "timeout"),
        ({"priority": "asap"}, InvalidInputError, "priority"),
        ({"group": "a\nb"}, InvalidInputError, "group"),
        ({"retry": -1}, InvalidConfigError, "retry"),
        ({"retry": 20}, InvalidConfigError, "retry"),
        ({"retry": True}, InvalidConfigError, "retry"),
    ):
        with pytest.raises(error, match=expected):
            fl.job(**{"kind": "x"} | options)(run)  # type: ignore[call-overload]
    for function, expected in (
        (takes_tenant, "'tenant' of kind 'x' is a word of enqueue"),
        (yields, "yields"),
    ):
        with pytest.raises(InvalidConfigError, match=expected):
            fl.job("x")(function)
    with pytest.raises(InvalidInputError, match="'<lambda>' is no name for a kind"):
        fl.job(lambda ctx: None)
    assert fl.handlers == []


async def test_a_number_of_retries_holds_for_each_transient_failure(fl: Fairlead) -> None:
    runs = []

    @fl.job(retry=2)
    async def flaky(ctx: JobContext) -> None:
        runs.append(ctx.attempt)
        raise TransientFailureError("503")

    assert flaky.handler.retry.rules[Category.TRANSIENT_SERVER].attempts == 2
    assert flaky.handler.retry.rules[Category.PERMANENT_AUTH].attempts == 0
    async with MemoryFairlead(fl) as mem:
        await flaky.enqueue(tenant="acme")
        await mem.drain(3600)
        assert runs == [1, 2, 3]
        assert len(await mem.dead_letters(kind="flaky")) == 1


async def test_a_policy_of_ones_own_is_taken_as_it_is(fl: Fairlead) -> None:
    retry_policy = RetryPolicy(ceiling=1)

    @fl.job(retry=retry_policy)
    async def once(ctx: JobContext) -> None: ...

    assert once.handler.retry is retry_policy


# ---- enqueueing ------------------------------------------------------------------------------------


async def test_parameters_and_options_stand_side_by_side(fl: Fairlead) -> None:
    @fl.job(queue="slow", priority="low", group="of-kind")
    async def send(ctx: JobContext, order_id: int, note: str = "") -> None: ...

    async with MemoryFairlead(fl) as mem:
        plain = await mem.job(await send.enqueue(7, tenant="acme"))
        assert (plain.kind, plain.tenant_id, plain.args) == ("send", "acme", {"order_id": 7})
        assert (plain.queue, plain.priority) == ("slow", 3)
        view = await mem.job(
            await send.enqueue(
                order_id="8", note="x", tenant="acme", queue="fast", priority="urgent", delay_s=60, tags=["t"]
            )
        )
        assert (view.queue, view.priority, view.label) == ("fast", 1, "scheduled")
        assert view.args == {"order_id": 8, "note": "x"}
        by_name = await mem.job(await fl.enqueue("send", {"order_id": "9"}, tenant="acme"))
        by_object = await mem.job(await fl.enqueue(send, {"order_id": 9}, tenant="acme"))
        assert (by_name.args, by_name.queue) == (by_object.args, by_object.queue) == ({"order_id": 9}, "slow")
        with pytest.raises(InvalidInputError, match="order_id"):
            await send.enqueue("many", tenant="acme")
        with pytest.raises(InvalidInputError, match="order_id"):
            await fl.enqueue("send", {}, tenant="acme")
        with pytest.raises(TypeError, match="prioritiy"):
            await fl.enqueue("send", {"order_id": 1}, tenant="acme", prioritiy=1)  # type: ignore[call-arg]
        assert len(await mem.jobs()) == 4


async def test_an_addressed_handler_takes_its_parameters_alone(fl: Fairlead) -> None:
    @fl.job
    async def send(ctx: JobContext, order_id: int) -> None: ...

    async with MemoryFairlead(fl) as mem:
        acme = send.for_tenant("acme", delay_s=5, unique_key="k")
        first = await acme.enqueue(1)
        assert await acme.enqueue(order_id=2) == first
        request = send.for_tenant("globex").request(order_id=3)
        assert request == JobRequest("send", {"order_id": 3}, tenant="globex")
        (third,) = await fl.enqueue_many([request])
        assert [job.job_id for job in await mem.jobs()] == [first, third]
        with pytest.raises(InvalidInputError, match="order_id"):
            send.for_tenant("acme").request("x")  # type: ignore[arg-type]
        with pytest.raises(InvalidInputError, match="internal to fairlead"):
            await fl.enqueue("token.refresh", tenant="acme")
        with pytest.raises(InvalidInputError, match="enqueue_many"):
            send.for_tenant("acme", transaction=object()).request(1)


async def test_many_are_stored_in_order_or_not_at_all(fl: Fairlead, monkeypatch: pytest.MonkeyPatch) -> None:
    @fl.job
    async def send(ctx: JobContext, order_id: int) -> None: ...

    async with MemoryFairlead(fl) as mem:
        ids = await send.enqueue_many(({"order_id": n} for n in range(3)), tenant="acme", priority=0)
        assert [(await mem.job(job_id)).args["order_id"] for job_id in ids] == [0, 1, 2]
        with pytest.raises(InvalidInputError, match="order_id"):
            await send.enqueue_many([{"order_id": 1}, {"order_id": "x"}], tenant="acme")
        with pytest.raises(InvalidInputError, match="no job to enqueue"):
            await fl.enqueue_many([{"kind": "send"}])  # type: ignore[list-item]
        monkeypatch.setattr("fairlead.app.job_requests.MOST_JOBS", 5)
        with pytest.raises(InvalidInputError, match="more than 5 jobs"):
            await fl.enqueue_many(JobRequest("other", tenant="acme") for _ in range(6))
        monkeypatch.setattr("fairlead.app.job_requests.MOST_BYTES", 100_000)
        large = {"text": "x" * 50_000}
        with pytest.raises(InvalidInputError, match="MiB of args, in one call"):
            await fl.enqueue_many(JobRequest("other", large, tenant="acme") for _ in range(2))
        assert len(await mem.jobs()) == 3
        assert await fl.enqueue_many([]) == []


# ---- groups ----------------------------------------------------------------------------------------


async def test_the_group_is_what_is_said_what_the_kind_names_or_the_account(fl: Fairlead) -> None:
    groups = []

    @fl.job
    async def plain(ctx: JobContext) -> None:
        groups.append(ctx.group)

    @fl.job(group=lambda args: f"shop/{args['shop']}")
    async def of_shop(ctx: JobContext, shop: int) -> None:
        groups.append(ctx.group)

    async with MemoryFairlead(fl) as mem:
        for options in (
            {},
            {"provider": "shopify"},
            {"provider": "shopify", "account": "eu"},
            {"provider": "shopify", "group": "mine"},
            {"provider": "shopify", "group": ""},
        ):
            await plain.enqueue(tenant="acme", **options)
        await of_shop.enqueue(shop=7, tenant="acme", provider="shopify")
        await mem.drain()
        assert sorted(groups) == sorted(["", "shopify/default", "shopify/eu", "mine", "", "shop/7"])
        with pytest.raises(InvalidInputError, match="account and no provider"):
            await plain.enqueue(tenant="acme", account="eu")
        with pytest.raises(InvalidInputError, match="account"):
            await plain.enqueue(tenant="acme", provider="shopify", account="E U")
        with pytest.raises(InvalidInputError, match=r"tags=\['vip'\]"):
            await plain.enqueue(tenant="acme", tags="vip")


# ---- running ---------------------------------------------------------------------------------------


async def test_args_arrive_as_their_types_and_results_are_kept_as_json(fl: Fairlead) -> None:
    @fl.job
    async def report(ctx: JobContext, source: Report) -> Report:
        return Report(pages=source.pages + 1)

    @fl.job
    async def total(ctx: JobContext, cents: int) -> Total:
        return Total(cents)

    @fl.job
    async def several(ctx: JobContext) -> dict[str, object]:
        return {"at": date(2026, 1, 1), "all": [Report(pages=1)], "odd": float("nan"), "what": {1}}

    @fl.job
    async def strange(ctx: JobContext) -> object:
        return [fl.job]

    @fl.job
    async def later(ctx: JobContext) -> Snooze | None:
        return ctx.snooze(60) if ctx.attempt == 1 and not ctx.args.get("now") else None

    async with MemoryFairlead(fl) as mem:
        first = await report.enqueue(Report(pages=1), tenant="acme")
        second = await total.enqueue(cents=5, tenant="acme")
        third, fourth = await several.enqueue(tenant="acme"), await strange.enqueue(tenant="acme")
        await later.enqueue(tenant="acme")
        await mem.drain()
        assert await fl.result(third) == {
            "at": "2026-01-01",
            "all": [{"pages": 1}],
            "odd": {"unstorable": "nan"},
            "what": [1],
        }
        assert "JobRegistry.job" in (await fl.result(fourth))[0]["unstorable"]
        assert (await fl.result(first), await fl.result(second)) == ({"pages": 2}, {"cents": 5})
        (waiting,) = await mem.jobs(kind="later")
        assert (waiting.label, waiting.attempt) == ("scheduled", 0)


async def test_args_that_do_not_fit_at_run_time_are_a_dead_letter_that_says_so(fl: Fairlead) -> None:
    """A sender of another version: retrying cannot help, and the run must not begin."""
    ran = []

    @fl.job
    async def send(ctx: JobContext, order_id: int) -> None:
        ran.append(order_id)

    async with MemoryFairlead(fl) as mem:
        elsewhere = Fairlead.from_env({})  # knows the kind by name only
        elsewhere._use_memory_stores(fl._memory)
        await elsewhere.enqueue("send", {"order": "x"}, tenant="acme")
        await mem.drain()
        (dead,) = await mem.dead_letters()
        assert (dead.category, dead.code) == ("permanent_request", "invalid_input")
        assert "order_id: Field required; order: its handler has no such parameter" in dead.reason
        assert ran == []


async def test_a_plain_function_runs_on_a_thread_with_the_callers_context(fl: Fairlead) -> None:
    positions = []
    word: contextvars.ContextVar[str] = contextvars.ContextVar("word")

    @fl.job
    def plain(ctx: JobContext, number: int) -> int:
        positions.append((threading.current_thread() is threading.main_thread(), word.get(), ctx.remaining_s))
        return number + 1

    @fl.job
    def raises(ctx: JobContext) -> None:
        raise TransientFailureError("503")

    @fl.job
    def stops(ctx: JobContext) -> None:
        next(iter(()))

    async with MemoryFairlead(fl) as mem:
        word.set("said")
        job_id = await plain.enqueue(1, tenant="acme")
        await raises.enqueue(tenant="acme")
        await stops.enqueue(tenant="acme")
        await mem.drain()
        assert await fl.result(job_id) == 2
        assert positions == [(False, "said", 60.0)]
        codes = {job.kind: job.failures[0]["code"] for job in await mem.jobs(state="retryable")}
        assert codes == {"raises": "transient_failure", "stops": "runtime_error"}


async def test_a_function_that_gives_back_a_coroutine_is_awaited(fl: Fairlead) -> None:
    async def inner(ctx: JobContext) -> str:
        return "done"

    fl.job("wrapped")(lambda ctx: inner(ctx))  # noqa: PLW0108
    async with MemoryFairlead(fl) as mem:
        job_id = await fl.enqueue("wrapped", tenant="acme")
        await mem.drain()
        assert (await mem.job(job_id)).result == "done"


async def test_a_plain_function_keeps_its_place_beyond_its_timeout(fl: Fairlead) -> None:
    """A thread cannot be stopped, and a second run beside the first would do its work twice."""
    started, go, finished = threading.Event(), threading.Event(), []

    @fl.job(timeout_s=10)
    def hangs(ctx: JobContext) -> None:
        started.set()
        go.wait(20)
        finished.append(ctx.remaining_s)
        raise TimeoutError("too late")

    async with MemoryFairlead(fl) as mem:
        job_id = await hangs.enqueue(tenant="acme")
        draining = asyncio.create_task(mem.drain())
        await asyncio.to_thread(started.wait, 20)
        await mem.advance(100)
        assert (await mem.job(job_id)).state == "running"
        go.set()
        await draining
        (failure,) = (await mem.job(job_id)).failures
        assert (failure["code"], finished) == ("job_timeout", [0.0])
