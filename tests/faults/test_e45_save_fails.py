"""E45: the issuer has answered and the answer cannot be saved: no database, no room on the disk, or neither.

It is kept where there is room for it (memory, journal) and saved later. Where it could not be kept, the
refresh is refused before anything is sent.
"""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from fairlead.testing import Quirk
from tests.faults.support.child import Asked, Child, Gone
from tests.faults.support.faultproxy import FaultProxy, postgres_proxy
from tests.faults.support.report import Figures, quantiles, sized
from tests.faults.support.stage import FAMILY, Stage, until
from tests.support.standstill import ran_s

pytestmark = pytest.mark.slow

AT_ONCE = 6
REPEATS = sized(1, 2)
AWAY_S = sized(0.5, 30.0)
LEASE_TRIES, LOOK_S = 300, 0.02
MiB = 1 << 20
NUMBERS = {"request_deadline_s": 30.0, "total_deadline_s": 60.0, "lease_s": 90.0, "wait_s": 60.0}


async def _refresh(child: Child, connection: str, newer_than: int) -> dict[str, Any]:
    """A refresh; a process that was cut off for longer than its lease first gets another one."""
    for _ in range(LEASE_TRIES):
        try:
            return await child.ask("refresh", connection=connection, newer_than=newer_than)
        except Asked as refused:
            if "lost its lease" not in str(refused):
                raise
        await asyncio.sleep(LOOK_S)
    raise AssertionError("it gets no lease again")


@asynccontextmanager
async def _answered(
    stage: Stage, child: Child, provider: str, tag: str
) -> AsyncIterator[tuple[list[str], list[asyncio.Task[Any]]]]:
    """Refreshes that the issuer has processed; their answers leave when the block ends."""
    connections = await stage.connect(child, provider, [f"{tag}-{number}" for number in range(AT_ONCE)])
    await _one_failure(stage, child, provider, connections[0])
    hold = stage.issuer.hold("answering", provider=provider, times=AT_ONCE)
    tasks = [
        asyncio.create_task(child.ask("refresh", connection=connection_name, newer_than=1))
        for connection_name in connections
    ]
    await hold.reached(AT_ONCE)
    yield connections, tasks
    hold.release()


async def _one_failure(stage: Stage, child: Child, provider: str, connection: str) -> None:
    """The breaker counts: the next success has to be written, too."""
    stage.issuer.be_rude(Quirk(status=503), provider=provider, times=1)
    with pytest.raises(Asked, match="TransientFailureError"):
        await _refresh(child, connection, 1)


async def _saved(stage: Stage, connections: list[str], began_s: float) -> list[float]:
    """When each of them was saved, counted from a moment."""

    async def refresh_one(connection: str) -> float:
        async def is_saved() -> bool:
            return await stage.generation(connection) == 2

        await until(is_saved, f"the answer for {connection} is saved")
        return ran_s(began_s)

    return list(await asyncio.gather(*map(refresh_one, connections)))


def _judge(stage: Stage, figures: Figures) -> None:
    verdict = stage.verdict()
    figures.note(posts=verdict.provider_posts, generations=verdict.generations)
    figures.zero(burnt=verdict.burnt, violations=len(verdict.violations), overlaps=verdict.overlaps)


async def _all_alive(stage: Stage, child: Child, connections: list[str], figures: Figures) -> None:
    """What was saved can be refreshed."""
    asks = [_refresh(child, connection_name, 2) for connection_name in connections]
    answers = await asyncio.gather(*asks, return_exceptions=True)
    dead = [str(answer) for answer in answers if isinstance(answer, Exception)]
    figures.holds(not dead, f"saved, and of no use: {dead}")


async def _away_and_back(proxy: FaultProxy, how: str) -> float:
    """The database goes and comes; the moment when it is back."""
    proxy.stall() if how == "stalled" else proxy.away()
    await asyncio.sleep(AWAY_S)
    proxy.heal()
    return time.monotonic()


@pytest.mark.parametrize("how", ["reset", "stalled"])
async def test_E45_save_fails_database_away(stage: Stage, how: str) -> None:
    figures = Figures("E45")
    saved_s: list[float] = []
    async with postgres_proxy(stage.database.settings.dsn) as (proxy, url):
        child = await stage.born(url=url, numbers=NUMBERS)
        for number in range(REPEATS):
            async with _answered(stage, child, FAMILY, f"{how}-{number}") as (connections, tasks):
                going = asyncio.create_task(_away_and_back(proxy, how))
                await asyncio.sleep(0)  # it is away before the answer leaves
            saved_s += await _saved(stage, connections, await going)
            await asyncio.gather(*tasks)
            await _all_alive(stage, child, connections, figures)
    figures.note(what=f"database {how}", n=AT_ONCE * REPEATS, away_s=AWAY_S, recovery_s=quantiles(saved_s))
    _judge(stage, figures)
    figures.conclude()


