"""Records that open in their place alone, and journals that outlive who wrote them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextvars import Context
from dataclasses import replace
from datetime import UTC, datetime
from random import Random
from typing import Any
from uuid import UUID

import pytest

from fairlead.engine.ports import JournalEntry, JournalHead, SealContext, Sealed
from fairlead.errors import CredentialUnreadableError, RefusedError
from tests.simulation.loop import SimLoop
from tests.simulation.process import SimProcess
from tests.simulation.sealing import HostDisk, SimJournal, SimVault

CONTEXT = SealContext("acme", UUID(int=7), "strict", "credential", 1)
ENTRY = JournalEntry(
    connection_id=UUID(int=7),
    tenant="acme",
    provider="strict",
    attempt_id=UUID(int=8),
    from_generation=1,
    epoch=3,
    sent_at=datetime(2026, 1, 1, tzinfo=UTC),
    sealed=Sealed(UUID(int=1), b"answer"),
)


def middle(least_most: tuple[float, float]) -> float:
    return sum(least_most) / 2


def run(loop: SimLoop, work: Callable[[], Awaitable[Any]]) -> Any:
    async def scenario() -> Any:
        return await work()

    return loop.run_until_complete(loop.create_task(scenario(), context=Context()))


async def pages_of(journal: SimJournal) -> list[list[JournalHead]]:
    return [page async for page in journal.heads()]


def test_a_record_opens_in_its_place_alone() -> None:
    loop, vault = SimLoop(Random(1)), SimVault()
    sealed = vault.seal(CONTEXT, b"secret")
    assert run(loop, lambda: vault.open(CONTEXT, sealed)) == b"secret"
    with pytest.raises(CredentialUnreadableError):
        run(loop, lambda: vault.open(replace(CONTEXT, generation=2), sealed))
    loop.close()


def test_written_file_outlives_its_process() -> None:
    loop, disk = SimLoop(Random(1)), HostDisk()
    first, second = SimProcess("p1", "host-a"), SimProcess("p1", "host-a", 2)
    dead, heir = (SimJournal(disk, process, loop, middle) for process in (first, second))
    run(loop, lambda: dead.append(ENTRY))
    assert run(loop, lambda: heir.find(ENTRY.connection_id, 1)) == ENTRY
    assert run(loop, heir.orphans) == []  # its owner lives
    first.die()
    assert run(loop, heir.orphans) == [ENTRY]
    [page] = run(loop, lambda: pages_of(heir))
    assert [head.epoch for head in page] == [ENTRY.epoch]
    assert run(loop, lambda: heir.find(ENTRY.connection_id, 1)) == ENTRY
    loop.close()


def test_of_two_answers_the_later_send_counts() -> None:
    loop, disk = SimLoop(Random(1)), HostDisk()
    journal = SimJournal(disk, SimProcess("p1", "host-a"), loop, middle)
    later = replace(ENTRY, epoch=9)
    for entry in (later, ENTRY):
        run(loop, lambda entry=entry: journal.append(entry))  # type: ignore[misc]
    assert run(loop, lambda: journal.find(ENTRY.connection_id, 1)) == later
    loop.close()


def test_a_full_disk_is_told_before_it_costs_a_token() -> None:
    loop, disk = SimLoop(Random(1)), HostDisk(full=True)
    journal = SimJournal(disk, SimProcess("p1", "host-a"), loop, middle)
    with pytest.raises(RefusedError):
        journal.preflight()
    with pytest.raises(OSError, match="full"):
        run(loop, lambda: journal.append(ENTRY))
    loop.close()
