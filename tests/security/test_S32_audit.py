"""S32: an act of a person leaves exactly one record, a try or a look none; records stay, without secrets."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import asyncpg
import pytest

from fairlead.adapters.embedded import Endpoints
from fairlead.adapters.postgres.database import Database
from fairlead.adapters.postgres.jobs import PostgresJobStore
from fairlead.testing.issuer import Issuer, IssuerConfig, ProviderConfig
from tests.e2e.test_cli_connections import ACME, SETTINGS, a_grant
from tests.e2e.test_cli_dlq import dead
from tests.security.figures import tell
from tests.support.cli import Shell
from tests.support.engine import IDS, new_job
from tests.support.passing_time import pass_time
from tests.support.rows import rows

Words = tuple[str, ...]
WHY = ("--reason", "a drill")

ACTS: tuple[tuple[str, Words], ...] = (
    ("connection.configured", ("connections", "set", *ACME, "--setting", "concurrency_limit=5")),
    ("token.refreshed", ("connections", "refresh", *ACME)),
    ("token.refreshed", ("providers", "try", "mercadolibre", "--connection", "acme", "--send")),
    ("jobs.paused", ("jobs", "pause", "--tenant", "acme", *WHY)),
    ("jobs.resumed", ("jobs", "resume", "--tenant", "acme")),
    ("job.retried", ("jobs", "retry", "{later}")),
    ("job.cancelled", ("jobs", "cancel", "{later}", *WHY)),
    ("tenant.share_set", ("tenants", "weights", "set", "acme", "3")),
    ("tenant.share_set", ("tenants", "weights", "clear", "acme")),
    ("tenant.share_set", ("tenants", "caps", "set", "acme", "7")),
    ("tenant.share_set", ("tenants", "caps", "clear", "acme")),
    ("group.cap_set", ("tenants", "caps", "set", "shopify/default", "7", "--shared")),
    ("tier.set", ("tenants", "tiers", "set", "gold", "--weight", "2")),
    ("tenant.share_set", ("tenants", "tiers", "assign", "gold", "acme")),
    ("tenant.share_set", ("tenants", "tiers", "unassign", "acme")),
    ("tier.removed", ("tenants", "tiers", "remove", "gold")),
    ("gate.isolated", ("gate", "isolate", *ACME, *WHY)),
    ("gate.disabled", ("gate", "disable", *ACME, *WHY)),
    ("gate.enabled", ("gate", "enable", *ACME)),
    ("gate.degraded", ("gate", "degrade", "--all", *WHY)),
    ("gate.restored", ("gate", "restore", "--all")),
    ("gate.reset", ("gate", "breaker", "reset", *ACME, "--host", "api.example")),
    ("gate.cleared", ("gate", "clear", "--yes")),
    ("dead_letter.redriven", ("dlq", "redrive", "{first}")),
    ("dead_letter.manual_resolved", ("dlq", "resolve", "{second}", "--reason", "mended")),
    ("dead_letter.abandoned", ("dlq", "abandon", "{third}", "--reason", "too late")),
    ("dead_letters.pruned", ("dlq", "prune", "--older-than", "1h")),
    ("vault.rotated", ("vault", "rotate-key", "--rewrap-only")),
    ("connection.revoked", ("connections", "revoke", *ACME)),
    ("connection.removed", ("connections", "remove", *ACME)),
)
NO_TRY = {("connections", "refresh"), ("providers", "try")}
"""Acts that cannot be tried without being done."""
LOOKS: tuple[Words, ...] = (
    ("status",),
    ("connections", "list"),
    ("connections", "show", *ACME),
    ("jobs", "list"),
    ("dlq", "list"),
    ("tenants", "show", "acme"),
    ("gate", "overrides"),
    ("vault", "status"),
    ("vault", "verify"),
    ("config", "show"),
)


@pytest.fixture
async def issuer() -> AsyncIterator[Issuer]:
    played = {"mercadolibre": ProviderConfig(policy="strict", dialect="mercadolibre")}
    async with Issuer(IssuerConfig(providers=played)) as issuer:
        yield issuer


@pytest.fixture
def cli(shell: Shell, issuer: Issuer, servers: Endpoints) -> Shell:
    shell.settings(SETTINGS.format(url=issuer.url, secret=shell.secret("client-secret")))
    shell.environ |= {"REDIS_URL": servers.redis_url, "FAIRLEAD_REDIS__PREFIX": "s32"}
    return shell


async def trail(database: Database) -> list[dict[str, Any]]:
    return await rows(database, "SELECT * FROM audit ORDER BY at, audit_id")


async def prepared(cli: Shell, issuer: Issuer, database: Database) -> Callable[[Words], Words]:
    """Everything that acts need; fills in the ids of it."""
    grant = json.dumps(a_grant(cli, issuer, "acme"))
    assert (await cli("connections", "add", *ACME, stdin=grant)).code == 0
    first, second, third = await dead(database, *(new_job("mail", tenant_id="acme") for _ in range(3)))
    (later,) = await PostgresJobStore(database, IDS).enqueue([new_job("mail", tenant_id="b", delay_s=900)])
    ids = {"first": first, "second": second, "third": third, "later": str(later.job_id)}
    return lambda words: tuple(word.format(**ids) for word in words)


async def test_each_act_leaves_one_record(cli: Shell, issuer: Issuer, database: Database) -> None:
    filled = await prepared(cli, issuer, database)
    trail_before = await trail(database)
    assert [record["act"] for record in trail_before] == ["connection.created"]
    wrong: list[str] = []
    for act, words in ACTS:
        if words[:2] == ("dlq", "prune"):
            await pass_time(database, 7200)
            trail_before = await trail(database)
        if words[:2] not in NO_TRY:
            assert (await cli(*filled(words), "--dry-run")).code == 0, words
            assert await trail(database) == trail_before, f"only tried: {words}"
        done = await cli(*filled(words))
        trail_after = await trail(database)
        added = [record["act"] for record in trail_after[len(trail_before) :]]
        if done.code or added != [act] or trail_after[: len(trail_before)] != trail_before:
            wrong.append(f"{' '.join(words)}: {done.code} {added} {done.err}")
        trail_before = trail_after
    assert wrong == [], "\n".join(wrong)
    assert {record["actor"].partition(":")[0] for record in trail_before} == {"cli"}
    text = json.dumps(trail_before, default=str)
    assert [canary for canary in cli.canaries if canary in text] == []
    tell("S32", n=len(ACTS), missing=0, double=0)


async def test_looking_leaves_none(cli: Shell, issuer: Issuer, database: Database) -> None:
    await prepared(cli, issuer, database)
    trail_before = await trail(database)
    for words in LOOKS:
        assert (await cli(*words)).code in (0, 4), words
    assert await trail(database) == trail_before


@pytest.mark.parametrize("change", ["UPDATE audit SET act = 'x'", "DELETE FROM audit", "TRUNCATE audit"])
async def test_no_record_is_changed_or_taken_away(
    cli: Shell, issuer: Issuer, database: Database, change: str
) -> None:
    await prepared(cli, issuer, database)
    trail_before = await trail(database)
    connection = await asyncpg.connect(cli.environ["DATABASE_URL"])
    try:
        await connection.execute(f"SET search_path = '{cli.environ['FAIRLEAD_DATABASE__SCHEMA_NAME']}'")
        with pytest.raises(asyncpg.PostgresError, match="append-only"):
            await connection.execute(change)
    finally:
        await connection.close()
    assert await trail(database) == trail_before


def test_every_act_of_the_command_line_is_among_them() -> None:
    """What takes --dry-run changes something: it is in the table above, or said here why not."""
    elsewhere: dict[Words, str] = {
        ("init",): "writes files of this host",
        ("migrate",): "the audit itself is made by it",
        ("connections", "add"): "in every test here, and shown by the first",
        ("connections", "import"): "each entry as `add`: test_cli_connections",
        ("gate", "promote"): "needs a call in flight: test_cli_gate_acts",
        ("gate", "orphans"): "needs places of the dead: test_cli_gate_store",
        ("providers", "resume"): "needs a paused endpoint: test_cli_providers",
        ("schedules", "pause"): "needs a schedule: test_cli_schedules",
        ("schedules", "resume"): "as above",
        ("schedules", "run"): "as above",
        ("schedules", "remove"): "as above",
        ("vault", "add-key"): "writes a file of this host",
    }
    known_commands = {
        words[: len(command)]
        for command in commands()
        for _, words in ACTS
        if words[: len(command)] == command
    }
    assert commands() - known_commands == set(elsewhere)


def commands() -> set[Words]:
    """The commands that take --dry-run."""

    from fairlead.cli.registry import COMMANDS, LazyCommand

    commands_found: set[Words] = set()

    def walk(command: Any, words: Sequence[str]) -> None:
        if hasattr(command, "commands"):
            for name, inner in command.commands.items():
                walk(inner, (*words, name))
        elif any("--dry-run" in parameter.opts for parameter in command.params):
            commands_found.add(tuple(words))

    for name, entry in COMMANDS.items():
        walk(LazyCommand(name, entry).load(), (name,))
    return commands_found
