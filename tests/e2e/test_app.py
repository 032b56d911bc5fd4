"""The Python door: what a user's own program does with fairlead, on a real database and a real issuer."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from fairlead import Fairlead, RequireReauth
from fairlead.adapters.postgres.credentials import PostgresCredentialStore
from fairlead.assembly.config import load
from fairlead.engine.jobs.handler import JobContext
from fairlead.errors import (
    InvalidConfigError,
    InvalidInputError,
    NotFoundError,
    ProviderNotFoundError,
    ReauthRequiredError,
)
from fairlead.events import DatabaseFailedOver, RowSecurityMissing
from fairlead.testing.issuer import Issuer, IssuerConfig, ProviderConfig
from fairlead.testing.ledger import judge
from tests.support.engine import Recorder
from tests.support.rows import rows, run

SETTINGS = """
home = "{home}"
http.allow_private_addresses = true
refresh.cooldown_s = 0
worker.poll_s = 0.05
worker.lease_s = 3
schedules.refresh_scan = "@every 1s"
schedules.urgent_scan = "@every 1s"
notifications.reauth_link = "https://app.example/reconnect?t={{tenant}}&c={{connection}}"

[providers.mercadolibre]
client_id = "app"
client_secret = "s3cret"

[providers.mercadolibre.overlay]
allow_http = true
endpoints.token = "{url}/mercadolibre/token"
"""


RUNNING = "SELECT FROM job WHERE state = 'running' AND kind IN ('sync', 'last')"


@pytest.fixture
async def issuer():
    played = {"mercadolibre": ProviderConfig(policy="strict", dialect="mercadolibre")}
    async with Issuer(IssuerConfig(providers=played)) as issuer:
        yield issuer


@pytest.fixture
def new_fairlead(issuer, database_settings, tmp_path: Path):
    file = tmp_path / "fairlead.toml"
    file.write_text(SETTINGS.format(home=tmp_path / "home", url=issuer.url))
    environ = {
        "DATABASE_URL": database_settings.dsn,
        "FAIRLEAD_MASTER_KEY": "k1:" + "0123456789abcdef" * 4,
        "FAIRLEAD_DATABASE__SCHEMA_NAME": database_settings.schema or "",
    }
    return Fairlead(load(environ, file))


async def connect(fl: Fairlead, issuer: Issuer, tenant: str = "acme", expires_in_s: float = 3600.0):
    grant = issuer.register("mercadolibre", tenant)
    return await fl.connections.upsert(
        tenant,
        "mercadolibre",
        access_token=grant.access_token,
        refresh_token=grant.refresh_token,
        expires_in_s=expires_in_s,
    )


async def test_the_three_lines_of_the_readme(new_fairlead, issuer) -> None:
    async with new_fairlead as fl:
        await connect(fl, issuer)
        token = await fl.token("acme", "mercadolibre")
        assert token.access_token.reveal() == issuer.grant("mercadolibre", "acme").access_token
        assert str(token.access_token) == "***"
        assert (await fl.refresh("acme", "mercadolibre")).access_token == token.access_token, "it lasts"
        fresh = await fl.refresh("acme", "mercadolibre", newer_than=token.generation)
        assert fresh.access_token != token.access_token


async def test_errors_name_tenant_provider_and_the_way_out(new_fairlead) -> None:
    async with new_fairlead as fl:
        with pytest.raises(NotFoundError, match=r"tenant='nobody', provider='mercadolibre'.*hint:"):
            await fl.token("nobody", "mercadolibre")
        with pytest.raises(ProviderNotFoundError, match="hint:"):
            await fl.connections.upsert("acme", "nosuch", refresh_token="x")
        with pytest.raises(InvalidInputError, match="refresh token"):
            await fl.connections.upsert("acme", "mercadolibre")
        with pytest.raises(InvalidInputError) as refused:
            await fl.connections.upsert("acme", "mercadolibre", refresh_token="top\nsecret")
        assert "secret'" not in str(refused.value)
        assert "top" not in str(refused.value)
    with pytest.raises(InvalidConfigError, match="async with"):
        await new_fairlead.token("acme", "mercadolibre")


async def test_hint_of_a_missing_connection_names_the_one_that_is_meant(new_fairlead, issuer) -> None:
    async with new_fairlead as fl:
        await connect(fl, issuer)
        with pytest.raises(NotFoundError, match="did you mean the provider 'mercadolibre'"):
            await fl.token("acme", "mercadolibr")
        with pytest.raises(NotFoundError, match="did you mean the account 'default'"):
            await fl.token("acme", "mercadolibre", account="defualt")
        with pytest.raises(NotFoundError, match="hint: connect the account"):
            await fl.token("acme", "bike")


async def test_no_customer_has_the_name_that_schedules_of_all_belong_to(new_fairlead, issuer) -> None:
    async with new_fairlead as fl:
        with pytest.raises(InvalidInputError, match="fairlead's own"):
            await fl.connections.upsert("fairlead", "mercadolibre", refresh_token="TG-1")


async def test_a_worker_in_the_same_loop_keeps_tokens_fresh_and_tells_of_losses(new_fairlead, issuer) -> None:
    lost: asyncio.Queue[dict] = asyncio.Queue()
    ran: asyncio.Queue[JobContext] = asyncio.Queue()

    @new_fairlead.on("needs_reauth")
    async def on_loss(event) -> None:
        await lost.put(dict(event))

    @new_fairlead.job("greet")
    async def greet(context: JobContext) -> dict:
        await ran.put(context)
        return {"hello": context.args["name"]}

    async with new_fairlead as fl:
        await connect(fl, issuer, "fresh", expires_in_s=0)
        await connect(fl, issuer, "gone", expires_in_s=0)
        issuer.revoke("mercadolibre", "gone")
        job_id = await fl.enqueue("greet", {"name": "Ada"}, tenant="acme", unique_key="once")
        assert await fl.enqueue("greet", {"name": "Ada"}, tenant="acme", unique_key="once") == job_id
        working = asyncio.create_task(fl.run())
        async with asyncio.timeout(20):
            assert (await ran.get()).tenant == "acme"
            event = await lost.get()
        assert (event["tenant"], event["reason"]) == ("gone", "invalid_grant")
        assert event["link"].startswith("https://app.example/reconnect?t=gone&c=")
        token = await fl.token("fresh", "mercadolibre")
        assert token.access_token.reveal() == issuer.grant("mercadolibre", "fresh").access_token
        with pytest.raises(ReauthRequiredError):
            await fl.token("gone", "mercadolibre")
        fl.stop()
        await working
        done = await rows(fl.runtime.database, "SELECT result FROM job WHERE job_id = $1", job_id)
        assert done[0]["result"] == '{"hello": "Ada"}'
    assert not judge(issuer.ledger()).violations


@pytest.mark.parametrize("in_a_group", [False, True], ids=["alone", "in_a_task_group"])
async def test_the_first_job_that_meets_a_revoked_grant_waits_for_the_new_consent(
    new_fairlead, issuer, in_a_group: bool
) -> None:
    started, done = asyncio.Event(), asyncio.Queue[int]()

    @new_fairlead.job("sync")
    async def sync(context: JobContext) -> None:
        try:
            async with asyncio.TaskGroup() as group:
                reading = group.create_task(new_fairlead.token(context.tenant, "mercadolibre"))
        except ExceptionGroup as several:
            started.set()
            raise several if in_a_group else several.exceptions[0] from None
        await done.put(context.args["n"] if reading.result() else 0)

    async with new_fairlead as fl:
        await connect(fl, issuer, expires_in_s=0)
        issuer.revoke("mercadolibre", "acme")
        for n in range(3):
            await fl.enqueue("sync", {"n": n}, tenant="acme", provider="mercadolibre")
        working = asyncio.create_task(fl.run())
        async with asyncio.timeout(30):
            await started.wait()
            while await rows(
                fl.runtime.database, "SELECT FROM job WHERE state = 'running' AND kind = 'sync'"
            ):
                await asyncio.sleep(0.05)
            jobs_found = await rows(fl.runtime.database, "SELECT state FROM job WHERE kind = 'sync'")
            assert [row["state"] for row in jobs_found] == ["available"] * 3
            assert not await rows(fl.runtime.database, "SELECT FROM dead_letter WHERE kind = 'sync'")
            await connect(fl, issuer)
            assert {await done.get() for _ in range(3)} == {0, 1, 2}
        fl.stop()
        await working
        jobs_found = await rows(
            fl.runtime.database, "SELECT state, attempt, failures::text FROM job WHERE kind = 'sync'"
        )
        assert {tuple(row.values()) for row in jobs_found} == {("completed", 1, "[]")}


async def test_a_handler_that_says_needs_reauth_waits_for_the_new_consent_or_is_a_dead_letter(
    new_fairlead, issuer
) -> None:
    """It waits while the grant is gone; where that is fine it ends, and is replayed after a consent."""
    ran, known_gone, done = asyncio.Event(), asyncio.Event(), asyncio.Event()

    @new_fairlead.job("sync")
    async def sync(context: JobContext) -> object:
        if not known_gone.is_set():
            with pytest.raises(ReauthRequiredError):
                await new_fairlead.token(context.tenant, "mercadolibre")
            known_gone.set()
            return RequireReauth("the handler noticed it, too")
        done.set()
        return RequireReauth("the customer took a permission away")

    @new_fairlead.job("last")
    async def last(context: JobContext) -> None:
        ran.set()

    async with new_fairlead as fl:
        connected = await connect(fl, issuer, expires_in_s=0)
        issuer.revoke("mercadolibre", "acme")
        await fl.enqueue("sync", tenant="acme", provider="mercadolibre")
        working = asyncio.create_task(fl.run())
        async with asyncio.timeout(30):
            await known_gone.wait()
            while await rows(fl.runtime.database, RUNNING):
                await asyncio.sleep(0.05)
            await fl.enqueue("last", tenant="acme", provider="mercadolibre")
            [job] = await rows(fl.runtime.database, "SELECT state, attempt FROM job WHERE kind = 'sync'")
            assert (job["state"], job["attempt"]) == ("available", 0)
            assert not done.is_set()
            await connect(fl, issuer)
            await done.wait()
            await ran.wait()
            while await rows(fl.runtime.database, RUNNING):
                await asyncio.sleep(0.05)
        fl.stop()
        await working
        letters = await fl.runtime.dead_letters.search(
            status=None, category=None, tenant_id=None, kind="sync", limit=9
        )
        assert [(entry.code, entry.connection_id) for entry in letters] == [
            ("needs_reauth", connected.connection_id)
        ]
        await connect(fl, issuer)
        due = {entry.kind: entry.regranted for entry in await fl.runtime.dead_letters.due(9)}
        assert due["sync"], "the dead letter knows whose grant it needs"


async def test_the_sync_facade_reads_and_enqueues(new_fairlead, issuer) -> None:
    async with new_fairlead as fl:
        await connect(fl, issuer)

    def plain_code() -> tuple[str, object]:
        with new_fairlead.sync as fl:
            token = fl.token("acme", "mercadolibre")
            return token.access_token.reveal(), fl.enqueue("later", {"n": 1}, tenant="acme", delay_s=60)

    token, job_id = await asyncio.to_thread(plain_code)
    assert token == issuer.grant("mercadolibre", "acme").access_token
    assert job_id


async def test_revoking_ends_it_here_and_there(new_fairlead, issuer) -> None:
    async with new_fairlead as fl:
        await connect(fl, issuer)
        assert await fl.connections.revoke("acme", "mercadolibre")
        assert not await fl.connections.revoke("acme", "mercadolibre")
        with pytest.raises(ReauthRequiredError):
            await fl.token("acme", "mercadolibre")
        assert await fl.connections.remove("acme", "mercadolibre")


async def test_a_wrong_master_key_stops_clearly_and_changes_nothing(new_fairlead, issuer, tmp_path) -> None:
    async with new_fairlead as fl:
        await connect(fl, issuer)
        rows_before = await rows(fl.runtime.database, "SELECT * FROM credential")
        dsn, schema = fl.runtime.database.settings.dsn, fl.runtime.database.settings.schema
    other = Fairlead(
        load(
            {
                "DATABASE_URL": dsn,
                "FAIRLEAD_DATABASE__SCHEMA_NAME": schema or "",
                "FAIRLEAD_MASTER_KEY": "k1:" + "fedcba9876543210" * 4,
            },
            tmp_path / "fairlead.toml",
        )
    )
    with pytest.raises(Exception, match="master key"):
        async with other as fl:
            await fl.token("acme", "mercadolibre")
    async with new_fairlead as fl:
        assert await rows(fl.runtime.database, "SELECT * FROM credential") == rows_before
        await fl.token("acme", "mercadolibre")


LOST = "connection_id, generation, sealed, key_id, settled_epoch"
FORGET = (
    "UPDATE credential SET generation = $2, sealed = $3, key_id = $4, settled_epoch = $5"
    " WHERE connection_id = $1"
)


async def test_tokens_lost_by_a_restore_are_back_before_anything_is_served(
    new_fairlead, issuer, database
) -> None:
    async with new_fairlead as fl:
        await connect(fl, issuer)
        [lost] = await rows(database, f"SELECT {LOST} FROM credential")
        await fl.runtime.tokens.coordinator.refresh(lost["connection_id"], lost["generation"])
    await run(database, FORGET, *lost.values())
    async with new_fairlead as fl:
        [now] = await rows(database, "SELECT generation FROM credential")
        assert now["generation"] == lost["generation"] + 1


async def test_a_restored_database_is_noticed_by_a_program_that_never_runs(
    new_fairlead, issuer, database, monkeypatch
) -> None:
    monkeypatch.setattr("fairlead.engine.tokens.database_failover.CHECK_INTERVAL_S", 0.05)
    recorder = Recorder()
    async with new_fairlead as fl:
        fl.runtime.bus.subscribe(recorder)
        await connect(fl, issuer)
        [lost] = await rows(database, f"SELECT {LOST} FROM credential")
        await fl.runtime.tokens.coordinator.refresh(lost["connection_id"], lost["generation"])
        await run(database, FORGET, *lost.values())

        async def another(_store: object) -> str:
            return "7/2"

        monkeypatch.setattr(PostgresCredentialStore, "timeline", another)
        async with asyncio.timeout(20):
            assert (await recorder.wait_for(DatabaseFailedOver)).recovered == 1


async def test_a_worker_tells_at_its_start_that_the_second_wall_is_missing(new_fairlead, database) -> None:
    await run(database, "DROP POLICY tenants_see_theirs ON job")
    recorder = Recorder()
    async with new_fairlead as fl:
        fl.runtime.bus.subscribe(recorder)
        working = asyncio.create_task(fl.run())
        async with asyncio.timeout(20):
            assert "fairlead doctor" in (await recorder.wait_for(RowSecurityMissing)).advice
        fl.stop()
        await working
