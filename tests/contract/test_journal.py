"""The port Journal: on disk before anybody is told, found by everybody, inherited from the dead once."""

from __future__ import annotations

import asyncio
import json
import os
import stat
import threading
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from uuid import UUID, uuid4

import pytest

from fairlead.adapters.journal import FileJournal
from fairlead.adapters.journal.journal import JournalSettings
from fairlead.adapters.journal.record import encode_entry
from fairlead.engine.ports import JournalEntry, JournalHead
from fairlead.errors import InvalidConfigError, RefusedError
from tests.unit.adapters.test_journal_record import entry_number

SMALL = JournalSettings(segment_bytes=4096)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "journal"


@pytest.fixture
async def journal(folder: Path) -> AsyncIterator[FileJournal]:
    async with FileJournal(folder, uuid4(), SMALL) as journal:
        yield journal


def heads_of(*entries: JournalEntry) -> list[JournalHead]:
    return [
        JournalHead(e.connection_id, e.attempt_id, e.from_generation, e.epoch, e.sent_at) for e in entries
    ]


async def all_heads(journal: FileJournal) -> list[JournalHead]:
    return [head async for page in journal.heads() for head in page]


async def inherited(journal: FileJournal) -> list[JournalHead]:
    await journal.orphans()
    return await all_heads(journal)


# ---- appending


async def test_an_acknowledged_entry_is_in_the_file(journal: FileJournal, folder: Path) -> None:
    journal.preflight()
    entry = entry_number(1)
    await journal.append(entry)
    files = b"".join(path.read_bytes() for path in folder.glob("*.journal"))
    assert entry.sealed.blob in files
    assert await journal.find(entry.connection_id, 1) == entry
    assert await journal.find(entry.connection_id, 2) is None
    assert await journal.find(uuid4(), 1) is None


async def test_many_at_once_share_files_and_all_are_found(journal: FileJournal, folder: Path) -> None:
    entries = [entry_number(number, os.urandom(200)) for number in range(300)]
    await asyncio.gather(*(journal.append(entry) for entry in entries))
    assert len(list(folder.glob("*.journal"))) > 10  # 300 entries of 300 bytes in files of 4 KiB
    for entry in entries:
        assert await journal.find(entry.connection_id, entry.from_generation) == entry


async def test_the_newest_send_of_a_generation_is_found(journal: FileJournal) -> None:
    entry = entry_number(1)
    for epoch in (5, 9, 7):
        await journal.append(replace(entry, epoch=epoch, attempt_id=uuid4()))
    found_entry = await journal.find(entry.connection_id, 1)
    assert found_entry is not None
    assert found_entry.epoch == 9


async def test_the_newest_send_that_fits_is_found(journal: FileJournal) -> None:
    entry = entry_number(1)
    for epoch in (5, 9, 7):
        await journal.append(replace(entry, epoch=epoch, attempt_id=uuid4()))
    found_entry = await journal.find(entry.connection_id, 1, lambda entry: entry.epoch < 8)
    assert found_entry is not None
    assert found_entry.epoch == 7
    assert await journal.find(entry.connection_id, 1, lambda entry: entry.epoch < 5) is None


async def test_places_that_look_alike_are_told_apart(journal: FileJournal) -> None:
    first = entry_number(1)
    other = replace(first, connection_id=UUID(int=1 << 100 | 1), attempt_id=uuid4())
    await journal.append(first)
    await journal.append(other)
    assert await journal.find(first.connection_id, 1) == first
    assert await journal.find(other.connection_id, 1) == other


async def test_an_entry_larger_than_a_file_is_an_error_and_no_harm(journal: FileJournal) -> None:
    with pytest.raises(OSError, match="larger"):
        await journal.append(entry_number(1, bytes(5000)))
    journal.preflight()
    await journal.append(entry_number(2))


async def test_a_cancelled_append_is_kept_all_the_same(journal: FileJournal) -> None:
    entry = entry_number(1)
    task = asyncio.create_task(journal.append(entry))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await journal.append(entry_number(2))
    assert await journal.find(entry.connection_id, 1) == entry


@pytest.mark.slow
async def test_thousands_of_appends_a_second(folder: Path) -> None:
    """Group commit: 64 refreshes at a time, real syncs. The figure is printed; the floor is a tenth of it."""
    count = 4000
    async with FileJournal(folder, uuid4()) as journal:
        entries = iter([entry_number(number, os.urandom(1500)) for number in range(count)])

        async def refresh() -> None:
            for entry in entries:
                journal.preflight()
                await journal.append(entry)
                journal.settled(entry.connection_id, entry.epoch)

        started_s = time.perf_counter()
        await asyncio.gather(*(refresh() for _ in range(64)))
        per_s = count / (time.perf_counter() - started_s)
    print(json.dumps({"journal.append": round(per_s), "unit": "appends/s", "at_once": 64}))
    assert per_s > 500


# ---- who may look


async def test_files_are_for_their_owner_alone(journal: FileJournal, folder: Path) -> None:
    await journal.append(entry_number(1))
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()} == {0o600}


