"""Two walls between tenants: a statement says whose rows it means, and the database holds it to that (S27).

Each condition about the tenant is taken out of each statement in turn, and each value of a tenant that is
written is made another one's. With the second wall nothing comes of it; without, each mutant does harm.
"""

from __future__ import annotations

import ast
import asyncio
import re
from collections import Counter
from collections.abc import Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random

import asyncpg
import pytest

from fairlead.adapters.embedded import Endpoints
from fairlead.adapters.postgres import credentials, data_keys, gate_notes
from fairlead.adapters.postgres.connection_setup import DatabaseSettings
from fairlead.adapters.postgres.database import Database
from fairlead.adapters.postgres.jobs import PostgresJobStore
from fairlead.adapters.postgres.qualified import qualified
from fairlead.adapters.postgres.statements import Statement, statement, statement_names
from fairlead.errors import FairleadError
from tests.faults.support.report import Figures, sized
from tests.security.figures import tell
from tests.support.databases import SCHEMA, settings_of
from tests.support.engine import IDS, new_job
from tests.support.notes import sql
from tests.support.raw_connections import raw_connection
from tests.support.rows import rows
from tests.support.servers import database_name, drop_database, fresh_database
from tests.support.two_tenants import (
    ACTS,
    HERE,
    OURS,
    TABLES,
    THEIRS,
    THERE,
    DoneAct,
    World,
    others,
    two_tenants,
)

VISIBLE_TABLES = sorted(set(TABLES) - {"refresh_backoff"})
"""What the role may read at all."""
LOOKED_AT_HERE = "data_key_current"
"""Asked for each tenant by each process, again and again: not behind the wall, but its row is compared."""

ANYBODY = r"(\1::text IS NOT DISTINCT FROM \1)"
CONDITIONS = (
    # what is said of the tenant, and what takes its place: true, with the same parameters in the same order
    (re.compile(r"\((\$\d+)::text IS NULL OR (?:\w+\.)?tenant_id = \1\)"), ANYBODY),
    (re.compile(r"(\$\d+)::text IS NULL OR (?:\w+\.)?tenant_id = \1(?!\))"), ANYBODY),
    (re.compile(r"(?<!OR )(?<![\w.])tenant_id = (\$\d+)(?!\))"), ANYBODY),
    (re.compile(r"\w+\.tenant_id = \w+\.tenant_id"), "true"),
    (re.compile(r"USING \(tenant_id, "), "USING ("),
)
OF_A_PAUSE = (re.compile(r"(?<=AND )key = (\$\d+)"), ANYBODY)
"""Of a whole tenant the key is the tenant."""
WRITTEN = re.compile(r"(?<=[ (])(\$\d+)(::text)?(?=,)")


@dataclass
class Wire:
    """Every statement on its way to the server: one may be altered, and those behind the wall are noted."""

    altered: dict[str, str] = field(default_factory=dict)
    walled: set[str] = field(default_factory=set)
    reached: dict[object, str] = field(default_factory=dict)
    """By task: its latest statement."""
    leaves_at: dict[object, str] = field(default_factory=dict)
    """By task: its caller goes away while this statement is under way."""
    _behind: set[int] = field(default_factory=set)

    def note(self, connection: asyncpg.Connection, query: str) -> str:
        name = query.partition(" */")[0].removeprefix("/* ")
        task = asyncio.current_task()
        self.reached[task] = name
        if task is not None and self.leaves_at.get(task) == name:
            task.cancel()
        if name == "row_security_enter":
            self._behind.add(id(connection))
        elif not connection.is_in_transaction():
            self._behind.discard(id(connection))
        elif id(connection) in self._behind:
            self.walled.add(name)
        altered = {qualified(old, SCHEMA): qualified(new, SCHEMA) for old, new in self.altered.items()}
        return altered.get(query, query)


