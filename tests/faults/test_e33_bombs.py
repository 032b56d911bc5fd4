"""E33: answers that are small on the wire and huge when opened, in a process of 256 MiB (P11, S10).

Each is told to the caller by name, costs less than 32 MiB at its peak, and the loop runs on meanwhile. So it
is until the caller reads it. What it costs to read as JSON an answer that is twenty times as large then is
judged where it has 1 MiB, and told where it has 15, in a process of 1 GiB.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from fairlead.adapters.embedded import Endpoints
from fairlead.adapters.postgres.connection_setup import DatabaseSettings
from fairlead.testing.api import ApiProcess
from tests.faults.support.calls import settings_of
from tests.faults.support.child import Child, Gone
from tests.faults.support.membox import boxes
from tests.faults.support.nursery import Nursery
from tests.faults.support.report import Figures, quantiles, sized

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="the peak of memory is the kernel's to tell"),
]

BOX_BYTES, MOST_BYTES, MOST_STALL_S = 256 << 20, 32 << 20, 0.05
MOST_KEPT_BYTES = 16 << 20
BOMB_MIB = sized((16, 1024), (10, 16, 1024, 10_240))
"""Up to 16 MiB a body may have."""
TIMES = sized(1, 20)
BOMBS = (
    "gzip_members", "gzip_in_gzip", "gzip_truncated", "gzip_trailing", "endless", "many_headers",
    "large_header", "early_hints", "deep", "long_number", "wrong_encoding", "wide?mib=15",
)  # fmt: skip
DEADLINE_S = 20.0
READ_BOXES_BYTES = {1: BOX_BYTES, 15: 1 << 30}
"""By the MiB of an answer that is read."""
READ_STALL_BOUND_S = sized(1.0, MOST_STALL_S)
"""A busy machine takes its time for a third of a million of lists."""


@asynccontextmanager
async def _boxed(
    figures: Figures, nursery: Nursery, settings: dict[str, Any], folder: Path, box_bytes: int = BOX_BYTES
) -> AsyncIterator[tuple[Child, str]]:
    """A process in its box, and the address of the liar, who is outside of it."""
    with boxes(box_bytes) as boxes_made:
        figures.note(box=boxes_made.how, box_mib=box_bytes >> 20)
        child_order = {"settings": settings, "numbers": {}, "log": str(folder / "child.log")}
        child = Child(nursery, {"child": "bombed", **child_order, **boxes_made.order()})
        await child.begin()
        boxes_made.watch(child.pid)
        try:
            async with ApiProcess("liar") as liar:
                await child.ask("connect", tenant="acme")
                await child.ask("call", tenant="acme", url=f"{liar.url}/polite")  # all is loaded
                yield child, liar.url
        finally:
            await child.kill()


async def _bombs(figures: Figures, child: Child, url: str, **options: Any) -> None:
    lies = [f"gzip_bomb?mib={mib}" for mib in BOMB_MIB] + [*BOMBS]
    calls = [(f"tenant-{time}", lie) for time in range(TIMES) for lie in lies]
    grew: dict[str, int] = {}
    peaks: list[int] = []
    stalls_s: list[float] = []
    outcomes: dict[str, str] = {}
    unnamed = killed = 0
    for tenant, lie in calls:
        if lie == lies[0]:
            await child.ask("connect", tenant=tenant)  # its breaker has seen nothing yet
        call_order = {"tenant": tenant, "url": f"{url}/liar/{lie}", "deadline_s": DEADLINE_S, **options}
        try:
            result = await child.ask("call", **call_order)
        except Gone:
            killed = 1
            figures.note(killed_by=lie)
            break
        grew[lie] = max(grew.get(lie, 0), result["grew"])
        peaks.append(result["kept"])
        stalls_s.append(result["stall_s"])
        outcomes[lie] = result["told"]
        unnamed += outcomes[lie] in ("None", "breaker")
    figures.note(n=len(stalls_s), told=outcomes, stall_ms=quantiles(stalls_s, 1000, 1))
    figures.note(peak_mib={lie: round(count / (1 << 20), 1) for lie, count in grew.items()})
    figures.zero(killed=killed, unnamed=unnamed)
    figures.note(kept_mib=round(max(peaks, default=0) / (1 << 20), 1))
    figures.holds(max(peaks, default=0) <= MOST_KEPT_BYTES, "memory was left behind")
    over = [lie for lie, count in grew.items() if count > MOST_BYTES]
    figures.holds(not over, f"more than {MOST_BYTES >> 20} MiB for {', '.join(over)}")
    most_s = max(stalls_s, default=0.0)
    figures.holds(most_s <= MOST_STALL_S, f"the loop stood still for {most_s:.3f} s")


@pytest.fixture
def settings(servers: Endpoints, database_settings: DatabaseSettings, tmp_path: Path) -> dict[str, Any]:
    return settings_of(servers, database_settings, tmp_path)


async def test_E33_bombs(nursery: Nursery, settings: dict[str, Any], tmp_path: Path) -> None:
    figures = Figures("E33")
    async with _boxed(figures, nursery, settings, tmp_path) as (child, url):
        await _bombs(figures, child, url)
    figures.conclude()


@pytest.mark.parametrize("mib", READ_BOXES_BYTES)
async def test_E33_read_as_json(nursery: Nursery, settings: dict[str, Any], tmp_path: Path, mib: int) -> None:
    figures, results = Figures("E33"), list[dict[str, Any]]()
    figures.note(what=f"read as JSON, {mib} MiB")
    async with _boxed(figures, nursery, settings, tmp_path, READ_BOXES_BYTES[mib]) as (child, url):
        call_order = {"tenant": "acme", "url": f"{url}/liar/wide?mib={mib}", "deadline_s": DEADLINE_S}
        for _ in range(TIMES):
            results.append(await child.ask("call", read=True, **call_order))
    most_bytes, most_s = (max(result[name] for result in results) for name in ("grew", "stall_s"))
    figures.note(
        n=len(results), read_mib=round(most_bytes / (1 << 20), 1), read_stall_ms=round(most_s * 1000, 1)
    )
    figures.holds({result["told"] for result in results} == {"200"}, "it is read")
    if mib == 1:
        figures.holds(most_bytes <= MOST_BYTES, f"{most_bytes >> 20} MiB to read one")
        figures.holds(most_s <= READ_STALL_BOUND_S, f"the loop stood still for {most_s:.3f} s")
    figures.conclude()


async def test_E33_ablation_no_bound(nursery: Nursery, settings: dict[str, Any], tmp_path: Path) -> None:
    """An answer may be as large as it likes."""
    figures = Figures("E33", ablation="no_bound", sees="killed")
    async with _boxed(figures, nursery, settings, tmp_path) as (child, url):
        async with asyncio.timeout(50.0):
            await _bombs(figures, child, url, max_body_bytes=1 << 40)
    figures.conclude()
