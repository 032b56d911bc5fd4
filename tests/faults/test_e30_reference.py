"""E30: the scripts answer as the model in memory does, whatever is asked of both, with time as an argument.

Smaller runs are among the contract suites (test_gate_histories.py). Here they run long, and find a script that
counts whole seconds only.
"""

from __future__ import annotations

import pytest

from fairlead.adapters.redis import node as node_module
from tests.contract.histories import difference, history
from tests.faults.support.gateless import altered
from tests.faults.support.ground import own_ground, smoke_elsewhere
from tests.faults.support.report import Figures, sized

pytestmark = pytest.mark.slow

RUNS, STEPS = sized(40, 4_000), 120


async def _compare(url: str, figures: Figures, runs: int) -> None:
    """Draw histories until one differs, at most *runs*."""
    difference_found, run = None, 0
    while run < runs and difference_found is None:
        run += 1
        difference_found = await difference(url, history(figures.draw, STEPS))
    figures.note(
        n=run * STEPS, runs=run, first="" if difference_found is None else str(difference_found)[:300]
    )
    figures.zero(mismatches=int(difference_found is not None))


async def test_E30_reference() -> None:
    figures = Figures("E30")
    with own_ground(figures) as valkey:
        await _compare(valkey.url, figures, RUNS)
    figures.conclude()


@smoke_elsewhere
async def test_E30_elsewhere(on: str) -> None:
    figures = Figures("E30", size="smoke")
    with own_ground(figures, on=on) as valkey:
        await _compare(valkey.url, figures, 4)
    figures.conclude()


async def test_E30_ablation_whole_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tokens gained within a second are lost, so 100 a minute are 60 for a caller that asks each second."""
    figures = Figures("E30", ablation="whole_seconds", sees="mismatches")
    change = ("fast_path", "local micros = elapsed_us - seconds * MICRO", "local micros = 0")
    script = altered("gate", [change])
    monkeypatch.setattr(node_module, "script", lambda _name: script)
    with own_ground(figures) as valkey:
        await _compare(valkey.url, figures, RUNS)
    figures.conclude()
