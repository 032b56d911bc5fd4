"""The steps of a command that changes something: dry run, confirm, act, audit record, result row."""

from __future__ import annotations

import io
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import pytest

from fairlead.assembly.runtime import Runtime
from fairlead.cli.kit.changes import (
    AuditEntry,
    Change,
    ChangeOptions,
    ConfirmOptions,
    Done,
    Plan,
    Unchanged,
    carry_out,
    for_each,
)
from fairlead.cli.kit.exits import Exit
from fairlead.cli.kit.invocation import AbortedError, GlobalOptions, Invocation
from fairlead.engine.ports import AuditRecord
from fairlead.errors import (
    CredentialUnreadableError,
    DependencyUnavailableError,
    FairleadError,
    InvalidInputError,
)


class Terminal(io.StringIO):
    """A terminal at which someone types."""

    def isatty(self) -> bool:
        return True


class World:
    """A runtime with only an audit trail, and a log of what was done."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self.records: list[AuditRecord] = []
        self.ids = SimpleNamespace(uuid7=lambda: UUID(int=7))
        self.audit = self

    async def append(self, records: Sequence[AuditRecord]) -> None:
        self.log.append("audit")
        self.records += records

    async def act(self) -> None:
        self.log.append("act")

    async def later(self) -> dict[str, Any]:
        self.log.append("afterwards")
        return {"groups_due": 1}

    async def carry_out(self, plan: Plan, options: ConfirmOptions) -> dict[str, Any]:
        call = Invocation(GlobalOptions(), GlobalOptions().output())
        return dict(await carry_out(call, cast(Runtime, self), plan, options))


@pytest.fixture
def world() -> World:
    return World()


async def test_change_acts_then_records_then_continues(world: World) -> None:
    change = Change(
        "paused", world.act, {"queue": "mail"}, audit=AuditEntry("jobs.paused", {}), afterwards=world.later
    )
    row = await world.carry_out(change, ChangeOptions())
    assert row == {"queue": "mail", "groups_due": 1, "result": "paused"}
    assert world.log == ["act", "audit", "afterwards"]


async def test_dry_run_neither_acts_nor_records_nor_asks(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", Terminal("n\n"))
    change = Change("paused", world.act, question="Pause it?", audit=AuditEntry("jobs.paused", {}))
    assert await world.carry_out(change, ChangeOptions(dry_run=True)) == {"result": "would be paused"}
    assert world.log == []


async def test_terminal_is_asked_before_the_act_unless_yes(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", Terminal("n\n"))
    change = Change("removed", world.act, question="Remove it?")
    with pytest.raises(AbortedError):
        await world.carry_out(change, ChangeOptions())
    assert world.log == []
    assert await world.carry_out(change, ChangeOptions(yes=True)) == {"result": "removed"}


async def test_reason_and_details_reach_the_audit_record(world: World) -> None:
    async def act() -> Done:
        return Done("enqueued", fields={"job_id": "1"}, details={"job_id": "1"})

    change = Change("run", act, audit=AuditEntry("schedule.run", {"schedule": "s"}, tenant="acme"))
    row = await world.carry_out(change, ChangeOptions(reason="vendor is back"))
    assert row == {"job_id": "1", "result": "enqueued"}
    (record,) = world.records
    assert (record.act, record.tenant, record.actor.partition(":")[0]) == ("schedule.run", "acme", "cli")
    assert record.details == {"schedule": "s", "job_id": "1", "reason": "vendor is back"}


async def test_unchanged_state_leaves_no_audit_record(world: World) -> None:
    async def act() -> Unchanged:
        return Unchanged("started meanwhile")

    change = Change("due now", act, audit=AuditEntry("job.retried", {}))
    assert await world.carry_out(change, ChangeOptions()) == {"result": "started meanwhile"}
    assert await world.carry_out(Unchanged("not paused"), ChangeOptions()) == {"result": "not paused"}
    assert world.records == []


async def act_or_raise(error: FairleadError | None) -> dict[str, str]:
    if error is not None:
        raise error
    return {"result": "done"}


async def test_failed_item_stops_no_other() -> None:
    items = [None, InvalidInputError("no such thing"), None]
    bulk = await for_each(items, lambda item: {"of": str(item)}, act_or_raise)
    assert [row["result"] for row in bulk.rows] == ["done", "failed", "done"]
    assert (bulk.rows[1]["code"], bulk.exit) == ("invalid_input", Exit.PARTIAL)


async def test_error_that_concerns_every_item_ends_the_command() -> None:
    """Where the database is unavailable, each of a million items would wait for it."""
    of_one, expected = CredentialUnreadableError("it does not open"), (CredentialUnreadableError,)
    bulk = await for_each([of_one], lambda item: {}, act_or_raise, expected=expected)
    assert (bulk.failures, bulk.exit) == (1, Exit.FAILED)
    unavailable = [of_one, DependencyUnavailableError("the database is unavailable")]
    with pytest.raises(DependencyUnavailableError):
        await for_each(unavailable, lambda item: {}, act_or_raise, expected=expected)