@pytest.fixture
def wire(monkeypatch: pytest.MonkeyPatch) -> Wire:
    wire, fetch = Wire(), asyncpg.Connection.fetch

    async def recording_fetch(
        self: asyncpg.Connection, query: str, *args: object, **options: object
    ) -> object:
        return await fetch(self, wire.note(self, query), *args, **options)

    monkeypatch.setattr(asyncpg.Connection, "fetch", recording_fetch)
    return wire


def mutants(original: Statement) -> Iterator[str]:
    """*made* with one thing that it says of the tenant left out, or the tenant that it writes another."""
    for condition, instead in (*CONDITIONS, *([OF_A_PAUSE] if original.name == "pause_end" else [])):
        for match in condition.finditer(original.text):
            yield original.text[: match.start()] + match.expand(instead) + original.text[match.end() :]
    if "INSERT INTO" not in original.text:
        return
    tenant_parameters = {
        f"${original.params.index(name) + 1}" for name in ("tenant_id", "key") if name in original.params
    }
    for match in WRITTEN.finditer(original.text):
        if match[1] in tenant_parameters:
            yield original.text[: match.start()] + f"({match[1]}::text || 'x')" + original.text[match.end() :]


@dataclass(frozen=True, slots=True)
class Done:
    """What came of an act: its answer, or that it was refused; and tables where rows of others changed."""

    told: object
    harmed: tuple[str, ...]


async def done(world: World, act: DoneAct) -> Done:
    rows_before = await others(world.database)
    try:
        result = await act(world)
    except (FairleadError, asyncpg.PostgresError) as error:
        result = f"refused: {error}"
    rows_after = await others(world.database)
    return Done(result, tuple(table for table in rows_before if rows_before[table] != rows_after[table]))


@dataclass
class Lab:
    """Acts, each in a copy of one world, while one statement reads otherwise."""

    admin_url: str
    world_url: str
    world: World
    wire: Wire

    async def done(self, act: DoneAct, altered: dict[str, str], *, walled: bool = True) -> Done:
        url = await fresh_database(self.admin_url, template=database_name(self.world_url))
        database = await Database.open(settings_of(url))
        world, database.row_security_enabled, self.wire.altered = self.world.over(database), walled, altered
        try:
            return await done(world, act)
        finally:
            self.wire.altered = {}
            await world.close()
            await database.close()
            await drop_database(self.admin_url, url)

    async def done_without(self, act: DoneAct, altered: dict[str, str]) -> Done:
        """Without the second wall, in the database and where rows are looked at here."""
        with pytest.MonkeyPatch.context() as patch:
            for module in (credentials, gate_notes):
                patch.setattr(module, "is_asked_for", lambda row, keys: True)
            patch.setattr(data_keys, "is_of", lambda row, tenant: True)
            return await self.done(act, altered, walled=False)


@pytest.fixture
async def lab(servers: Endpoints, database_settings: DatabaseSettings, wire: Wire) -> Lab:
    database = await Database.open(database_settings)
    assert database.row_security_enabled
    world = await two_tenants(database)
    await world.close()
    await database.close()  # nobody may be connected to what is copied
    return Lab(servers.database_url, database_settings.dsn, world, wire)


@pytest.mark.slow
async def test_a_statement_that_forgets_the_tenant_does_no_harm(lab: Lab) -> None:
    """And would without the second wall: so each of these mutants is one."""
    broken: list[str] = []
    count = read = written = harmless = 0
    for name, acts in ACTS.items():
        original = statement(name)
        sound = {act: await lab.done(act, {}) for act in acts}
        assert not any(result.harmed for result in sound.values()), (name, sound)
        texts = list(mutants(original))
        assert texts, f"{name} says nothing of tenants"
        for text in texts:
            results = {act: await lab.done(act, {original.text: text}) for act in acts}
            loose = {act: await lab.done_without(act, {original.text: text}) for act in acts}
            count += 1
            written += any(result.harmed for result in results.values())
            read += any(
                result.told != sound[act].told and not str(result.told).startswith("refused")
                for act, result in results.items()
            )
            harmless += loose == sound
            if loose == sound or any(result.harmed for result in results.values()):
                broken.append(f"{name} {results}, without the wall {loose}: {text}")
    counts = {"cross_tenant_reads": read, "cross_tenant_writes": written, "mutants_unseen": harmless}
    tell("S27", n=count, statements=len(ACTS), **counts)
    assert counts == dict.fromkeys(counts, 0), broken
    walled = {*ACTS, "tenant_lock"} - {LOOKED_AT_HERE}
    assert lab.wire.walled == walled, "what runs behind the wall has its mutants here"


