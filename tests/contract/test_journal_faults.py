"""The journal on disks that are full, slow or broken, and in processes that are killed (E17, E45)."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from uuid import UUID, uuid4

import pytest

from fairlead.adapters.journal import FileJournal
from fairlead.adapters.journal.disk import Disk
from fairlead.adapters.journal.journal import JournalSettings
from fairlead.errors import RefusedError
from tests.unit.adapters.test_journal_record import entry_number

SMALL = JournalSettings(segment_bytes=8192, sync_timeout_s=2.0)


class FaultyDisk(Disk):
    """Fails the calls whose names are in `failing`, with `number`; `hold` stops syncs until it is set."""

    def __init__(self) -> None:
        self.failing: dict[str, int] = {}  # how often, from now
        self.number = errno.EIO
        self.hold = threading.Event()
        self.hold.set()
        self.synced: list[int] = []

    def _pass(self, name: str) -> None:
        if self.failing.get(name, 0) > 0:
            self.failing[name] -= 1
            raise OSError(self.number, os.strerror(self.number))

    def create(self, path: Path, size: int) -> int:
        self._pass("create")
        return super().create(path, size)

    def write(self, descriptor: int, data: bytes, offset: int) -> None:
        self._pass("write")
        super().write(descriptor, data, offset)

    def sync(self, descriptor: int) -> None:
        self.hold.wait()
        self._pass("sync")
        super().sync(descriptor)
        self.synced.append(descriptor)


@pytest.fixture
def disk() -> Iterator[FaultyDisk]:
    disk = FaultyDisk()
    yield disk
    disk.hold.set()


async def refusal(journal: FileJournal) -> RefusedError:
    """Return what the journal refuses with, once it does for longer than a moment."""
    while True:
        try:
            journal.preflight()
        except RefusedError as refused:
            if "not ready yet" not in str(refused):
                return refused
        await asyncio.sleep(0.005)


async def ready(journal: FileJournal) -> None:
    """Return once the journal refuses nothing."""
    while True:
        try:
            journal.preflight()
        except RefusedError:
            await asyncio.sleep(0.005)
        else:
            return


@pytest.mark.parametrize("call", ["write", "sync"])
async def test_a_failed_write_or_sync_goes_to_a_new_file(tmp_path: Path, disk: FaultyDisk, call: str) -> None:
    async with FileJournal(tmp_path / "j", uuid4(), SMALL, disk=disk) as journal:
        await journal.append(entry_number(1))
        while len(disk.synced) < 3:  # two files made, one entry written
            await asyncio.sleep(0.005)
        files_before = set((tmp_path / "j").glob("*.journal"))
        disk.failing[call] = 1
        await asyncio.gather(*(journal.append(entry_number(number)) for number in range(2, 6)))
        disk.synced.clear()
        await journal.append(entry_number(6))
        for number in range(1, 7):
            assert await journal.find(UUID(int=number), number) == entry_number(number)
        owed = [path for path in files_before if b"sealed" in path.read_bytes()]
        assert len(owed) == 2  # the bad file and the one that took over
        assert len(disk.synced) >= 1


async def test_a_bad_file_is_never_written_or_synced_again(tmp_path: Path) -> None:
    touched: list[tuple[str, int]] = []

    class Watched(FaultyDisk):
        def write(self, descriptor: int, data: bytes, offset: int) -> None:
            touched.append(("write", os.fstat(descriptor).st_ino))
            super().write(descriptor, data, offset)

        def sync(self, descriptor: int) -> None:
            touched.append(("sync", os.fstat(descriptor).st_ino))
            super().sync(descriptor)

    disk = Watched()
    async with FileJournal(tmp_path / "j", uuid4(), SMALL, disk=disk) as journal:
        await journal.append(entry_number(1))
        await ready(journal)
        [bad] = [
            path.stat().st_ino for path in tmp_path.glob("j/*.journal") if b"sealed" in path.read_bytes()
        ]
        disk.failing["sync"] = 1
        await journal.append(entry_number(2))
        next_index = [inode for _, inode in touched].index(bad)
        last = max(position for position, (_, inode) in enumerate(touched) if inode == bad)
        assert touched[last][0] == "sync"
        assert next_index < last
        for number in range(3, 40):
            await journal.append(entry_number(number))
        assert max(position for position, (_, inode) in enumerate(touched) if inode == bad) == last


async def test_a_disk_that_fails_for_good_tells_appenders_and_refuses(
    tmp_path: Path, disk: FaultyDisk
) -> None:
    async with FileJournal(tmp_path / "j", uuid4(), SMALL, disk=disk) as journal:
        await journal.append(entry_number(1))
        disk.failing = {"sync": 10**6}
        results = await asyncio.gather(
            *(journal.append(entry_number(number)) for number in range(2, 5)), return_exceptions=True
        )
        assert [getattr(result, "errno", None) for result in results] == [errno.EIO] * 3
        refused = await refusal(journal)
        assert refused.reason == "journal_unavailable"
        assert "Input/output error" in str(refused)
        assert "hint:" in str(refused)
        disk.failing = {}
        await ready(journal)  # it mends itself
        await journal.append(entry_number(5))
        assert await journal.find(UUID(int=5), 5) == entry_number(5)


async def test_a_disk_that_hangs_tells_appenders_and_refuses(tmp_path: Path, disk: FaultyDisk) -> None:
    settings = JournalSettings(segment_bytes=8192, sync_timeout_s=0.1)
    async with FileJournal(tmp_path / "j", uuid4(), settings, disk=disk) as journal:
        await ready(journal)
        disk.hold.clear()
        with pytest.raises(TimeoutError):
            await journal.append(entry_number(1))
        assert "not responded" in str(await refusal(journal))
        journal.settled(entry_number(1).connection_id, 1)  # by another way than this disk
        disk.hold.set()
        await ready(journal)
        await journal.append(entry_number(2))
    async with FileJournal(tmp_path / "j", uuid4(), SMALL) as heir:
        await heir.orphans()
        assert 2 in {head.epoch async for page in heir.heads() for head in page}


async def test_closing_does_not_wait_for_a_disk_that_hangs(tmp_path: Path, disk: FaultyDisk) -> None:
    settings = JournalSettings(segment_bytes=8192, sync_timeout_s=0.1)
    journal = FileJournal(tmp_path / "j", uuid4(), settings, disk=disk)
    await journal.open()
    await ready(journal)
    disk.hold.clear()
    with pytest.raises(TimeoutError):
        await journal.append(entry_number(1))
    await asyncio.wait_for(journal.close(), 5.0)


async def test_too_many_waiting_is_refused_before_it_is_an_error(tmp_path: Path, disk: FaultyDisk) -> None:
    settings = JournalSettings(segment_bytes=8192, max_waiting=8)
    async with FileJournal(tmp_path / "j", uuid4(), settings, disk=disk) as journal:
        await ready(journal)
        disk.hold.clear()
        tasks = [asyncio.create_task(journal.append(entry_number(number))) for number in range(4)]
        await asyncio.sleep(0)
        with pytest.raises(RefusedError, match="wait"):
            journal.preflight()
        tasks += [asyncio.create_task(journal.append(entry_number(number))) for number in range(4, 8)]
        await asyncio.sleep(0)
        with pytest.raises(OSError, match="no more"):
            await journal.append(entry_number(9))
        disk.hold.set()
        await asyncio.gather(*tasks)
        journal.preflight()


async def test_a_full_disk_refuses_before_anything_is_sent_and_burns_nothing(
    tmp_path: Path, disk: FaultyDisk
) -> None:
    """ENOSPC at the spare: what passed the preflight still finds room, what comes later is refused."""
    async with FileJournal(tmp_path / "j", uuid4(), SMALL, disk=disk) as journal:
        await ready(journal)
        disk.number, disk.failing = errno.ENOSPC, {"create": 10**6}
        passed = 0

        async def refresh_for_ever() -> None:
            nonlocal passed
            while passed < 500:
                journal.preflight()
                await journal.append(entry_number(passed))
                passed += 1

        with pytest.raises(RefusedError):
            await refresh_for_ever()
        assert "No space left" in str(await refusal(journal))
        assert passed > 20
        for number in range(500, 510):  # had passed before the disk was full
            await journal.append(entry_number(number))
        disk.failing = {}
        await ready(journal)
        for number in (*range(passed), *range(500, 510)):
            assert await journal.find(UUID(int=number), number) == entry_number(number)


async def test_a_start_on_a_full_disk_refuses_and_mends_itself(tmp_path: Path, disk: FaultyDisk) -> None:
    disk.number, disk.failing = errno.ENOSPC, {"create": 10**6}
    async with FileJournal(tmp_path / "j", uuid4(), SMALL, disk=disk) as journal:
        assert "No space left" in str(await refusal(journal))
        with pytest.raises(OSError, match="No space left"):
            await journal.append(entry_number(1))
        disk.failing = {}
        await ready(journal)
        await journal.append(entry_number(2))
        assert await journal.find(UUID(int=2), 2) == entry_number(2)


LIMITED = """
import asyncio, resource, sys
from pathlib import Path
from uuid import uuid4
from fairlead.adapters.journal import FileJournal
from fairlead.adapters.journal.journal import JournalSettings
from fairlead.errors import RefusedError

