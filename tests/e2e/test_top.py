"""`fairlead top` in a pipe: one look at what the others do, and nothing done by it."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from uuid import UUID

import pytest

from fairlead.app import Fairlead
from fairlead.assembly.config import load
from fairlead.engine.ports import AuditRecord, EndpointKey, EndpointLimits, EndpointPermit, PermitRequest
from fairlead.policy.calls.blast_radius import TOKEN
from tests.support.cli import Shell


@pytest.fixture
async def fairlead(shell: Shell) -> AsyncIterator[Fairlead]:
    """A process of the fleet beside the command."""
    environ = {**shell.environ, "FAIRLEAD_HOME": str(shell.folder / "home")}
    async with Fairlead(load(environ)) as opened:
        yield opened


async def test_top_shows_every_part_of_the_system(shell: Shell, fairlead: Fairlead) -> None:
    secret = shell.secret("refresh")
    for account, left_s in (("dead", 0.0), ("good", 20_000.0)):
        fields = {"access_token": secret, "refresh_token": secret, "expires_in_s": left_s}
        await fairlead.connections.upsert("acme", "mercadolibre", account=account, **fields)
    await fairlead.enqueue("mail", tenant="acme")
    await fairlead.enqueue("mail", tenant="acme", delay_s=600.0)
    runtime = fairlead.runtime
    acts = [AuditRecord(runtime.ids.uuid7(), "token.refreshed", "fairlead") for _ in range(50)]
    await runtime.audit.append(acts)
    for number in (1, 2):
        limits = EndpointLimits(None, 1.0)
        ask = PermitRequest(EndpointKey("mercadolibre", "app"), limits, UUID(int=number), 1, "f")
        refused = TOKEN["rejected.permanent_config.client"]
        await runtime.endpoints.record(ask, EndpointPermit(), refused, "invalid_client")

    screen = (await shell("top", "--once", "--json")).record
    assert screen["connections"] == {"active": 2}
    assert (screen["due"], screen["due_more"]) == ({"critical": 1, "urgent": 0, "normal": 0}, False)
    assert (screen["jobs"]["available"], screen["jobs"]["scheduled"]) == (1, 1)
    assert screen["dead_letters"] == {}
    assert screen["refreshes_per_s"] == 5.0  # over ten seconds
    (process,) = screen["processes"]  # top itself is none
    assert (process["pid"], process["state"], process["running_jobs"]) == (os.getpid(), "alive", 0)
    assert 0 <= process["heartbeat_age_s"] < 30
    (tenant,) = screen["tenants"]
    assert (tenant["tenant"], tenant["waiting"], tenant["current_priority"]) == ("acme", 2, 5)
    (endpoint,) = screen["endpoints_closed_off"]
    assert (endpoint["state"], endpoint["reason"], screen["endpoints"]) == ("paused", "invalid_client", 1)

    piped = await shell("top")  # no terminal: one look as text
    assert (piped.code, piped.err) == (0, "")
    assert "2 active" in piped.out
    assert "1 critical" in piped.out
    assert "invalid_client" in piped.out


async def test_two_versions_of_an_application_stand_side_by_side(shell: Shell) -> None:
    """A deploy that is half done is seen at a glance, also by scripts."""
    environ = {**shell.environ, "FAIRLEAD_HOME": str(shell.folder / "home")}
    old, new = (load({**environ, "FAIRLEAD_APP_VERSION": version}) for version in ("4.1.9", "4.2.0-rc1"))
    async with Fairlead(old), Fairlead(new):
        for command in ("top", "status"):
            processes = (await shell(command, "--json")).record["processes"]
            assert [process["app_version"] for process in processes] == ["4.2.0-rc1", "4.1.9"]
        screen = (await shell("top")).out
        assert "4.1.9" in screen
        assert "4.2.0-rc1" in screen


async def test_an_empty_house(shell: Shell) -> None:
    screen = (await shell("top", "--json")).record
    assert (screen["connections"], screen["processes"], screen["refreshes_per_s"]) == ({}, [], 0.0)
    assert (await shell("top", "--once")).code == 0


async def test_without_a_database_it_says_what_to_do(bare: Shell) -> None:
    done = await bare("top", "--json")
    assert (done.code, done.out, done.error["code"]) == (69, "", "dependency_unavailable")
