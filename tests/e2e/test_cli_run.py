"""`fairlead run` as a process: ready, at work, drained, hurried (ecosystem: signals and exit codes)."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
from pathlib import Path

import pytest

from fairlead.adapters.postgres.database import Database
from fairlead.adapters.postgres.jobs import PostgresJobStore
from fairlead.cli.run import _write_if_read
from tests.support.cli import Child, Shell
from tests.support.engine import IDS, new_job

APP = """
import asyncio
import gc
from pathlib import Path

from fairlead import Fairlead

fl = Fairlead.from_env()


@fl.job("slow")
async def slow(context):
    Path("frozen").write_text(str(gc.get_freeze_count()))
    Path("started").touch()
    while not Path("go").exists():
        await asyncio.sleep(0.01)
    return "done"
"""


async def ready(child: Child) -> dict[str, object]:
    return json.loads(await child.line())


async def there(path: Path) -> None:
    async with asyncio.timeout(20):
        while not path.exists():
            await asyncio.sleep(0.01)


async def enqueued(database: Database) -> str:
    store = PostgresJobStore(database, IDS)
    (job,) = await store.enqueue([new_job("slow")])
    return str(job.job_id)


async def test_sigterm_lets_jobs_end_and_exits_with_0(shell: Shell, database: Database) -> None:
    (shell.folder / "mine.py").write_text(APP)
    child = shell.start("run", "--app", "mine:fl", "--concurrency", "3", "--json")
    ready_line = await ready(child)
    assert (ready_line["event"], ready_line["pid"], ready_line["concurrency"]) == ("ready", child.pid, 3)
    assert ready_line["roles"] == ["worker", "scheduler"]
    job_id = await enqueued(database)
    await there(shell.folder / "started")
    status = await shell("status", "--json")
    assert (status.code, status.record["processes"][0]["pid"]) == (0, child.pid)
    child.kill(signal.SIGTERM)
    assert "draining" in await child.word()
    (shell.folder / "go").touch()
    done = await shell.end(child)
    assert done.code == 0
    job = (await shell("jobs", "show", job_id, "--json")).record
    assert (job["state"], job["result"], job["attempt"]) == ("completed", "done", 1)
    assert (await shell("status", "--json")).code == 4


async def test_full_collections_walk_nothing_that_was_loaded_at_the_start(
    shell: Shell, database: Database
) -> None:
    (shell.folder / "mine.py").write_text(APP)
    (shell.folder / "go").touch()
    child = shell.start("run", "--app", "mine:fl", "--json")
    await ready(child)
    await enqueued(database)
    await there(shell.folder / "started")
    assert int((shell.folder / "frozen").read_text()) > 10_000
    child.kill(signal.SIGTERM)
    assert (await shell.end(child)).code == 0


async def test_a_second_signal_hands_jobs_back_at_once(shell: Shell, database: Database) -> None:
    (shell.folder / "mine.py").write_text(APP)
    job_id = await enqueued(database)
    for first, second, code in (
        (signal.SIGINT, signal.SIGTERM, 143),
        (signal.SIGTERM, signal.SIGINT, 130),
    ):
        (shell.folder / "started").unlink(missing_ok=True)
        child = shell.start("run", "--app", "mine:fl", "--role", "worker", "--json")
        assert (await ready(child))["roles"] == ["worker"]
        await there(shell.folder / "started")
        child.kill(first)
        assert "draining" in await child.word()
        child.kill(second)
        done = await shell.end(child)
        assert done.code == code
        job = (await shell("jobs", "show", job_id, "--json")).record
        assert (job["state"], job["attempt"], job["crash_count"]) == ("available", 0, 0)


async def test_run_reports_its_tasks_and_its_readiness_to_systemd(shell: Shell) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notices:
        notices.bind(str(shell.folder / "notify"))
        notices.settimeout(20)
        child = shell.start("run", env={"NOTIFY_SOCKET": str(shell.folder / "notify")})
        assert await asyncio.to_thread(notices.recv, 100) == b"READY=1"
        assert (await child.word()).startswith("fairlead ")
        child.kill(signal.SIGUSR1)
        assert (await child.word()).startswith("task ")
        child.kill(signal.SIGINT)
        assert await asyncio.to_thread(notices.recv, 100) == b"STOPPING=1"
        done = await shell.end(child)
    assert done.code == 0
    assert "heartbeat.py" in done.err


STUCK = """
import asyncio
import os
from pathlib import Path

from fairlead import Fairlead


class Slow(Fairlead):
    async def __aenter__(self):
        os.set_blocking(2, False)
        try:
            while True:
                os.write(2, b".")
        except BlockingIOError:
            os.set_blocking(2, True)
        Path("starting").touch()
        while not Path("go").exists():
            await asyncio.sleep(0.01)
        return await super().__aenter__()

    async def __aexit__(self, *failure):
        await super().__aexit__(*failure)
        Path("left").touch()


fl = Slow.from_env()
"""


async def test_a_signal_during_the_start_waits_for_no_reader(shell: Shell) -> None:
    """Its words are lost where nobody takes them, and it ends all the same (E50)."""
    (shell.folder / "mine.py").write_text(STUCK)
    child = shell.start("run", "--app", "mine:fl")
    try:
        await there(shell.folder / "starting")
        child.kill(signal.SIGTERM)
        child.kill(signal.SIGUSR1)
        (shell.folder / "go").touch()
        await there(shell.folder / "left")
    except BaseException:
        child.kill(signal.SIGKILL)
        raise
    done = await shell.end(child)
    assert (done.code, done.err.strip(".")) == (0, "")


async def test_words_before_the_logs_are_whole_lines(capfd: pytest.CaptureFixture[str]) -> None:
    _write_if_read("one\n" + "x" * 9000)
    lines = capfd.readouterr().err.splitlines()
    assert (lines[0], set(lines[1])) == ("one", {"x"})


async def test_app_that_cannot_be_run_is_named_in_the_error(shell: Shell) -> None:
    missing = await shell("run", "--app", "nowhere:fl", "--json")
    assert (missing.code, missing.error["code"]) == (78, "invalid_config")
    wrong = await shell("run", "--app", "json:dumps", "--json")
    assert (wrong.code, "no Fairlead" in wrong.error["message"]) == (78, True)
    (shell.folder / "broken.py").write_text(
        "from fairlead import Fairlead\nfl = Fairlead.from_env()\nfl.nope\n"
    )
    broken = await shell("run", "--app", "broken:fl", "--json")
    assert broken.code == 78
    assert "AttributeError" in broken.error["message"]
    assert "broken.py line 3" in broken.error["message"]
    (shell.folder / "whole.py").write_text("from fairlead import Fairlead\nmine = Fairlead.from_env()\n")
    unnamed = await shell("run", "--app", "whole", "--json")
    assert (unnamed.code, "whole:mine" in unnamed.error["hint"]) == (78, True)
    (shell.folder / "lacking.py").write_text(
        "from fairlead import Fairlead\nfl = Fairlead.from_env(include=['no_such_jobs'])\n"
    )
    lacking = await shell("run", "--app", "lacking:fl", "--json")
    assert (lacking.code, "no_such_jobs" in lacking.error["message"]) == (78, True)
    role = await shell("run", "--role", "leader", "--json")
    assert (role.code, role.error["code"]) == (2, "invalid_input")
    away = await shell("run", "--json", env={"DATABASE_URL": "postgresql://x@127.0.0.1:1/y"})
    assert (away.code, away.error["code"]) == (69, "dependency_unavailable")