BESIDE = {
    "audit_search",  # of all tenants
    "lane_pause",  # what moves lanes goes by the order of all of them
    "lane_unpause",
    "lane_wake_up",
    "tier_tenants",
    "tenant_lock",  # names no rows
}
"""Statements in methods that use `Database.for_tenants`, not for the second wall or without a word of tenants."""


def test_every_statement_made_for_a_tenant_is_among_the_acts() -> None:
    all_names, named = set(statement_names()), set()
    for file in sorted(Path(credentials.__file__).parent.glob("*.py")):
        for method in ast.walk(ast.parse(file.read_text("utf-8"))):
            if isinstance(method, ast.AsyncFunctionDef) and any(map(_goes_behind, ast.walk(method))):
                texts = {node.value for node in ast.walk(method) if isinstance(node, ast.Constant)}
                named |= texts & all_names
    assert named - ACTS.keys() == BESIDE


def _goes_behind(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.Attribute)
        and node.attr == "for_tenants"
        and "_database" in ast.unparse(node.value)
    )


async def test_no_tenant_gets_the_row_of_another_in_the_same_batch(database: Database, wire: Wire) -> None:
    """The wall is one of the batch, so what was asked for is compared with what came."""
    world = await two_tenants(database)
    originals = [statement(name) for name in ("credential_read", "gate_connection")]
    wire.altered = {
        original.text: original.text.replace("USING (tenant_id, ", "USING (") for original in originals
    }
    nothing = HERE._replace(provider="xero")
    for read in (world.credentials.read, world.notes.connection):
        ours, theirs = await asyncio.gather(read(nothing), read(THERE._replace(provider="xero")))
        assert ours is None
        assert theirs is not None
    await world.close()


# ---- the pool --------------------------------------------------------------------------------------

BEHIND = ("row_security_enter", "audit_search_tenant")
"""Statements of one reading behind the wall: it is raised, and then the rows are asked for."""
LEFT_AFTER_S = 0.006
"""Other callers go away within this time: in line for a connection, most of them."""
SESSION_STATE = "SELECT current_setting('role'), coalesce(current_setting('fairlead.tenants', true), '')"