async def test_a_folder_open_to_others_is_refused(folder: Path) -> None:
    folder.mkdir(mode=0o750)
    with pytest.raises(InvalidConfigError, match="chmod 700"):
        await FileJournal(folder, uuid4(), SMALL).open()
    assert list(folder.iterdir()) == []


async def test_a_folder_that_is_a_file_is_refused(folder: Path) -> None:
    folder.write_text("")
    with pytest.raises(InvalidConfigError):
        await FileJournal(folder, uuid4(), SMALL).open()


async def test_a_session_id_is_used_once(journal: FileJournal, folder: Path) -> None:
    await journal.append(entry_number(1))
    owner = next(folder.glob("*.lock")).stem
    with pytest.raises(InvalidConfigError, match=owner):
        await FileJournal(folder, UUID(owner), SMALL).open()
    await journal.append(entry_number(2))


# ---- the living and the dead


async def test_a_living_owners_entries_are_found_but_not_inherited(
    journal: FileJournal, folder: Path
) -> None:
    entry = entry_number(1)
    await journal.append(entry)
    async with FileJournal(folder, uuid4(), SMALL) as other:
        assert await inherited(other) == []
        assert await other.find(entry.connection_id, 1) == entry
        await journal.append(entry_number(2))  # after the other has looked once
        assert await other.find(UUID(int=2), 2) == entry_number(2)


async def test_an_heir_that_dies_too_leaves_it_to_the_next(folder: Path) -> None:
    async with FileJournal(folder, uuid4(), SMALL) as dead:
        for number in range(3):
            await dead.append(entry_number(number))
    for number in range(3, 6):
        async with FileJournal(folder, uuid4(), SMALL) as heir:
            assert {head.epoch for head in await inherited(heir)} == set(range(number))
            assert {head.epoch for head in await inherited(heir)} == set(range(number))  # still ours
            await heir.append(entry_number(number))


async def test_among_heirs_that_start_together_one_inherits(folder: Path) -> None:
    entries = [entry_number(number) for number in range(20)]
    for entry in entries:  # one owner each
        async with FileJournal(folder, uuid4(), SMALL) as dead:
            await dead.append(entry)
    heirs = [FileJournal(folder, uuid4(), SMALL) for _ in range(5)]
    await asyncio.gather(*(heir.open() for heir in heirs))
    shares = await asyncio.gather(*(inherited(heir) for heir in heirs))
    assert sorted(head.epoch for share in shares for head in share) == list(range(20))
    await asyncio.gather(*(heir.close() for heir in heirs))


async def test_a_file_without_its_lock_is_inherited_too(folder: Path) -> None:
    async with FileJournal(folder, uuid4(), SMALL) as dead:
        await dead.append(entry_number(1))
    next(folder.glob("*.lock")).unlink()
    async with FileJournal(folder, uuid4(), SMALL) as heir:
        assert await inherited(heir) == heads_of(entry_number(1))


