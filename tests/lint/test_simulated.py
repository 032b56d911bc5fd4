"""The simulated fleet runs what the runtime runs, and the page of figures has its results."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from fairlead._core.secret import Secret
from fairlead.adapters.local.system import SystemClock, SystemIds, draw
from fairlead.assembly.gate import GateComponents, GateSettings
from fairlead.assembly.jobs import background_services
from fairlead.assembly.settings import Settings
from fairlead.engine.base.service import Service
from fairlead.engine.jobs.rescuer import rescue_interval_s
from fairlead.engine.ports import ClaimFilter
from fairlead.engine.tokens.database_failover import TimelineWatch
from tests.simulation import kept
from tests.simulation.ablations import AblationFinding
from tests.simulation.chance import Chance
from tests.simulation.program import GATE_CHECK_S, LANES_CHECK_S, LEASE_S
from tests.simulation.stores import Parts
from tests.simulation.swarm import Swarm
from tests.simulation.watch import Broken
from tests.simulation.world import World
from tools import figures, results, simulated

LEFT_OUT = {
    "kind_report": "every process has the same handlers there, and the database knows them",
    "loop_meter": "it measures how long the loop stands still, and a simulated step takes no time",
    "gate-overrides": "no operator sets an override there",
    "gate-observed-limits": "the simulated API does not report its limits, so there is nothing to store",
}
"""Services of the runtime that no simulated process runs, and why."""
LESS_OFTEN = {"lanes": LANES_CHECK_S, "gate-failover": GATE_CHECK_S}
"""Services with a longer interval there, because most of a seed's steps would be theirs otherwise."""


def of_the_runtime() -> dict[str, float]:
    """Return each service of a process with both roles and a Redis, and its interval in seconds."""
    clock, settings = SystemClock(), Settings()
    stores = SimpleNamespace(sessions=None, jobs=None, lanes=None, schedule_store=None)  # they are not used
    lease = SimpleNamespace(lease_s=settings.worker.lease_s, has_session=lambda: True)
    services = background_services(
        cast(Any, stores),
        cast(Any, None),
        cast(Any, lease),
        claims=ClaimFilter(),
        scheduler=True,
        max_crashes=settings.worker.max_crashes,
        clock=clock,
        draw=draw,
        ids=SystemIds(),
        emit=lambda event: None,
    )
    gate = GateComponents(
        Secret("redis://127.0.0.1:1"),
        GateSettings(),
        database=cast(Any, None),
        session_id=lambda: None,
        profile=cast(Any, None),
        clock=SystemClock(),
        draw=draw,
        ids=SystemIds(),
        emit=lambda event: None,
    )
    timeline_watch = TimelineWatch(cast(Any, SimpleNamespace(emit=None)), cast(Any, None))
    watch = timeline_watch.service(clock=clock, draw=draw)
    return _intervals([*services, watch, *gate._services])


def of_the_simulation() -> Iterator[dict[str, float]]:
    """Yield the same for each simulated process."""
    world = World(Chance(0), Swarm({}), Parts())
    world.start_all()
    for program in world.programs.values():
        yield _intervals([*program._services(), *program._gate_services()])
    world.close()


def _intervals(services: list[Service]) -> dict[str, float]:
    return {service.name: service._interval_s for service in services}


def test_a_simulated_process_runs_the_services_of_the_runtime() -> None:
    services = of_the_runtime()
    for simulated_ones in of_the_simulation():
        assert set(simulated_ones) == set(services) - set(LEFT_OUT)
        expected = services | LESS_OFTEN | {"rescuer": rescue_interval_s(LEASE_S)}
        assert simulated_ones == {name: expected[name] for name in simulated_ones}


# ---- docs/figures.md -------------------------------------------------------------------------------


@pytest.fixture
def page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a copy of the page, with a folder for results beside it."""
    copy = tmp_path / "figures.md"
    copy.write_text(figures.PAGE.read_text("utf-8"), "utf-8")
    monkeypatch.setenv("FAIRLEAD_RESULTS", str(tmp_path / "kept"))
    return copy


def rows(page: Path) -> tuple[str, str]:
    """Return the two rows of the simulation."""
    text = simulated.written(page.read_text("utf-8"), results.read(page.parent / "kept"))
    healthy, ablated = (line for line in text.splitlines() if "simulate" in line and line.startswith("| "))
    return healthy, ablated


def test_page_shows_what_the_ablations_found(page: Path) -> None:
    assert all(simulated.NOT_YET in row for row in rows(page))
    kept.seeds(range(200), broken=0, steps=16_000_000, seconds=41.4)
    kept.same([7, 9], interpreters=3, differ=0, seconds=2.0)
    broken: Mapping[str, AblationFinding | None] = {
        "fence": AblationFinding(3, Broken("I2", 1.0, "late")),
        "slots": AblationFinding(4, Broken("I12", 1.0, "two")),
    }
    kept.ablations(broken, 200, seconds=30.0)
    healthy, ablated = rows(page)
    assert "200 seeds, 16,000,000 steps: 0 broken (3/n = 1.5 %), in 41 s" in healthy
    assert "2 seeds that between them have every fault: 0 differ between 3 fresh interpreters" in healthy
    assert "2 of 2 found within 200 seeds, by I2, I12, in 30 s" in ablated
    assert (page.parent / "kept" / "simulation.json").exists()


def test_page_names_a_broken_simulation(page: Path) -> None:
    kept.seeds(range(200), broken=2, steps=1000, seconds=41.4)
    kept.ablations({"fence": AblationFinding(3, Broken("I2", 1.0, "late")), "slots": None}, 200, seconds=30.0)
    healthy, ablated = rows(page)
    assert "**broken**: 2, in" in healthy
    assert "**broken**: 1 of 2 found" in ablated


def test_a_part_of_a_run_is_not_published(page: Path) -> None:
    kept.seeds(range(199), broken=0, steps=1000, seconds=1.0)
    kept.ablations({"slots": None}, 20, seconds=1.0)
    assert not (page.parent / "kept").exists()


def test_a_page_without_the_rows_is_refused() -> None:
    with pytest.raises(ValueError, match="there are 0 rows"):
        simulated.written("| what | figure | shown by |", [])