async def main():
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))  # the kernel says EFBIG
    settings = JournalSettings(segment_bytes=8192)
    async with FileJournal(Path(sys.argv[1]), uuid4(), settings) as journal:
        try:
            journal.preflight()
        except RefusedError as refused:
            print(refused)

asyncio.run(main())
"""


@pytest.mark.slow
def test_a_real_limit_of_the_kernel_refuses_too(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", LIMITED, str(tmp_path / "j")], capture_output=True, text=True, check=True
    )
    assert "File too large" in done.stdout
    assert "hint: check the disk" in done.stdout
    assert [path.name for path in (tmp_path / "j").iterdir()] == []  # nothing half-made is left


WRITER = """
import asyncio, itertools, sys
from pathlib import Path
from uuid import UUID
from fairlead.adapters.journal import FileJournal
from fairlead.adapters.journal.journal import JournalSettings
sys.path.insert(0, sys.argv[3])
from tests.unit.adapters.test_journal_record import entry_number

async def main():
    base = int(sys.argv[2])
    numbers = itertools.count(base)
    settings = JournalSettings(segment_bytes=8192)
    async with FileJournal(Path(sys.argv[1]), UUID(int=base), settings) as journal:
        await journal.orphans()
        print(*[head.epoch async for page in journal.heads() for head in page], flush=True)

        async def append_for_ever():
            for number in numbers:
                entry = entry_number(number)
                await journal.append(entry)
                sys.stdout.write(f"{number}\\n")
                sys.stdout.flush()
                if number % 3 == 0:
                    journal.settled(entry.connection_id, number)

        await asyncio.gather(*(append_for_ever() for _ in range(8)))

