"""fairlead_enqueue, as any language calls it: what it takes, what it refuses, and from whom (Q1, R35)."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any
from uuid import UUID

import asyncpg
import pytest

from fairlead.adapters.postgres.connection_setup import DatabaseSettings
from fairlead.adapters.postgres.database import Database
from fairlead.errors import InvalidInputError
from fairlead.policy.jobs.job import check_new_job
from fairlead.policy.text.names import check_label, check_name
from tests.support.databases import SCHEMA
from tests.support.engine import IDS, new_job
from tests.support.passing_time import pass_time
from tests.support.plans import touched
from tests.support.rows import rows, run

ENQUEUE = f'"{SCHEMA}".fairlead_enqueue'
ROLES = ("app_of_tests", "reader_of_tests", "stranger_of_tests")


@pytest.fixture
async def admin(database_settings: DatabaseSettings) -> AsyncIterator[Any]:
    """A connection that may do anything, and looks for tables nowhere."""
    connection = await asyncpg.connect(database_settings.dsn)
    yield connection
    await connection.close(timeout=5)


async def enqueue(connection: Any, arguments: str, *values: object) -> UUID:
    job_id: UUID = await connection.fetchval(f"SELECT {ENQUEUE}({arguments})", *values)
    return job_id


# ---- what it stores --------------------------------------------------------------------------------


async def test_two_words_are_enough(database: Database, admin: Any) -> None:
    job_id = await enqueue(admin, "'mail.send', 'acme'")
    (job,) = await rows(
        database,
        "SELECT job_id, queue, kind, tenant_id, provider, group_key, priority, state, args, tags,"
        " unique_live, run_at <= now() AS due, expires_at FROM job",
    )
    assert job == {
        "job_id": job_id,
        "queue": "default",
        "kind": "mail.send",
        "tenant_id": "acme",
        "provider": None,
        "group_key": "",
        "priority": 2,
        "state": "available",
        "args": "{}",
        "tags": [],
        "unique_live": False,
        "due": True,
        "expires_at": None,
    }
    woken = await rows(database, "SELECT lane_id FROM lane_wake")
    assert woken == await rows(database, "SELECT lane_id FROM job")


async def test_the_group_is_the_account_unless_another_is_named(database: Database, admin: Any) -> None:
    for more in ("", ", account => 'eu'", ", group_key => 'mine'", ", group_key => ''"):
        await enqueue(admin, f"'k', 'acme', provider => 'shopify'{more}")
    jobs_found = await rows(database, "SELECT group_key FROM job ORDER BY job_id")
    assert sorted(row["group_key"] for row in jobs_found) == ["", "mine", "shopify/default", "shopify/eu"]


async def test_ids_are_made_in_order_of_time(admin: Any) -> None:
    job_ids = []
    for _ in range(3):
        job_ids.append(await admin.fetchval(f'SELECT "{SCHEMA}".fairlead_uuid7()'))
        await admin.execute("SELECT pg_sleep(0.002)")
    assert job_ids == sorted(job_ids)
    assert {(UUID(str(job_id)).version, UUID(str(job_id)).variant) for job_id in job_ids} == {
        (7, "specified in RFC 4122")
    }
    now_ms = await admin.fetchval("SELECT extract(epoch FROM clock_timestamp()) * 1000")
    assert abs(float(now_ms) - (job_ids[-1].int >> 80)) < 60_000


async def test_times_count_from_the_call_in_however_long_a_transaction(
    database: Database, admin: Any
) -> None:
    async with admin.transaction():
        await admin.execute("SELECT pg_sleep(0.2)")
        await enqueue(
            admin, "'k', 'acme', delay_s => 10, expires_in_s => 20, unique_key => 'u', unique_for_s => 30"
        )
        row = await admin.fetchrow(
            "SELECT run_at - now() AS due, expires_at - run_at AS left, unique_until - run_at AS held"
            f' FROM "{SCHEMA}".job'
        )
    assert row["due"] >= timedelta(seconds=10.2)
    assert (row["left"], row["held"]) == (timedelta(seconds=10), timedelta(seconds=20))


async def test_listeners_are_told_only_if_that_is_asked_for(
    database_settings: DatabaseSettings, admin: Any
) -> None:
    payloads: asyncio.Queue[str] = asyncio.Queue()
    listener = await asyncpg.connect(database_settings.dsn)
    await listener.add_listener("fairlead_job", lambda *args: payloads.put_nowait(args[3]))
    await enqueue(admin, "'k', 'acme'")
    await enqueue(admin, "'k', 'acme', queue => 'later', delay_s => 60, notify => true")
    await enqueue(admin, "'k', 'acme', queue => 'told', notify => true")
    async with asyncio.timeout(20):
        assert await payloads.get() == "told"
    await listener.close()


# ---- unique keys: as job_enqueue has them ----------------------------------------------------------


async def test_an_open_job_stands_for_another_of_its_key(database: Database, admin: Any) -> None:
    first = await enqueue(admin, "'k', 'acme', unique_key => 'u', priority => 2")
    assert await enqueue(admin, "'k', 'acme', unique_key => 'u', priority => 3") == first
    lanes_before = await rows(database, "SELECT lane_id FROM job")
    assert await enqueue(admin, "'k', 'acme', unique_key => 'u', priority => 0") == first
    lanes_after = await rows(database, "SELECT lane_id, priority FROM job")
    assert lanes_after[0]["priority"] == 0
    assert lanes_after[0]["lane_id"] != lanes_before[0]["lane_id"]
    woken = [
        row["lane_id"] for row in await rows(database, "SELECT lane_id FROM lane_wake ORDER BY written_by")
    ]
    assert woken == [lanes_before[0]["lane_id"], lanes_after[0]["lane_id"]], "it waits in another lane now"
    others = [
        await enqueue(admin, "'other', 'acme', unique_key => 'u'"),
        await enqueue(admin, "'k', 'globex', unique_key => 'u'"),
    ]
    assert len({first, *others}) == 3


async def test_a_key_is_free_once_its_job_has_ended_and_its_time_is_over(
    database: Database, admin: Any
) -> None:
    end = (
        "UPDATE job SET state = 'completed', finished_at = now(),"
        " unique_live = coalesce(unique_until > now(), false) WHERE job_id = $1"
    )
    first = await enqueue(admin, "'k', 'acme', unique_key => 'u'")
    await run(database, end, first)
    second = await enqueue(admin, "'k', 'acme', unique_key => 'u', unique_for_s => 60")
    assert second != first
    await run(database, end, second)
    assert await enqueue(admin, "'k', 'acme', unique_key => 'u'") == second, "held beyond its end"
    await pass_time(database, 61)
    assert await enqueue(admin, "'k', 'acme', unique_key => 'u'") not in {first, second}


# ---- what it refuses -------------------------------------------------------------------------------

BAD = {
    "kind": ["'Mail'", "''", "NULL", "E'mail\\n'", "'é'", f"'{'k' * 65}'", "'token.refresh'"],
    "tenant": ["''", "NULL", "E'a\\nb'", "U&'a\\0085b'", f"'{'é' * 101}'"],
    "args": ["'[]'", "'1'", "'null'", "NULL", """jsonb_build_object('a', repeat('x', 200000))"""],
    "queue": ["'No'", "NULL"],
    "provider": ["'No'", "''"],
    "account": ["'No'"],
    "group_key": ["E'a\\tb'", f"'{'g' * 401}'"],
    "priority": ["4", "-1", "NULL"],
    "delay_s": ["-1", "'NaN'", "'Infinity'", "31622401", "NULL"],
    "unique_key": ["''", "E'\\x7f'", f"'{'u' * 201}'"],
    "unique_while": ["'running'", "''", "NULL"],
    "expires_in_s": ["'NaN'", "-1", "0"],
    "tags": ["ARRAY['']", "ARRAY[NULL]", "NULL", "array_fill('t'::text, ARRAY[17])", f"ARRAY['{'t' * 65}']"],
}


@pytest.mark.parametrize("parameter", BAD)
async def test_values_that_python_refuses_are_refused_with_their_parameter(
    database: Database, admin: Any, parameter: str
) -> None:
    for value in BAD[parameter]:
        fields = {"kind": "'k'", "tenant": "'acme'"} | {parameter: value}
        if parameter == "account":
            fields["provider"] = "'shopify'"
        with pytest.raises(asyncpg.InvalidParameterValueError, match=f"refuses {parameter}: "):
            await enqueue(admin, ", ".join(f"{name} => {text}" for name, text in fields.items()))
    assert await rows(database, "SELECT FROM job") == []


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ("account => 'eu'", "account: give the provider"),
        ("unique_for_s => 60", "unique_for_s: give a unique_key"),
        ("delay_s => 60, expires_in_s => 60", "expires_in_s: it must be longer"),
    ],
)
async def test_contradictory_parameters_are_refused(admin: Any, arguments: str, expected: str) -> None:
    with pytest.raises(asyncpg.InvalidParameterValueError, match=expected):
        await enqueue(admin, f"'k', 'acme', {arguments}")


async def test_names_are_judged_as_in_python(database: Database) -> None:
    """Both draw the line at the same place, for texts made of whatever may be trouble."""
    draw = random.Random(7)
    letters = "ab0_.-Z\n\t \x7f\x80\x9f\xa0é\u0430\u2028\ufeff\U0001f600'\\%$"
    texts = ["".join(draw.choices(letters, k=draw.randint(0, 4))) for _ in range(500)]
    texts += ["a" * 64, "a" * 65, "é" * 100, "é" * 101]
    jobs_found = await rows(
        database, "SELECT is_name(t) AS name, is_label(t, 200) AS label FROM unnest($1::text[]) AS t", texts
    )
    for text, judged in zip(texts, jobs_found, strict=True):
        assert judged["name"] == accepts(lambda text=text: check_name("kind", text)), ascii(text)
        assert judged["label"] == accepts(lambda text=text: check_label("tenant", text, 200)), ascii(text)


def accepts(check: Any) -> bool:
    try:
        check()
    except InvalidInputError:
        return False
    return True


async def test_values_that_python_accepts_are_accepted(admin: Any) -> None:
    """At the bounds, where a difference would abort a transaction for nothing."""
    args = {"a": [0] * 32_000}
    check_new_job(new_job("k" * 64, tenant_id="é" * 100, args=args, delay_s=366 * 86_400.0))
    values = ("k" * 64, "é" * 100, str(args).replace("'", '"'), "g" * 400, "u" * 200, ["t" * 64] * 16)
    assert await enqueue(
        admin,
        "$1, $2, $3::text::jsonb, group_key => $4, unique_key => $5, tags => $6, delay_s => 31622400",
        *values,
    )


# ---- from whom -------------------------------------------------------------------------------------


@pytest.fixture
async def roles(database: Database, database_settings: DatabaseSettings) -> AsyncIterator[None]:
    """An application that was granted the function, a reader that was, and a role that was not."""
    grants = [f"CREATE ROLE {role} LOGIN" for role in ROLES]
    grants.append("GRANT fairlead_reader TO reader_of_tests")
    for role in ROLES[:2]:
        grants += [
            f'GRANT USAGE ON SCHEMA "{SCHEMA}" TO {role}',
            f"GRANT EXECUTE ON FUNCTION fairlead_enqueue TO {role}",
        ]
    for grant in grants:
        await run(database, grant)
    yield
    for role in ROLES:
        await run(database, f"DROP OWNED BY {role}")
        await run(database, f"DROP ROLE {role}")


@asynccontextmanager
async def logged_in(settings: DatabaseSettings, role: str) -> AsyncIterator[Any]:
    connection = await asyncpg.connect(settings.dsn, user=role)
    try:
        yield connection
    finally:
        await connection.close(timeout=5)


@pytest.mark.usefixtures("roles")
async def test_an_application_needs_the_one_right(
    database: Database, database_settings: DatabaseSettings
) -> None:
    async with logged_in(database_settings, "app_of_tests") as app:
        for tenant in ("acme", "globex"):
            assert await enqueue(app, "'k', $1, unique_key => 'u'", tenant)
        for sql in (
            f'SELECT FROM "{SCHEMA}".job',
            f'INSERT INTO "{SCHEMA}".lane_wake (lane_id, due_at) VALUES (gen_random_uuid(), now())',
        ):
            with pytest.raises(asyncpg.InsufficientPrivilegeError):
                await app.fetch(sql)
        async with app.transaction():
            await app.execute("SET LOCAL fairlead.tenant_id = 'acme'")
            assert await enqueue(app, "'k', 'acme'")
            with pytest.raises(asyncpg.InsufficientPrivilegeError, match="may not enqueue for this tenant"):
                await enqueue(app, "'k', 'globex'")
    assert len(await rows(database, "SELECT FROM job")) == 2


@pytest.mark.usefixtures("roles")
async def test_a_reader_enqueues_for_its_own_tenant_alone(
    database: Database, database_settings: DatabaseSettings
) -> None:
    async with logged_in(database_settings, "reader_of_tests") as reader:
        for tenant in ("acme", ""):
            with pytest.raises(asyncpg.PostgresError, match=r"may not enqueue|refuses tenant"):
                await enqueue(reader, "'k', $1", tenant)
        await reader.execute("SET fairlead.tenant_id = 'acme'")
        assert await enqueue(reader, "'k', 'acme'")
        for tenant in ("globex", "acme ", "ACME"):
            with pytest.raises(asyncpg.InsufficientPrivilegeError, match="may not enqueue"):
                await enqueue(reader, "'k', $1", tenant)


@pytest.mark.usefixtures("roles")
async def test_a_role_that_was_taken_on_counts_as_the_login_does(
    database: Database, database_settings: DatabaseSettings
) -> None:
    """A pool logs in as the engine and lowers itself: SET LOCAL ROLE is then who calls."""
    admin = await asyncpg.connect(database_settings.dsn)
    async with admin.transaction():
        await admin.execute("SET LOCAL ROLE reader_of_tests")
        with pytest.raises(asyncpg.InsufficientPrivilegeError, match="may not enqueue"):
            await enqueue(admin, "'k', 'acme'")
    async with admin.transaction():
        await admin.execute("SET LOCAL ROLE fairlead_engine")
        await admin.execute("SET LOCAL fairlead.tenant_id = 'globex'")
        assert await enqueue(admin, "'k', 'acme'")
    await admin.close()


@pytest.mark.usefixtures("roles")
async def test_a_stranger_may_nothing(database_settings: DatabaseSettings) -> None:
    async with logged_in(database_settings, "stranger_of_tests") as stranger:
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await enqueue(stranger, "'k', 'acme'")


@pytest.mark.usefixtures("roles")
async def test_objects_of_the_caller_are_never_used(
    database: Database, database_settings: DatabaseSettings
) -> None:
    """It runs with its owner's rights, so nothing of the caller's own making must ever be used by it."""
    await run(database, "CREATE SCHEMA theirs AUTHORIZATION app_of_tests")
    async with logged_in(database_settings, "app_of_tests") as app:
        await app.execute("SET search_path = theirs, pg_temp")
        for schema in ("pg_temp", "theirs"):
            for table in ("job", "lane_wake", "dead_letter"):
                await app.execute(f"CREATE TABLE {schema}.{table} (kind text, job_id uuid)")
            await app.execute(
                f"CREATE FUNCTION {schema}.is_name(name text) RETURNS boolean LANGUAGE plpgsql AS"
                " $$ BEGIN RAISE EXCEPTION 'stepped on, as %', current_user; END $$"
            )
            await app.execute(
                f"CREATE FUNCTION {schema}.octet_length(t text) RETURNS integer LANGUAGE plpgsql AS"
                " $$ BEGIN RAISE EXCEPTION 'stepped on, as %', current_user; END $$"
            )
        assert await enqueue(app, "'k', 'acme'")
        for schema in ("pg_temp", "theirs"):
            assert await app.fetch(f"SELECT FROM {schema}.job") == []
    assert len(await rows(database, "SELECT FROM job")) == 1
    await run(database, "DROP SCHEMA theirs CASCADE")


# ---- what it costs ---------------------------------------------------------------------------------

FILLED = """
INSERT INTO job (job_id, kind, tenant_id, unique_key, unique_live)
SELECT gen_random_uuid(), 'kind' || i % 10, 'tenant' || i % 100, 'key' || i, true
FROM generate_series(1, 5000) AS i
"""
DEAD = """
INSERT INTO dead_letter
    (dead_letter_id, job_id, lineage_id, queue, kind, tenant_id, priority, category, code, reason)
SELECT gen_random_uuid(), gen_random_uuid(), gen_random_uuid(), 'default', 'other', 'acme', 2,
    'transient_server', 'boom', 'it failed' FROM generate_series(1, 5000)
"""


@pytest.mark.slow
@pytest.mark.parametrize("generic", [False, True])
async def test_enqueue_reads_few_rows_in_full_tables(database: Database, generic: bool) -> None:
    for sql in (FILLED, DEAD, "ANALYZE"):
        await run(database, sql)
    jobs = (
        f'[{{"job_id": "{IDS.uuid7()}", "kind": "kind1", "tenant": "tenant1", "args": {{}},'
        ' "queue": "default", "priority": 1, "delay_s": 0, "unique_key": "key4901",'
        ' "unique_while": "follow_up", "tags": []}]'
    )
    read = await touched(database, "caller_enqueue", generic=generic, jobs=jobs, bound=10_000)
    assert {table: scans for table, (_, scans) in read.items() if scans} == {}
    assert sum(count for count, _ in read.values()) <= 10
