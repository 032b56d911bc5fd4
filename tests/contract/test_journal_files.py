"""Many journal files, of processes that live, rotate, die and start: what a look costs and what it finds."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Any
from uuid import UUID, uuid4

import pytest

from fairlead.adapters.journal import FileJournal, index, reads
from fairlead.adapters.journal.journal import JournalSettings
from fairlead.adapters.journal.record import encode_entry
from fairlead.adapters.journal.trailer import read_trailer
from fairlead.adapters.journal.writer import Stop
from fairlead.engine.ports import JournalEntry
from fairlead.errors import RefusedError
from tests.contract.test_journal import all_heads, inherited, names
from tests.unit.adapters.test_journal_record import entry_number

SMALL = JournalSettings(segment_bytes=4096)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "journal"


async def left_behind(folder: Path, entries: list[JournalEntry], settings: JournalSettings = SMALL) -> None:
    """Have a process write *entries* and end."""
    async with FileJournal(folder, uuid4(), settings) as dead:
        for entry in entries:
            await dead.append(entry)


async def left_behind_often(folder: Path, count: int) -> list[JournalEntry]:
    """Have *count* files of a process that is gone, all links of one; returns the entries in it."""
    entries = [entry_number(number) for number in range(1, 6)]
    await left_behind(folder, entries)
    _link(folder, count)
    return entries


async def left_behind_full(folder: Path, count: int, file_bytes: int) -> list[JournalEntry]:
    """The same with files that are full of answers of 0.7 kB; returns a few of them."""
    entries = [entry_number(number, bytes(700)) for number in range(1, file_bytes // 900)]
    async with FileJournal(folder, uuid4(), JournalSettings(segment_bytes=file_bytes)) as dead:
        for first in range(0, len(entries), 1_000):
            await asyncio.gather(*map(dead.append, entries[first : first + 1_000]))
    _link(folder, count)
    return entries[:5]


def _link(folder: Path, count: int) -> None:
    [first] = names(folder)
    owner = uuid4()
    for number in range(1, count):
        os.link(first, folder / f"{owner}.{number:06d}.journal")


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """System calls on files and jobs of threads, as they are made."""
    counted: Counter[str] = Counter()

    def count(of: Any, name: str) -> None:
        act = getattr(of, name)

        def counting(*args: Any, **named: Any) -> Any:
            counted[name] += 1
            return act(*args, **named)

        monkeypatch.setattr(of, name, counting)

    for name in ("stat", "open", "pread", "preadv", "scandir"):
        count(os, name)
    count(ThreadPoolExecutor, "submit")
    return counted


async def until_current(journal: FileJournal) -> None:
    """Look until what was listed is older than the grain of the kernel's times."""
    async with asyncio.timeout(20.0):
        while not journal._index.is_current():
            await journal.find(uuid4(), 1)
            await asyncio.sleep(0.005)


async def test_1100_journal_files_of_one_day_refuse_no_refresh_and_a_look_touches_none_of_them(
    folder: Path, calls: Counter[str]
) -> None:
    entries = await left_behind_full(folder, 1_100, 1 << 20)
    async with FileJournal(folder, uuid4(), SMALL) as journal:
        await until_current(journal)
        calls.clear()
        for entry in entries:
            assert await journal.find(entry.connection_id, 99, newer_than=entry.epoch) is None
            assert await journal.find(uuid4(), 1) is None
        assert calls == {"stat": 10}  # of the folder
        entries_found = [await journal.find(entry.connection_id, entry.from_generation) for entry in entries]
        assert entries_found == entries
        assert calls["open"] < 30


async def test_an_append_that_is_settled_costs_no_job_of_a_thread(folder: Path, calls: Counter[str]) -> None:
    async with FileJournal(folder, uuid4()) as journal:
        await until_current(journal)
        calls.clear()
        for number in range(100):
            await journal.append(entry_number(number))
            assert await journal.find(UUID(int=number), number, newer_than=number) is None
            journal.settled(UUID(int=number), number)
        assert calls["submit"] == 0
        assert calls["open"] == 0