asyncio.run(main())
"""


def killed_writer(folder: Path, base: int, lines: int) -> tuple[set[int], set[int]]:
    """Run a writer, SIGKILL it after so many acknowledgements; what it inherited and acknowledged."""
    root = str(Path(__file__).parents[2])
    command = [sys.executable, "-c", WRITER, str(folder), str(base), root]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        inherited = {int(word) for word in process.stdout.readline().split()}
        lines_read = [process.stdout.readline() for _ in range(lines)]
        process.send_signal(signal.SIGKILL)
        lines_read += process.stdout.readlines()
    return inherited, {int(line) for line in lines_read if line.endswith(b"\n")}


@pytest.mark.slow
async def test_every_acknowledged_entry_outlives_kill_9(tmp_path: Path) -> None:
    """Writers that are killed one after the other, each the heir of those before it."""
    folder = tmp_path / "j"
    acknowledged: set[int] = set()
    for round_number in range(1, 5):
        inherited, numbers = await asyncio.to_thread(
            killed_writer, folder, round_number * 100_000, 50 * round_number
        )
        assert acknowledged <= inherited
        acknowledged |= numbers
    async with FileJournal(folder, uuid4(), SMALL) as survivor:
        await survivor.orphans()
        assert acknowledged <= {head.epoch async for page in survivor.heads() for head in page}
        for number in acknowledged:
            assert await survivor.find(UUID(int=number), number) == entry_number(number)
    assert len(acknowledged) >= 500