async def test_connections_that_tenants_share_keep_nothing_of_them(
    database_settings: DatabaseSettings, wire: Wire
) -> None:
    """Two tenants by turns over few connections, with statements that fail and callers that go away."""
    size, chance = sized(500, 10_000, "S27-pool"), Random(27)
    database = await Database.open(replace(database_settings, max_size=3))
    world, figures = await two_tenants(database), Figures("S27-pool")
    foreign = failed = 0
    cancelled: Counter[str] = Counter()

    async def ask(tenant: str) -> None:
        nonlocal foreign, failed
        for number in range(size // 10):
            views = await world.jobs.search(state=None, kind=None, tenant_id=tenant, queue=None, limit=9)
            foreign += sum(job.tenant_id != tenant for job in views)
            foreign += len(views) != (2 if tenant == OURS else 4)  # a job that waits, and those that died
            if number % 10 == 1:
                with pytest.raises(FairleadError):
                    await database.for_tenants(tenant).fetch(sql("SELECT 1 / 0"))
                failed += 1
            if number % 10 == 2:
                asking = asyncio.create_task(world.audit.search(tenant=tenant, limit=9))
                if cancel_point := chance.choice([None, *BEHIND]):
                    wire.leaves_at[asking] = cancel_point
                else:
                    await asyncio.sleep(chance.uniform(0, LEFT_AFTER_S))
                    asking.cancel()
                await asyncio.wait([asking])
                if asking.cancelled():
                    cancelled[wire.reached.get(asking, "in_line")] += 1

    await asyncio.gather(*(ask(tenant) for tenant in (OURS, THEIRS) for _ in range(10)))
    async with AsyncExitStack() as stack:
        lent = [await stack.enter_async_context(raw_connection(database)) for _ in range(3)]
        states = [tuple((await connection.fetch(SESSION_STATE))[0].values()) for connection in lent]
    figures.note(n=2 * size, failed=failed, cancelled=sum(cancelled.values()), connections=len(states))
    for cancel_at in ("in_line", *BEHIND):
        figures.note(**{f"cancelled_{cancel_at}": cancelled[cancel_at]})
        figures.holds(cancelled[cancel_at] > 0, f"nobody went away at {cancel_at}")
    figures.zero(foreign_rows=foreign, settings_left=sum(state != ("none", "") for state in states))
    figures.conclude()
    await world.close()
    await database.close()


# ---- what the wall is made of ----------------------------------------------------------------------


async def test_the_role_is_nobody(database: Database) -> None:
    [role] = await rows(
        database,
        "SELECT rolsuper, rolbypassrls, rolcanlogin, rolcreaterole, rolcreatedb FROM pg_roles"
        " WHERE rolname = 'fairlead_tenant'",
    )
    assert not any(role.values())
    owned = "SELECT FROM pg_class JOIN pg_roles r ON r.oid = relowner WHERE rolname = 'fairlead_tenant'"
    assert await rows(database, owned) == []


@pytest.mark.parametrize("table", TABLES)
async def test_every_table_of_tenants_has_the_wall(database: Database, table: str) -> None:
    [policy] = await rows(
        database,
        "SELECT polcmd::text, polpermissive, pg_get_expr(polqual, polrelid) AS seen,"
        " pg_get_expr(polwithcheck, polrelid) AS written, polroles[1]::regrole::text AS of_role"
        " FROM pg_policy WHERE polrelid = to_regclass($1) AND polname = 'tenants_see_theirs'",
        table,
    )
    assert (policy["polcmd"], policy["of_role"]) == ("*", "fairlead_tenant")
    assert policy["seen"] == policy["written"]
    assert "fairlead.tenants" in policy["seen"]


@pytest.mark.parametrize("tenants", [[], ["nobody"], ["%"], ['a"b\\,{}'], ["ACME"], ["acme "]])
async def test_unknown_tenant_sees_no_rows(database: Database, tenants: list[str]) -> None:
    await (await two_tenants(database)).close()
    for table in VISIBLE_TABLES:
        assert await database.for_tenants(*tenants).fetch(sql(f"SELECT FROM {table}")) == []


@pytest.mark.parametrize("tenant", ['a"b', "a,b", "{a}", "a\\b", "NULL", "''", "ü 💎"])
async def test_any_name_is_a_name(database: Database, tenant: str) -> None:
    jobs = PostgresJobStore(database, IDS, notify=False)
    await jobs.enqueue([new_job(tenant_id=name) for name in (tenant, "acme", "a", "b")])
    assert await database.for_tenants(tenant).fetch(sql("SELECT tenant_id FROM job")) == [(tenant,)]
    assert len(await database.for_tenants(tenant, "acme").fetch(sql("SELECT FROM job"))) == 2


async def test_a_statement_that_says_nothing_of_tenants_is_held_back(database: Database) -> None:
    """No transaction without its tenants: the role alone shows nothing."""
    await (await two_tenants(database)).close()
    async with (
        raw_connection(database) as connection,
        connection.transaction(isolation="read_committed"),
    ):
        await connection.execute("SET LOCAL ROLE fairlead_tenant")
        assert await connection.fetch("SELECT FROM job") == []
        assert await connection.execute("UPDATE job SET priority = 0") == "UPDATE 0"