@pytest.mark.parametrize("tail", [b"torn", b""], ids=["index_too", "index_whole"])
async def test_a_damaged_file_gives_out_all_but_the_damaged(folder: Path, tail: bytes) -> None:
    entries = [entry_number(number) for number in range(10)]
    async with FileJournal(folder, uuid4(), SMALL) as dead:
        for entry in entries:
            await dead.append(entry)
    [path] = names(folder)
    data = bytearray(path.read_bytes())
    data[len(encode_entry(entries[0])) * 45 // 10] ^= 0x10  # within the fifth of ten entries
    path.write_bytes(data + tail)
    async with FileJournal(folder, uuid4(), SMALL) as heir:
        heads = await inherited(heir)
        assert sorted(heads, key=lambda head: head.epoch) == heads_of(*entries[:4], *entries[5:])
        assert await heir.find(entries[4].connection_id, 4) is None
        assert await heir.find(entries[9].connection_id, 9) == entries[9]
    assert path.read_bytes().startswith(bytes(data + tail))  # somebody may want to see it


# ---- keeping and dropping


async def until_gone(path: Path) -> None:
    async with asyncio.timeout(20.0):
        while path.exists():
            await asyncio.sleep(0.005)


def names(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.journal"))


async def test_settled_files_are_dropped_after_their_time(folder: Path) -> None:
    ahead_s = 0.0
    settings = replace(SMALL, retention_s=100.0)
    async with FileJournal(folder, uuid4(), settings, now=lambda: time.time() + ahead_s) as journal:
        old, open_one = entry_number(1, bytes(2000)), entry_number(2, bytes(3000))
        for entry in (old, open_one, entry_number(3, bytes(3000))):
            await journal.append(entry)
        first, second, *_ = names(folder)
        journal.settled(old.connection_id, old.epoch)
        ahead_s = 90.0
        await journal.orphans()
        assert first.exists()
        ahead_s = 110.0
        await journal.orphans()
        await until_gone(first)
        assert second.exists()  # not settled
        assert await journal.find(old.connection_id, 1) is None
        assert await journal.find(open_one.connection_id, 2) == open_one


@pytest.mark.parametrize("just_now", [True, False])
async def test_inherited_file_is_deleted_with_its_lock(folder: Path, just_now: bool) -> None:
    """Its time begins as it is settled; of what was settled before, with the last entry."""
    ahead_s = 0.0
    dead_id = uuid4()
    async with FileJournal(folder, dead_id, SMALL) as dead:
        await dead.append(entry_number(1))
        await dead.append(entry_number(2))
    settings = replace(SMALL, retention_s=100.0)
    os.utime(next(folder.glob(f"{dead_id}*.journal")), (0, 0))
    async with FileJournal(folder, uuid4(), settings, now=lambda: time.time() + ahead_s) as heir:
        assert len(await inherited(heir)) == 2
        heir.settled(UUID(int=1), 1, just_now=just_now)
        await heir.orphans()
        assert await heir.find(UUID(int=1), 1) == entry_number(1)  # the other is not settled
        heir.settled(UUID(int=2), 2, just_now=just_now)
        if just_now:
            await heir.orphans()
            assert await heir.find(UUID(int=1), 1) == entry_number(1)
            ahead_s = 110.0
        await heir.orphans()
        await until_gone(folder / f"{dead_id}.lock")
        assert not list(folder.glob(f"{dead_id}*"))


async def test_an_entry_after_the_one_that_was_settled_is_not(folder: Path) -> None:
    ahead_s = 0.0
    settings = replace(SMALL, retention_s=100.0)
    async with FileJournal(folder, uuid4(), settings, now=lambda: time.time() + ahead_s) as journal:
        first, later = entry_number(1), replace(entry_number(1, bytes(3000)), epoch=9)
        for entry in (first, later, entry_number(3, bytes(3000))):
            await journal.append(entry)
        file = names(folder)[0]
        journal.settled(first.connection_id, 8)
        ahead_s = 110.0
        await journal.orphans()
        assert await journal.find(first.connection_id, 1) == later
        journal.settled(first.connection_id, 9, just_now=False)
        await journal.orphans()
        await until_gone(file)


async def test_a_journal_that_was_never_used_leaves_nothing(folder: Path) -> None:
    async with FileJournal(folder, uuid4(), SMALL) as journal:
        journal.preflight()
    assert list(folder.iterdir()) == []


async def test_the_dead_keep_only_what_they_wrote(folder: Path) -> None:
    async with FileJournal(folder, uuid4(), SMALL) as dead:
        await dead.append(entry_number(1))
    assert [path.stat().st_size < 200 for path in names(folder)] == [True]


async def test_heads_are_the_newest_of_each_connection_settled_or_not(folder: Path) -> None:
    first, other, mine = (entry_number(number) for number in (1, 2, 3))
    later = replace(first, from_generation=2, epoch=9)
    async with FileJournal(folder, uuid4(), SMALL) as dead:
        for entry in (later, first, other):
            await dead.append(entry)
        dead.settled(later.connection_id, later.epoch)
    async with FileJournal(folder, uuid4(), SMALL) as journal:
        await journal.append(mine)
        assert await all_heads(journal) == heads_of(mine)  # nothing was taken over yet
        heads = await inherited(journal)
        assert sorted(heads, key=lambda head: head.epoch) == heads_of(other, mine, later)


# ---- refusing


async def test_a_journal_that_cannot_be_read_refuses(journal: FileJournal, folder: Path) -> None:
    entry = entry_number(1)
    await journal.append(entry)
    folder.rename(folder.with_name("elsewhere"))
    with pytest.raises(RefusedError, match="cannot be read"):
        await journal.find(entry.connection_id, 1)
    folder.with_name("elsewhere").rename(folder)


async def test_a_journal_whose_disk_does_not_answer_refuses(folder: Path) -> None:
    answers = threading.Event()
    async with FileJournal(folder, uuid4(), replace(SMALL, sync_timeout_s=0.05)) as journal:
        reading = asyncio.create_task(journal._read(answers.wait))  # one thread reads, and it hangs
        await asyncio.sleep(0)
        with pytest.raises(RefusedError, match="does not respond"):
            await journal.find(entry_number(1).connection_id, 1)
        answers.set()
        await reading


async def test_a_closed_journal_refuses(folder: Path) -> None:
    journal = FileJournal(folder, uuid4(), SMALL)
    with pytest.raises(RefusedError):
        journal.preflight()
    await journal.open()
    journal.preflight()
    await journal.close()
    with pytest.raises(RefusedError, match="closed"):
        journal.preflight()
    with pytest.raises(OSError, match="no more"):
        await journal.append(entry_number(1))


async def test_a_folder_that_vanished_is_noticed(journal: FileJournal, folder: Path) -> None:
    folder.rename(folder.with_name("elsewhere"))
    with pytest.raises(RefusedError, match="removed"):
        journal.preflight()
    folder.mkdir(mode=0o700)
    with pytest.raises(RefusedError, match="restart"):
        journal.preflight()
