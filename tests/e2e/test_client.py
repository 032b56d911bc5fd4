"""Calls through a connection on real stores, to vendors that enforce their own limits (C1, C2, C5, C8)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from secrets import token_hex

import pytest

from fairlead import Fairlead
from fairlead.adapters.embedded import Endpoints
from fairlead.adapters.postgres.connection_setup import DatabaseSettings
from fairlead.assembly.config import load
from fairlead.engine.jobs.handler import JobContext
from fairlead.errors import CallFailedError, InvalidInputError, JobFailedError, NotFoundError
from fairlead.testing.api.malformed import answer
from fairlead.testing.api.raw import RawConnection, RawServer
from fairlead.testing.api.stripe import StripeApi

SETTINGS = """
home = "{home}"
redis.prefix = "{prefix}"
http.allow_private_addresses = true

[providers.stripe.overlay]
allow_http = true
apis.rest.url = "{url}/acme/v1"

[providers.hubspot.overlay]
allow_http = true
apis.rest.url = "{url}/acme"
"""


@pytest.fixture
async def stripe() -> AsyncIterator[StripeApi]:
    async with StripeApi(per_s=1000, endpoint_per_s=1000) as api:
        yield api


def environment_for(
    url: str, servers: Endpoints, database: DatabaseSettings, folder: Path
) -> tuple[dict[str, str], Path]:
    """Return the environment and the settings file of a program that calls a vendor at *url*."""
    file = folder / "fairlead.toml"
    file.write_text(SETTINGS.format(home=folder / "home", prefix=f"e2e-{token_hex(6)}", url=url))
    environment = {
        "DATABASE_URL": database.dsn,
        "REDIS_URL": servers.redis_url,
        "FAIRLEAD_MASTER_KEY": "k1:" + "0123456789abcdef" * 4,
        "FAIRLEAD_DATABASE__SCHEMA_NAME": database.schema or "",
    }
    return {name: value for name, value in environment.items() if value}, file


def fairlead_for(url: str, servers: Endpoints, database: DatabaseSettings, folder: Path) -> Fairlead:
    """Return a Fairlead that knows a vendor at *url*."""
    return Fairlead(load(*environment_for(url, servers, database, folder)))


@pytest.fixture
def make(
    servers: Endpoints, database_settings: DatabaseSettings, tmp_path: Path
) -> Callable[[str], Fairlead]:
    return lambda url: fairlead_for(url, servers, database_settings, tmp_path)


async def test_a_call_and_its_answer(make: Callable[[str], Fairlead], stripe: StripeApi) -> None:
    async with make(stripe.url) as fl:
        await fl.connections.upsert("acme", "stripe", api_key="sk_test_1")
        async with fl.client("acme", "stripe") as api:
            page = await api.get("/charges", params={"limit": 3})
            assert page.status_code == 200
            assert len(page.json()["data"]) == 3
            made = await api.post("/charges", data={"amount": "100"}, headers={"Idempotency-Key": "one"})
            assert made.json()["amount"] in (100, "100")
            with pytest.raises(CallFailedError, match=r"resource_missing|Unrecognized|404") as failed:
                await api.get("/nothing")
            assert failed.value.category == "permanent_request"
            with pytest.raises(InvalidInputError, match="credential"):
                await api.get("/charges", headers={"Authorization": "Bearer mine"})
        with pytest.raises(NotFoundError):
            async with fl.client("nobody", "stripe"):
                pass


async def test_a_list_over_all_its_pages(make: Callable[[str], Fairlead], stripe: StripeApi) -> None:
    async with make(stripe.url) as fl:
        await fl.connections.upsert("acme", "stripe", api_key="sk_test_1")
        async with fl.client("acme", "stripe") as api:
            listing = api.paginate("/charges", params={"limit": 25})
            ids = [charge["id"] async for charge in listing]
        assert len(ids) == len(set(ids)) == 60
        assert not listing.partial


@pytest.mark.parametrize("elsewhere", ["https://evil.example/v1/charges", "http://127.0.0.2:9/v1/charges"])
async def test_the_key_goes_to_its_provider(
    make: Callable[[str], Fairlead], stripe: StripeApi, elsewhere: str
) -> None:
    async with make(stripe.url) as fl:
        await fl.connections.upsert("acme", "stripe", api_key="sk_test_1")
        async with fl.client("acme", "stripe") as api:
            with pytest.raises(InvalidInputError, match="none of the provider's"):
                await api.get(elsewhere)
            assert (await api.get(f"{stripe.url}/acme/v1/charges")).status_code == 200, (
                "a whole address may be given"
            )


async def test_a_job_that_runs_when_its_program_ends_has_its_answer(make: Callable[[str], Fairlead]) -> None:
    asked, go = asyncio.Event(), asyncio.Event()

    async def slow(connection: RawConnection) -> None:
        await connection.request()
        asked.set()
        await go.wait()
        await connection.send(answer(b'{"id": 7}'))

    got: list[object] = []
    async with RawServer(slow) as server:
        fl = make(server.url)

        @fl.job("sync")
        async def sync(ctx: JobContext) -> None:
            async with fl.client(ctx.tenant, "stripe") as api:
                got.append((await api.get("/charges/7")).json())

        async with fl:
            await fl.connections.upsert("acme", "stripe", api_key="sk_test_1")
            await fl.enqueue("sync", tenant="acme")
            running = asyncio.create_task(fl.run())
            await asyncio.wait_for(asked.wait(), 20)
            asyncio.get_running_loop().call_later(0.3, go.set)  # its end has begun: nothing is closed yet
        await running
    assert got == [{"id": 7}]


async def test_a_list_goes_on_in_the_next_run_of_its_job(
    make: Callable[[str], Fairlead], stripe: StripeApi
) -> None:
    """C8, requeue_job: what was worked off is not asked for again, and no attempt is burnt."""
    seen: list[str] = []
    runs: list[tuple[int, int]] = []
    done = asyncio.Event()
    fl = make(stripe.url)

    @fl.job("sync", timeout_s=60)
    async def sync(ctx: JobContext, note: str) -> None:
        runs.append((ctx.attempt, len(seen)))
        async with fl.client(ctx.tenant, "stripe") as api:
            async for page in api.paginate(
                "/charges", params={"limit": 20}, pagination="requeue_job"
            ).pages():
                seen.extend(charge["id"] for charge in page)
                if len(runs) == 1 and len(seen) == 40:
                    ctx._remaining_s = lambda: 16.0  # its time is nearly over
        done.set()

    async with fl:
        await fl.connections.upsert("acme", "stripe", api_key="sk_test_1")
        job_id = await fl.enqueue(sync, {"note": "a"}, tenant="acme")
        running = asyncio.create_task(fl.run())
        await asyncio.wait_for(done.wait(), 30)
        fl.stop()
        await running
        job = await fl.runtime.jobs.get(job_id)
    assert (len(seen), len(set(seen)), runs) == (60, 60, [(1, 0), (1, 40)])
    assert job is not None
    assert job.state == "completed"


async def test_a_job_that_calls_too_late_burns_its_attempt(
    make: Callable[[str], Fairlead], stripe: StripeApi
) -> None:
    """C6: put back at once it would begin, and do all before the call, again and again."""
    runs: list[int] = []
    fl = make(stripe.url)

    @fl.job("late", timeout_s=60, retry=0)
    async def late(ctx: JobContext) -> None:
        runs.append(ctx.attempt)
        ctx._remaining_s = lambda: 1.0  # it took too long before
        async with fl.client(ctx.tenant, "stripe") as api:
            await api.get("/charges")

    async with fl:
        await fl.connections.upsert("acme", "stripe", api_key="sk_test_1")
        job_id = await fl.enqueue("late", tenant="acme")
        running = asyncio.create_task(fl.run())
        async with asyncio.timeout(30):
            while (job := await fl.runtime.jobs.get(job_id)) is not None and job.state == "available":
                await asyncio.sleep(0.05)
            while job is not None and job.state == "running" and len(runs) < 2:
                await asyncio.sleep(0.05)
                job = await fl.runtime.jobs.get(job_id)
        fl.stop()
        await running
    assert job is not None
    assert (job.state, runs) == ("discarded", [1])


async def test_a_vendors_refusal_for_a_limit_burns_no_attempt_of_its_job(
    make: Callable[[str], Fairlead],
) -> None:
    """C7: its waits are longer than are spent inside of a job, so the job waits."""
    asked: list[str] = []
    attempts: list[int] = []
    done = asyncio.Event()

    async def busy_once(connection: RawConnection) -> None:
        while await connection.request() is not None:
            asked.append("")
            told = answer(b'{"error": {"message": "too many requests"}}', status="429 Too Many Requests")
            await connection.send(told if len(asked) == 1 else answer(b"{}"))

    async with RawServer(busy_once) as server:
        fl = make(server.url)

        @fl.job("sync")
        async def sync(ctx: JobContext) -> None:
            attempts.append(ctx.attempt)
            async with fl.client(ctx.tenant, "stripe") as api:
                await api.get("/charges/7")
            done.set()

        async with fl:
            await fl.connections.upsert("acme", "stripe", api_key="sk_test_1")
            job_id = await fl.enqueue("sync", tenant="acme", provider="stripe")
            running = asyncio.create_task(fl.run())
            await asyncio.wait_for(done.wait(), 40)
            fl.stop()
            await running
            job = await fl.runtime.jobs.get(job_id)
    assert (len(asked), attempts) == (2, [1, 1])
    assert job is not None
    assert (job.state, list(job.failures)) == ("completed", [])


async def test_a_dead_letter_is_counted_by_what_its_call_failed_of(
    make: Callable[[str], Fairlead], stripe: StripeApi
) -> None:
    fl = make(stripe.url)

    @fl.job("sync")
    async def sync(ctx: JobContext) -> None:
        async with fl.client(ctx.tenant, "stripe") as api:
            await api.get("/nothing")

    async with fl:
        await fl.connections.upsert("acme", "stripe", api_key="sk_test_1")
        job_id = await fl.enqueue("sync", tenant="acme", provider="stripe")
        running = asyncio.create_task(fl.run())
        with pytest.raises(JobFailedError):
            await fl.result(job_id, timeout_s=30)
        fl.stop()
        await running
        job = await fl.runtime.jobs.get(job_id)
    assert job is not None
    assert [failure["code"] for failure in job.failures] == ["http_404"]


async def test_the_vendors_limit_is_kept_to(make: Callable[[str], Fairlead]) -> None:
    """Twice as many calls as it lets through in a second, all at once: none is refused there."""
    async with StripeApi(per_s=25) as stripe, make(stripe.url) as fl:
        limits = {"calls": {"requests": {"capacity": 10.0, "per_s": 15.0}}}
        await fl.connections.upsert("acme", "stripe", api_key="sk_test_1", settings=limits)
        async with fl.client("acme", "stripe") as api:
            answers = await asyncio.gather(*(api.get("/charges", params={"limit": 1}) for _ in range(30)))
        assert {answer.attempts for answer in answers} == {1}
        assert max(answer.waited_s for answer in answers) > 0.5
