"""The cost of many journal files of one day: of a start beside them, and of each refresh after it.

The files are hard links of a full one, under the name of a process that has ended.
``python -m bench.journal_files SETTINGS`` starts a process and prints the time and the memory of that.
"""

from __future__ import annotations

import asyncio
import json
import os
import resource
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

from bench.databases import servers
from bench.refresh_world import World, opened
from bench.report import Row
from fairlead.adapters.embedded import Endpoints
from fairlead.adapters.journal import FileJournal
from fairlead.adapters.postgres.connection_setup import DatabaseSettings
from fairlead.adapters.postgres.migrate import Migrator
from fairlead.app import Fairlead
from fairlead.assembly.config import load
from fairlead.engine.ports import JournalEntry, Sealed

READY_S, MORE_MIB = 20.0, 64.0
"""Goals of a start beside 10,000 files: seconds, and memory beyond that of a start beside none."""
ANSWER_BYTES = 1_200


async def written(folder: Path, answer_bytes: int = ANSWER_BYTES) -> Path:
    """Fill the first file of a journal and return its path."""
    owner = uuid4()
    first = folder / f"{owner}.000001.journal"
    async with FileJournal(folder, owner) as journal:
        numbers = iter(range(10**6))

        async def append() -> None:
            for number in numbers:
                await journal.append(_entry(number, answer_bytes))
                if _files_of(folder, owner) > 2:  # the second one is written, a third one is ready
                    return

        await asyncio.gather(*(append() for _ in range(64)))
    for path in folder.glob(f"{owner}.*.journal"):
        if path != first:
            path.unlink()
    return first


def _files_of(folder: Path, owner: UUID) -> int:
    return sum(name.startswith(str(owner)) and name.endswith(".journal") for name in os.listdir(folder))


def _entry(number: int, answer_bytes: int) -> JournalEntry:
    now = time.time()
    return JournalEntry(
        connection_id=UUID(bytes=bytes(8) + os.urandom(8)),
        tenant="tenant",
        provider="provider",
        attempt_id=uuid4(),
        from_generation=number,
        epoch=int(now * 1e6),
        sent_at=datetime.fromtimestamp(now, UTC),
        sealed=Sealed(uuid4(), os.urandom(answer_bytes)),
    )


async def make_files(folder: Path, count: int) -> None:
    """Create *count* files in the journal folder, of a process that has ended."""
    first = await written(folder)
    owner = uuid4()
    for number in range(1, count):
        os.link(first, folder / f"{owner}.{number:06d}.journal")


@asynccontextmanager
async def opened_beside(count: int, connections: int) -> AsyncIterator[World]:
    """Yield a world that started beside *count* journal files."""
    with servers() as endpoints, tempfile.TemporaryDirectory(prefix="fl-bench-", dir="/tmp") as top:
        await make_files(Path(top) / "home" / "journal", count)
        async with opened(endpoints, Path(top), connections) as world:
            yield world


async def start_rows(count: int) -> list[Row]:
    """Start a process beside no files and beside *count*: when it is ready, and its memory."""
    with servers() as endpoints, tempfile.TemporaryDirectory(prefix="fl-bench-", dir="/tmp") as top:
        await Migrator(DatabaseSettings(dsn=endpoints.database_url)).apply()
        few = await _started(endpoints, Path(top) / "few", 0)
        many = await _started(endpoints, Path(top) / "many", count)
    more = {"files": count, "entries_of_a_file": many["heads"]}
    ready = {**more, "beside_none_s": round(few["ready_s"], 2), "cpu_s": round(many["cpu_s"], 2)}
    mib = many["rss_mib"] - few["rss_mib"]
    return [
        Row("refresh.start", many["ready_s"], "s", 1, goal={"ours": READY_S}, at_most=True, more=ready),
        Row("refresh.start_rss", mib, "MiB", 1, goal={"ours": MORE_MIB}, at_most=True, more=more),
    ]


async def _started(endpoints: Endpoints, folder: Path, count: int) -> Mapping[str, Any]:
    (folder / "home").mkdir(parents=True)
    if count:
        await make_files(folder / "home" / "journal", count)
    settings = folder / "fairlead.toml"
    settings.write_text(f'home = "{folder}/home"\n')
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "bench.journal_files", str(settings)),
        env={
            **os.environ,
            "DATABASE_URL": endpoints.database_url,
            "REDIS_URL": endpoints.redis_url,
            "FAIRLEAD_MASTER_KEY": "bench:" + "0123456789abcdef" * 4,
        },
        stdout=asyncio.subprocess.PIPE,
    )
    output, _ = await process.communicate()
    assert process.returncode == 0
    figures: Mapping[str, Any] = json.loads(output)
    return figures


async def _start(settings: Path) -> None:
    fl = Fairlead(load(os.environ, settings))
    started, cpu_s = time.perf_counter(), time.process_time()
    async with fl:
        ready = {"ready_s": time.perf_counter() - started, "cpu_s": time.process_time() - cpu_s}
        heads = sum([len(page) async for page in fl.runtime.journal.heads()])
        rss_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(json.dumps({**ready, "heads": heads, "rss_mib": rss_mib}))


if __name__ == "__main__":
    asyncio.run(_start(Path(sys.argv[1])))
