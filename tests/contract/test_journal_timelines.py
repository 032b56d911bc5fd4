"""The port Journal and fail-overs: on which history of the database whose answers are settled (R11)."""

from __future__ import annotations

import errno
import stat
from pathlib import Path
from uuid import uuid4

import pytest

from fairlead.adapters.journal import FileJournal
from fairlead.adapters.journal.disk import Disk
from fairlead.adapters.journal.journal import JournalSettings
from tests.unit.adapters.test_journal_record import entry_number

SMALL = JournalSettings(segment_bytes=4096, mark_delay_s=0.01)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "journal"


async def test_a_new_journal_begins_on_the_first_timeline_it_hears_of(folder: Path) -> None:
    owner = uuid4()
    async with FileJournal(folder, owner, SMALL) as journal:
        assert await journal.on_timeline("7/1") == {}
        [noted] = folder.glob("*.timeline")
        assert (noted.read_text(), stat.S_IMODE(noted.stat().st_mode)) == ("7/1", 0o600)
        assert await journal.on_timeline("7/2") == {str(owner): "7/1"}
        assert await journal.on_timeline("7/2") == {str(owner): "7/1"}  # not caught up yet
        await journal.caught_up([str(owner)], "7/2")
        assert await journal.on_timeline("7/2") == {}
    assert list(folder.iterdir()) == []


async def test_the_timeline_of_the_dead_is_told_to_their_heir(folder: Path) -> None:
    old, older = uuid4(), uuid4()
    async with FileJournal(folder, old, SMALL) as dead, FileJournal(folder, older, SMALL) as unnoted:
        await dead.on_timeline("7/1")
        for one in (dead, unnoted):
            await one.append(entry_number(1))
            one.settled(entry_number(1).rotation_id, 1)
    async with FileJournal(folder, uuid4(), SMALL) as heir:
        assert await heir.on_timeline("7/2") == {}  # nothing was taken over yet
        await heir.orphans()
        behind = await heir.on_timeline("7/2")
        assert behind == {str(old): "7/1", str(older): None}
        await heir.caught_up(behind, "7/2")
    async with FileJournal(folder, uuid4(), SMALL) as next_heir:
        await next_heir.orphans()
        assert await next_heir.on_timeline("7/2") == {}


async def test_a_timeline_is_not_written_through_a_link(folder: Path, tmp_path: Path) -> None:
    owner, other = uuid4(), tmp_path / "other"
    other.write_text("7/1")
    async with FileJournal(folder, owner, SMALL) as journal:
        for name in (f"{owner}.timeline", f"{owner}.timeline.new"):
            (folder / name).symlink_to(other)
        assert await journal.on_timeline("7/2") == {}
        assert (folder / f"{owner}.timeline").read_text() == "7/2"
        assert not (folder / f"{owner}.timeline").is_symlink()
    assert other.read_text() == "7/1"


async def test_a_timeline_that_cannot_be_written_is_settled_again_by_the_next(folder: Path) -> None:
    owner = uuid4()
    async with FileJournal(folder, owner, SMALL, disk=_Full()) as journal:
        assert await journal.on_timeline("7/1") == {}
        await journal.append(entry_number(1))
    async with FileJournal(folder, uuid4(), SMALL) as heir:
        await heir.orphans()
        assert await heir.on_timeline("7/1") == {str(owner): None}


class _Full(Disk):
    def replace(self, path: Path, data: bytes) -> None:
        raise OSError(errno.ENOSPC, "no space left")
