"""What killed processes of a simulated world leave is thrown away within the test that made it."""

from __future__ import annotations

import asyncio
import gc
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

HERE = Path(__file__).parent
NOT_BEGUN = "coroutine '.*' was never awaited"
"""What the end of a killed process would still have done: it is made, refused, and dropped."""
MOST_ROUNDS = 20
"""Of collections; a few are enough."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Of a killed process nothing is awaited any more, and that is the point."""
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.filterwarnings(f"ignore:{NOT_BEGUN}:RuntimeWarning"))


@pytest.fixture(autouse=True)
def the_dead(request: pytest.FixtureRequest) -> Iterator[None]:
    """Collected here, and not while another test runs."""
    asyncio.set_event_loop(None)  # or what their end begins is left to a loop that is made for it
    yield
    request.node.funcargs.clear()  # a world that a fixture has made is held there still
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", NOT_BEGUN, RuntimeWarning)
        _collect()


def _collect() -> None:
    """Again, as long as there is anything: whom the end of another wakes is spared by the round of that."""
    for _ in range(MOST_ROUNDS):
        if not gc.collect():
            return
