"""Every door that takes a tenant, asked by one for what is another's: as for what nobody has (S27).

Each is asked twice, for an account that only the other tenant has and for one that nobody has; or for a list,
which names nobody else. No row of the other tenant changes. Whatever takes a tenant must stand here.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from secrets import token_hex

import pytest

from fairlead import Fairlead
from fairlead.adapters.embedded import Endpoints
from fairlead.adapters.postgres.connection_setup import DatabaseSettings
from fairlead.adapters.postgres.database import Database
from fairlead.app.connections import ConnectionsAPI
from fairlead.assembly.config import load
from fairlead.cli.entry import root
from fairlead.errors import FairleadError
from tests.contract.credential_steps import new_credential
from tests.faults.support.report import Figures
from tests.support.cli import MASTER_KEY, Shell
from tests.support.rows import rows, run
from tests.support.two_tenants import OURS, THEIRS, THERE, World, others, two_tenants
from tools.cli_reference import _commands

pytestmark = pytest.mark.slow

ONLY_THEIRS, NOBODYS = "eu", "xx"
"""Buckets at shopify, where both have one called default."""
KEY = "order/7"
"""A unique key that both use."""


@pytest.fixture
async def world(database: Database) -> AsyncIterator[World]:
    world = await two_tenants(database)
    await world.credentials.create(new_credential(THERE._replace(account=ONLY_THEIRS)))
    await run(database, "DELETE FROM data_key")  # no master key of this process wrapped it
    await run(database, "UPDATE connection SET variant = NULL, settings = '{}'")
    yield world
    await world.close()


# ---- the command line ------------------------------------------------------------------------------

NAMED = ("-t", OURS, "-p", "shopify", "-a", "{account}")
BY_NAME: dict[str, tuple[str, ...]] = {
    "connections show": (),
    "connections set": ("--setting", "priority=high"),
    "connections test": (),
    "connections refresh": (),
    "connections reauthorize": ("--link",),
    "connections revoke": ("--yes",),
    "connections remove": ("--yes",),
    "gate promote": ("0000000000000001",),
    "gate status": (),
    "gate isolate": ("--reason", "test", "--yes"),
    "gate disable": ("--reason", "test", "--yes"),
    "gate enable": (),
    "gate breaker reset": (),
}
OF_A_TENANT: dict[str, tuple[str, ...]] = {
    "connections list": (),
    "connections export": (),
    "jobs list": (),
    "jobs retry": ("--yes",),
    "jobs cancel": ("--yes",),
    "jobs pause": ("--reason", "test", "--yes"),
    "jobs resume": (),
    "tenants fairness": (),
    "dlq list": (),
    "dlq stats": ("--by", "tenant"),
    "dlq export": (),
    "dlq redrive": ("--yes",),
    "dlq resolve": ("--reason", "test", "--yes"),
    "dlq abandon": ("--reason", "test", "--yes"),
}
BEGIN_THEIRS = {"connections add", "connections authorize"}
"""They make a connection of the tenant they name, as `fl.connections.upsert` does."""


def test_every_command_that_takes_a_tenant_is_asked() -> None:
    takes = {
        " ".join(path[1:])
        for path, command in _commands(root(), ("fairlead",))
        if any("--tenant" in getattr(parameter, "opts", ()) for parameter in command.params)
    }
    assert takes == BY_NAME.keys() | OF_A_TENANT.keys() | BEGIN_THEIRS


async def test_commands_find_nothing_of_others(shell: Shell, servers: Endpoints, world: World) -> None:
    shell.environ |= {"REDIS_URL": servers.redis_url, "FAIRLEAD_REDIS__PREFIX": f"e2e-{token_hex(6)}"}
    figures = Figures("S27-commands")
    rows_before, found_count, tried_count = await others(world.database), 0, 0
    for path, more in BY_NAME.items():
        answers = []
        for account in (ONLY_THEIRS, NOBODYS):
            names = [word.format(account=account) for word in NAMED]
            done = await shell(*path.split(), *more, *names, "--json")
            answers.append((done.code, *(text.replace(account, "*") for text in (done.out, done.err))))
        tried_count += 1
        found_count += answers[0] != answers[1]
        figures.holds(answers[0] == answers[1], f"{path}: {answers}")
    for path, more in OF_A_TENANT.items():
        done = await shell(*path.split(), *more, "-t", OURS, "--json")
        tried_count += 1
        found_count += THEIRS in done.out + done.err
        figures.holds(done.code == 0, f"{path}: {done}")
        figures.holds(THEIRS not in done.out + done.err, f"{path}: {done}")
    rows_after = await others(world.database)
    changed = [table for table in rows_before if rows_before[table] != rows_after[table]]
    figures.note(n=tried_count, changed=changed)
    figures.zero(cross_tenant_reads=found_count, cross_tenant_writes=len(changed))
    figures.conclude()


# ---- the library -----------------------------------------------------------------------------------


@pytest.fixture
def door(servers: Endpoints, database_settings: DatabaseSettings, tmp_path: Path) -> Fairlead:
    file = tmp_path / "fairlead.toml"
    file.write_text(f'home = "{tmp_path / "home"}"\nredis.prefix = "e2e-{token_hex(6)}"\n')
    secrets = {
        "DATABASE_URL": database_settings.dsn,
        "REDIS_URL": servers.redis_url,
        "FAIRLEAD_MASTER_KEY": MASTER_KEY,
        "FAIRLEAD_DATABASE__SCHEMA_NAME": database_settings.schema or "",
    }
    return Fairlead(load(secrets, file))


Ask = Callable[[Fairlead, str], Awaitable[object]]


async def _call(fl: Fairlead, account: str) -> object:
    async with fl.client(OURS, "shopify", account) as api:
        return await api.get("/orders.json")


async def _admission(fl: Fairlead, account: str) -> object:
    async with fl.admission(OURS, "shopify", account):
        return "in"


async def _bulk(fl: Fairlead, account: str) -> object:
    async with fl.bulk(OURS, "shopify", account):
        return "in"


async def _enqueue(fl: Fairlead, account: str) -> object:
    """Stored for whoever is named: a new job of ours, though theirs has the key."""
    job_id = await fl.enqueue(
        "work", tenant=OURS, provider="shopify", account=account, unique_key=KEY + account
    )
    [job] = await rows(fl.runtime.database, "SELECT tenant_id FROM job WHERE job_id = $1", job_id)
    return job["tenant_id"]


async def _answer_of(fl: Fairlead, account: str) -> object:
    views = await fl.connections.search(tenant=OURS)
    return {(view.tenant, view.account) for view in views}


DOORS: dict[str, Ask] = {
    "token": lambda fl, account: fl.token(OURS, "shopify", account),
    "refresh": lambda fl, account: fl.refresh(OURS, "shopify", account),
    "client": _call,
    "admission": _admission,
    "bulk": _bulk,
    "enqueue": _enqueue,
    "connections.get": lambda fl, account: fl.connections.get(OURS, "shopify", account),
    "connections.configure": lambda fl, account: fl.connections.configure(
        OURS, "shopify", account, settings={"priority": "high"}
    ),
    "connections.search": _answer_of,
    "connections.revoke": lambda fl, account: fl.connections.revoke(OURS, "shopify", account),
    "connections.remove": lambda fl, account: fl.connections.remove(OURS, "shopify", account),
}
DECLARE = {"cron", "schedule"}
"""They declare schedules of the program: no answer tells of any tenant."""
BEGIN = {"connections.upsert"}


def test_every_door_that_takes_a_tenant_is_asked() -> None:
    def takes(door: type, prefix: str) -> set[str]:
        methods = inspect.getmembers(door, inspect.isfunction)
        return {
            prefix + name
            for name, function in methods
            if "tenant" in inspect.signature(function).parameters and not name.startswith("_")
        }

    assert takes(Fairlead, "") | takes(ConnectionsAPI, "connections.") == DOORS.keys() | DECLARE | BEGIN


async def answer(question: Awaitable[object], account: str) -> str:
    try:
        return repr(await question).replace(account, "*")
    except FairleadError as error:
        return repr((type(error).__name__, str(error))).replace(account, "*")


async def test_doors_find_nothing_of_others(door: Fairlead, world: World) -> None:
    figures, found_count = Figures("S27-doors"), 0
    async with door as fl:
        for account in (ONLY_THEIRS, NOBODYS):
            await fl.enqueue("work", tenant=THEIRS, unique_key=KEY + account)
        rows_before = await others(world.database)
        for name, ask in DOORS.items():
            theirs, nobodys = [await answer(ask(fl, account), account) for account in (ONLY_THEIRS, NOBODYS)]
            found_count += theirs != nobodys or THEIRS in theirs
            figures.holds(theirs == nobodys, f"{name}: {theirs} where nobody's is {nobodys}")
        rows_after = await others(world.database)
    changed = [table for table in rows_before if rows_before[table] != rows_after[table]]
    figures.note(n=len(DOORS), changed=changed)
    figures.zero(cross_tenant_reads=found_count, cross_tenant_writes=len(changed))
    figures.conclude()


async def test_a_place_of_others_is_taken_over_by_nobody(door: Fairlead, world: World) -> None:
    """A token of theirs is worth to us what one is that names no place; it says itself what runs."""
    async with door as fl:
        async with fl.bulk(THEIRS, "shopify") as operation:
            operation.started("gid://1")

        async def go_on(tenant: str, token: str) -> object:
            async with fl.bulk(tenant, "shopify", token=token) as again:
                running_id = again.running_id
                again.finished()
                return running_id

        never = "0" * 16 + operation.token[16:]
        theirs, nobodys = [await answer(go_on(OURS, token), token) for token in (operation.token, never)]
        assert theirs == nobodys
        assert await go_on(THEIRS, operation.token) == "gid://1", "it is still theirs"