async def test_start_beside_300_journal_files_is_ready_once_they_are_read_and_logs_its_progress(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    entries = await left_behind_full(folder, 300, 4 << 20)
    monkeypatch.setattr("fairlead.adapters.journal.journal._SLICE_S", 0.0)
    monkeypatch.setattr("fairlead.adapters.journal.journal._REPORT_EVERY_S", 0.0)
    async with FileJournal(folder, uuid4(), SMALL) as journal:
        messages = [record.getMessage() for record in caplog.records if record.name == "fairlead.journal"]
        assert [line.partition(": ")[2] for line in messages[:300]] == [
            f"{count} of 300 files" for count in range(1, 301)
        ]
        journal.preflight()
        assert [
            await journal.find(entry.connection_id, entry.from_generation) for entry in entries
        ] == entries


async def test_files_without_an_index_are_read_whole(folder: Path) -> None:
    """Of an older version, closed and not."""
    folder.mkdir(mode=0o700)
    first, second = entry_number(1), entry_number(2)
    (folder / "old.000001.journal").write_bytes(encode_entry(first))
    (folder / "old.000002.journal").write_bytes(encode_entry(second) + bytes(4096))
    async with FileJournal(folder, uuid4(), SMALL) as journal:
        assert await journal.find(first.connection_id, 1) == first
        assert await journal.find(second.connection_id, 2) == second
        assert {head.epoch for head in await inherited(journal)} == {1, 2}
        assert await journal.find(second.connection_id, 2) == second
    for path in names(folder):
        with path.open("rb") as file:
            assert read_trailer(file.fileno()) is not None


async def test_a_damaged_index_hides_nothing(folder: Path) -> None:
    entries = [entry_number(number) for number in range(1, 6)]
    await left_behind(folder, entries)
    [path] = names(folder)
    data = bytearray(path.read_bytes())
    data[-40] ^= 1
    path.write_bytes(data)
    async with FileJournal(folder, uuid4(), SMALL) as journal:
        assert [await journal.find(e.connection_id, e.from_generation) for e in entries] == entries
        assert len(await inherited(journal)) == 5


async def test_an_older_answer_is_a_head_where_the_newest_is_damaged(folder: Path) -> None:
    older, newest = entry_number(1), replace(entry_number(1), from_generation=2, epoch=9)
    await left_behind(folder, [older])
    await left_behind(folder, [newest])
    [damaged] = [path for path in names(folder) if encode_entry(newest) in path.read_bytes()]
    data = bytearray(damaged.read_bytes())
    data[90] ^= 1
    damaged.write_bytes(data)
    async with FileJournal(folder, uuid4(), SMALL) as journal:
        assert [head.epoch for head in await inherited(journal)] == [1]


async def test_of_a_connection_of_two_processes_one_has_the_head(folder: Path) -> None:
    older, newest = entry_number(1), replace(entry_number(1), from_generation=2, epoch=9)
    async with FileJournal(folder, uuid4(), SMALL) as first, FileJournal(folder, uuid4(), SMALL) as other:
        await first.append(older)
        await other.append(newest)
        assert await all_heads(first) == []
        assert [head.epoch for head in await all_heads(other)] == [9]


async def test_a_file_made_within_the_tick_of_a_listing_is_seen(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder has the same time as before; only that it is young says that it may hold more."""
    async with FileJournal(folder, uuid4(), SMALL) as journal:
        await until_current(journal)
        changed = folder.stat()
        monkeypatch.setattr(index.time, "time_ns", lambda: changed.st_mtime_ns + 1_000_000)
        os.utime(folder, ns=(changed.st_atime_ns, changed.st_mtime_ns - 1))  # as after another change
        await journal.find(uuid4(), 1)
        os.utime(folder, ns=(changed.st_atime_ns, changed.st_mtime_ns))
        await journal.find(uuid4(), 1)
        async with FileJournal(folder, uuid4(), SMALL) as other:
            await other.append(entry_number(1))
            os.utime(folder, ns=(changed.st_atime_ns, changed.st_mtime_ns))
            assert await journal.find(UUID(int=1), 1) == entry_number(1)


async def test_a_disk_that_is_slow_with_much_to_read_refuses_nothing(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk answers once within each of some forty time-outs."""
    entries = await left_behind_often(folder, 40)
    settings = replace(SMALL, sync_timeout_s=123.0)
    async with FileJournal(folder, uuid4(), settings) as journal:
        read, wait = reads.read_trailer, asyncio.wait
        reading, may_read = threading.Event(), threading.Semaphore(0)
        timeouts = 0

        def slowly(descriptor: int) -> object:
            reading.set()
            may_read.acquire()
            return read(descriptor)

        async def until_the_next_read(work: Any, *, timeout: float | None = None, **options: Any) -> Any:
            """Let the disk answer once, and end as if the time were over."""
            nonlocal timeouts
            if timeout != settings.sync_timeout_s:
                return await wait(work, timeout=timeout, **options)
            timeouts += 1
            reading.clear()
            may_read.release()
            next_read = asyncio.ensure_future(asyncio.to_thread(reading.wait))
            await wait({*work, next_read}, return_when=asyncio.FIRST_COMPLETED)
            reading.set()
            await next_read
            return set(), set()

        monkeypatch.setattr(reads, "read_trailer", slowly)
        monkeypatch.setattr(asyncio, "wait", until_the_next_read)
        entry = entries[0]
        assert await journal.find(entry.connection_id, 2) is None  # no such generation: all files are read
        assert timeouts > 20


async def test_concurrent_lookups_share_one_pass_over_the_files(folder: Path, calls: Counter[str]) -> None:
    entries = [entry_number(number) for number in range(1, 200)]
    await left_behind(folder, entries)
    async with FileJournal(folder, uuid4(), SMALL) as journal:
        await until_current(journal)
        calls.clear()
        entries_found = await asyncio.gather(
            *(journal.find(e.connection_id, e.from_generation) for e in entries)
        )
        assert entries_found == entries
        assert calls["submit"] <= 2
        assert calls["open"] <= 2 * len(names(folder))


async def test_unsettled_entry_keeps_its_file_and_no_other(folder: Path) -> None:
    """Files taken over go a day after what they hold was settled; one answer could not be."""
    ahead_s = 0.0
    await left_behind(folder, [entry_number(1)])
    await left_behind(folder, [entry_number(2)])
    settings = replace(SMALL, retention_s=100.0)
    async with FileJournal(folder, uuid4(), settings, now=lambda: time.time() + ahead_s) as heir:
        await inherited(heir)
        heir.settled(UUID(int=1), 1, just_now=False)
        ahead_s = 110.0
        await heir.orphans()
        while len(list(folder.glob("*.lock"))) > 2:
            await asyncio.sleep(0.005)
        assert await heir.find(UUID(int=1), 1) is None
        assert await heir.find(UUID(int=2), 2) == entry_number(2)
        heir.settled(UUID(int=2), 2)
        ahead_s = 190.0  # its day began when it was settled
        await heir.orphans()
        assert await heir.find(UUID(int=2), 2) == entry_number(2)


async def test_a_file_that_was_not_compared_yet_is_kept(folder: Path) -> None:
    await left_behind(folder, [entry_number(1)])
    settings = replace(SMALL, retention_s=100.0)
    async with FileJournal(folder, uuid4(), settings, now=lambda: time.time() + 1_000.0) as heir:
        await heir.orphans()
        await heir.orphans()
        assert await heir.find(UUID(int=1), 1) == entry_number(1)


# ---- processes of one host, at random


@dataclass
class Host:
    """Processes on one folder, and all that they were told is on disk. *clock*: the next epoch."""

    folder: Path
    random: Random
    stack: AsyncExitStack
    live: list[FileJournal] = field(default_factory=list)
    kept: list[JournalEntry] = field(default_factory=list)
    clock: Iterator[int] = field(default_factory=lambda: iter(range(100, 10**6)))

    async def start(self) -> None:
        if len(self.live) < 4:
            journal = await self.stack.enter_async_context(FileJournal(self.folder, uuid4(), SMALL))
            self.live.append(journal)
            if self.random.random() < 0.5:
                await inherited(journal)

    async def end(self) -> None:
        if len(self.live) > 1:
            await self.live.pop(self.random.randrange(len(self.live))).close()

    async def crash(self) -> None:
        """Drop one as the kernel does: its lock is free, and its files are as they are."""
        if len(self.live) > 1:
            dead = self.live.pop(self.random.randrange(len(self.live)))
            dead._open = False
            dead._writer.put(Stop())
            dead._owners.forget()

    async def append(self) -> None:
        number = self.random.randrange(1, 8)
        epoch = next(self.clock) - self.random.choice([0, 0, 0, 50])
        entry = replace(
            entry_number(number, bytes(self.random.randrange(1_200))),
            from_generation=self.random.randrange(3),
            attempt_id=uuid4(),
            epoch=epoch,
        )
        await self.random.choice(self.live).append(entry)
        self.kept.append(entry)

    async def look(self) -> None:
        number, generation = self.random.randrange(1, 8), self.random.randrange(3)
        above = self.random.choice([-1, *(entry.epoch for entry in self.kept[-5:])])
        expected = max(
            (
                entry.epoch
                for entry in self.kept
                if entry.connection_id == UUID(int=number)
                and entry.from_generation == generation
                and entry.epoch > above
            ),
            default=None,
        )
        for journal in self.live:
            entry_found = await journal.find(UUID(int=number), generation, newer_than=above)
            assert (None if entry_found is None else entry_found.epoch) == expected

    async def heads(self) -> None:
        """Together the living have the newest of each connection, but for what the dead still hold."""
        for journal in self.live:
            await journal.orphans()
        heads = [head for journal in self.live for head in await all_heads(journal)]
        epochs = {(head.connection_id, head.epoch) for head in heads}
        newest: dict[UUID, int] = {}
        for entry in self.kept:
            newest[entry.connection_id] = max(entry.epoch, newest.get(entry.connection_id, -1))
        assert epochs == set(newest.items())


@pytest.mark.parametrize("seed", range(12))
async def test_each_process_finds_entries_of_every_writer(folder: Path, seed: int) -> None:
    async with AsyncExitStack() as stack:
        host = Host(folder, Random(seed), stack)
        await host.start()
        for _ in range(150):
            steps = [host.append, host.look, host.start, host.end, host.crash, host.heads]
            [step] = host.random.choices(steps, weights=[18, 12, 3, 1, 1, 1])
            await step()
        await host.heads()


async def test_a_removed_folder_is_told(folder: Path) -> None:
    async with FileJournal(folder, uuid4(), SMALL) as journal:
        await until_current(journal)
        for path in folder.iterdir():
            path.unlink()
        folder.rmdir()
        with pytest.raises(RefusedError, match="cannot be read"):
            await journal.find(uuid4(), 1)
