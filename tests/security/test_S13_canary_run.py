"""S13, P12: a whole life of fairlead with unique secrets everywhere; none of them comes out anywhere."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.security.canary import places, plants
from tests.security.canary.ground import Ground, ground
from tests.security.canary.life import live, live_without_filter, wrong_starts
from tests.security.figures import tell
from tests.support.canaries import Canaries
from tests.support.cli import Shell, Spawner, running_spawner

pytestmark = [pytest.mark.slow]


@pytest.fixture(scope="module")
def spawner() -> Iterator[Spawner]:
    with running_spawner() as spawner:
        yield spawner


async def gather(ground: Ground) -> None:
    """Whatever is left on disk and in the stores, and what came from outside to us."""
    ground.said |= await places.database(ground.endpoints.database_url)
    ground.said |= await places.redis(ground.endpoints.redis_url)
    ground.said |= places.files(ground.folder, but=("inputs/", "__pycache__"))
    ground.said |= {
        f"log of {path.stem}": path.read_bytes() for path in sorted(ground.server_files.glob("*.log"))
    }
    ground.add("webhooks", b"\n".join(ground.tattler.heard))
    for grant in ground.issuer.state.grants():
        ground.canaries.keep("refresh token of the issuer", grant.refresh_token)
        ground.canaries.keep("access token of the issuer", grant.access_token)


def findings(ground: Ground) -> list[str]:
    """Which canary is where, in what form."""
    return sorted(
        f"{name}: {canary} ({form})"
        for name, text in ground.said.items()
        for canary, form in ground.canaries.traces_in(text)
    )


COUNTED: Counter[str] = Counter()


def nothing_found(stage: Ground) -> None:
    """Tell how much was searched for how many, with the other runs (n) of this process: in vain."""
    everywhere = findings(stage)
    COUNTED.update(
        n=1,
        canaries=len(stage.canaries.all),
        places=len(stage.said),
        bytes=sum(map(len, stage.said.values())),
        canary_found=len(everywhere),
    )
    tell("S13", **COUNTED)
    assert everywhere == [], "\n".join(everywhere)
    assert stage.unforeseen == []


async def test_no_secret_comes_out(tmp_path: Path, spawner: Spawner) -> None:
    async with ground(tmp_path, Canaries()) as stage:
        await live(stage, Shell(tmp_path, spawner), plants.plant)
        await gather(stage)
    assert stage.tattler.not_reached == set()
    assert plants.not_found(stage.said) == []
    nothing_found(stage)


async def test_no_secret_comes_out_of_what_cannot_start(tmp_path: Path, spawner: Spawner) -> None:
    async with ground(tmp_path, Canaries()) as stage:
        await wrong_starts(stage, Shell(tmp_path, spawner))
        await gather(stage)
    nothing_found(stage)


async def test_without_the_filter_they_would(tmp_path: Path, spawner: Spawner) -> None:
    """The ablation: what is searched are places that secrets do reach."""
    async with ground(tmp_path, Canaries()) as stage:
        await live_without_filter(stage, Shell(tmp_path, spawner))
        await gather(stage)
    everywhere = findings(stage)
    for name in ("file worker.err", "table fairlead.job", "table fairlead.dead_letter"):
        assert [trace for trace in everywhere if trace.startswith(name)], name
