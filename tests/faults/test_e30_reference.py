"""E30: the scripts answer as the model in memory does, whatever is asked of both, with time as an argument.

The same machine runs in smaller size among the contract suites; here it runs long, and shows that it finds a
script that counts whole seconds only.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from fairlead.adapters.redis import node as node_module
from tests.contract.histories import difference, history
from tests.contract.test_gate_model import Lockstep
from tests.faults.support.gateless import altered
from tests.faults.support.ground import own_ground, smoke_elsewhere
from tests.faults.support.report import Figures, sized

pytestmark = pytest.mark.slow

RUNS, STEPS = sized((30, 60), (2_500, 100))
HISTORIES, HISTORY_STEPS = sized(40, 4_000), 120
ABLATION_RUNS = 300


def _steps(url: str, figures: Figures, runs: int, steps: int) -> None:
    """Both are asked the same until they differ, or *runs* times *steps* are over."""
    asked = 0

    class Machine(Lockstep):
        def both(self, act: Callable[..., Any]) -> Any:
            nonlocal asked
            asked += 1
            return super().both(act)

    Machine.url = url
    mismatches, what = 0, ""
    try:
        run_state_machine_as_test(  # type: ignore[no-untyped-call]
            Machine,
            settings=settings(
                max_examples=runs,
                stateful_step_count=steps,
                deadline=None,
                database=None,
                phases=[Phase.generate],  # a mismatch is enough; the contract suite finds the smallest
                suppress_health_check=list(HealthCheck),
            ),
        )
    except AssertionError as differ:
        mismatches, what = 1, str(differ).splitlines()[0]
    figures.note(n=asked, runs=runs, first=what[:300])
    figures.zero(mismatches=mismatches)


def test_E30_reference() -> None:
    figures = Figures("E30")
    with own_ground(figures) as valkey:
        _steps(valkey.url, figures, RUNS, STEPS)
    figures.conclude()


async def _histories(url: str, figures: Figures, runs: int) -> None:
    """Random histories until one differs, or all of *runs* were the same."""
    found, run = None, 0
    while run < runs and found is None:
        run += 1
        found = await difference(url, history(figures.draw, HISTORY_STEPS))
    figures.note(n=run * HISTORY_STEPS, runs=run, first="" if found is None else str(found)[:300])
    figures.zero(mismatches=int(found is not None))


async def test_E30_at_random() -> None:
    figures = Figures("E30")
    with own_ground(figures) as valkey:
        await _histories(valkey.url, figures, HISTORIES)
    figures.conclude()


@smoke_elsewhere
def test_E30_elsewhere(on: str) -> None:
    figures = Figures("E30", size="smoke")
    with own_ground(figures, on=on) as valkey:
        _steps(valkey.url, figures, 8, 40)
    figures.conclude()


def test_E30_ablation_whole_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    """What comes back within a second is lost, so 100 a minute are 60 for who asks each second."""
    figures = Figures("E30", ablation="whole_seconds", sees="mismatches")
    change = ("fast_path", "local micros = elapsed_us - seconds * MICRO", "local micros = 0")
    made = altered("gate", [change])
    monkeypatch.setattr(node_module, "script", lambda _name: made)
    with own_ground(figures) as valkey:
        _steps(valkey.url, figures, ABLATION_RUNS, 60)
    figures.conclude()