async def test_E45_save_fails_and_its_process_dies(stage: Stage, tmp_path: Path) -> None:
    figures = Figures("E45")
    journaled = tmp_path / "journaled.ndjson"
    async with postgres_proxy(stage.database.settings.dsn) as (proxy, url):
        child = await stage.born(url=url, numbers=NUMBERS, journaled=str(journaled))
        async with _answered(stage, child, FAMILY, "dead") as (connections, tasks):
            proxy.away()

        async def all_journaled() -> bool:
            return journaled.exists() and len(journaled.read_text().splitlines()) == AT_ONCE

        await until(all_journaled, "every answer is on disk")
        await child.kill()
        assert all(
            isinstance(result, Gone) for result in await asyncio.gather(*tasks, return_exceptions=True)
        )
    began_s = time.monotonic()
    heir = await stage.born()
    figures.note(recovery_s=quantiles(await _saved(stage, connections, began_s)))
    await _all_alive(stage, heir, connections, figures)
    figures.note(what="killed while the database is away", n=AT_ONCE)
    _judge(stage, figures)
    figures.conclude()


async def test_E45_save_fails_disk_full_after_the_send(stage: Stage) -> None:
    figures = Figures("E45")
    async with postgres_proxy(stage.database.settings.dsn) as (proxy, url):
        child = await stage.born(url=url, numbers=NUMBERS)
        async with _answered(stage, child, FAMILY, "full") as (connections, tasks):
            await child.ask("limit_files", most_bytes=0)
            going = asyncio.create_task(_away_and_back(proxy, "reset"))
            await asyncio.sleep(0)
        saved_s = await _saved(stage, connections, await going)
        await asyncio.gather(*tasks)
        await child.ask("limit_files", most_bytes=64 * MiB)
        await _all_alive(stage, await stage.born(), connections, figures)
    figures.note(what="disk full and database away", n=AT_ONCE, recovery_s=quantiles(saved_s))
    _judge(stage, figures)
    figures.conclude()


async def test_E45_save_fails_for_the_mark(stage: Stage) -> None:
    """The mark is committed, its answer lost and the database gone: nothing left, and its process knows."""
    figures = Figures("E45")
    async with postgres_proxy(stage.database.settings.dsn) as (proxy, url):
        child = await stage.born(url=url, numbers=NUMBERS)
        (connection,) = await stage.connect(child, FAMILY, ["acme"])
        cut = proxy.cut("/* refresh_attempt_sent */", "after", away=True)
        task = asyncio.create_task(child.ask("refresh", connection=connection, newer_than=1))

        async def is_cut() -> bool:
            return cut.left == 0

        await until(is_cut, "the mark is cut")
        await asyncio.sleep(AWAY_S)
        proxy.heal()
        with pytest.raises(Asked, match="CommitInDoubtError"):
            await task
        figures.zero(posts=stage.verdict().provider_posts)
        fresh = await _refresh(child, connection, 1)
        figures.holds(fresh["generation"] == 2, "the process that did not send it can say so")
    figures.note(what="database reset at the mark", n=1)
    figures.zero(burnt=stage.verdict().burnt)
    figures.conclude()


@pytest.mark.parametrize("how", ["folder removed", "no room for a file"])
async def test_E45_save_fails_nowhere_to_keep_it(stage: Stage, how: str) -> None:
    figures = Figures("E45")
    child = await stage.born(numbers=NUMBERS, **({"file_bytes": MiB} if "room" in how else {}))
    (connection,) = await stage.connect(child, FAMILY, ["acme"])
    if "removed" in how:
        shutil.rmtree(stage.folder / "home" / "journal")
    with pytest.raises(Asked, match="the refresh was not sent, because its response could not be stored"):
        await child.ask("refresh", connection=connection, newer_than=1)
    figures.note(what=how, n=1)
    figures.zero(posts=stage.verdict().provider_posts)
    fresh = await (await stage.born()).ask("refresh", connection=connection, newer_than=1)
    figures.holds(fresh["generation"] == 2, "another process with room for it refreshes")
    figures.conclude()


async def test_E45_ablation_settled_once_and_no_journal(stage: Stage) -> None:
    figures = Figures("E45", ablation="no_journal, settle_once", sees="burnt =")
    unsafe = ["no_journal", "settle_once"]
    async with postgres_proxy(stage.database.settings.dsn) as (proxy, url):
        child = await stage.born(url=url, numbers=NUMBERS, unsafe=unsafe)
        async with _answered(stage, child, "strict", "gone") as (connections, tasks):
            going = asyncio.create_task(_away_and_back(proxy, "reset"))
            await asyncio.sleep(0)
        await asyncio.gather(*tasks, going, return_exceptions=True)
    heir = await stage.born(unsafe=unsafe)
    await child.kill()
    for _ in range(2):  # the first finds that it is unknown, the second looks at expiry
        asks = [
            heir.ask("refresh", connection=connection_name, newer_than=1) for connection_name in connections
        ]
        await asyncio.gather(*asks, return_exceptions=True)
        await stage.expire(connections)
        await stage.end_sends(connections)
    figures.zero(burnt=stage.verdict().burnt)
    figures.conclude()
