"""`fairlead demo` as a user runs it: its figures, its promises, and that nothing of it is left."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.cli import Child, Shell

FIGURES = {
    "connections", "refreshed", "generations", "provider_posts", "burnt_outside_window", "lost_rotation",
    "expired_served", "retries", "dead_letters", "needs_reauth", "killed_workers", "recovered_s", "policies",
    "seed", "violations",
}  # fmt: skip
POLICIES = {"strict", "until_successor_used", "grace", "strict_family_revoke", "stable", "assertion"}


@pytest.fixture
def folder() -> Iterator[Path]:
    """Where temporary folders are made: short, as sockets will be in it, and passable for the servers."""
    with tempfile.TemporaryDirectory(prefix="fl-demo-") as name:
        Path(name).chmod(0o711)
        yield Path(name)


@pytest.mark.slow
async def test_a_short_run_keeps_every_promise(bare: Shell, folder: Path) -> None:
    (bare.folder / "fairlead.toml").write_text("this is = no toml", encoding="utf-8")
    done = await bare("demo", "--json", "--seconds", "15", "--seed", "7", env={"TMPDIR": str(folder)})
    summary = done.record  # one object, nothing else
    assert (done.code, summary["violations"]) == (0, []), done.err
    assert set(summary) >= FIGURES

    assert (summary["burnt_outside_window"], summary["expired_served"]) == (0, 0)
    assert summary["needs_reauth"] == 3 + summary["lost_rotation"]
    assert summary["lost_rotation"] <= summary["refreshes_in_flight_at_kill"]
    assert (summary["connections"], summary["killed_workers"], summary["seed"]) == (200, 1, 7)
    assert 0 < summary["recovered_s"] < 20
    assert summary["provider_posts"] >= summary["generations"] >= summary["refreshed"] > 100
    assert summary["retries"]["transient_server"] > 0 < summary["retries"]["transient_rate_limit"]
    assert summary["tokens_served"] > 100

    assert {policy["policy"] for policy in summary["policies"]} == POLICIES
    for name in ("connections", "generations", "provider_posts", "lost_rotation", "needs_reauth"):
        assert sum(policy[name] for policy in summary["policies"]) == summary[name]
    assert list(folder.iterdir()) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130), (signal.SIGKILL, -signal.SIGKILL)]
)
async def test_nothing_outlives_it(bare: Shell, folder: Path, number: signal.Signals, code: int) -> None:
    child = bare.start("demo", "--seconds", "60", env={"TMPDIR": str(folder)})
    workers = await _started_pids(child)
    (endpoints,) = folder.glob("*/servers/endpoints.json")
    supervisor = int(json.loads(endpoints.read_text())["supervisor_pid"])

    child.kill(number)
    done = await bare.end(child)
    assert done.code == code
    async with asyncio.timeout(30):
        while any(_lives(pid) for pid in (*workers, supervisor)):
            await asyncio.sleep(0.05)
    if number is not signal.SIGKILL:  # then nobody is left to remove it
        assert list(folder.iterdir()) == []


async def _started_pids(child: Child) -> list[int]:
    """Wait until the run has begun; the workers' process ids."""
    output = ""
    while "the run begins" not in output:
        word = await child.word()
        assert word, output
        output += word
    workers = [int(pid) for pid in re.findall(r"works \(pid (\d+)\)", output)]
    assert len(workers) == 2
    return workers


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.parametrize("seconds", ["5", "601", "soon"])
async def test_an_impossible_length_is_refused(bare: Shell, seconds: str) -> None:
    done = await bare("demo", "--seconds", seconds, "--json")
    assert (done.code, done.out, done.error["code"]) == (2, "", "usage_error")
