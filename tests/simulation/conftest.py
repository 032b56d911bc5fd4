"""What killed processes of a simulated world leave is thrown away within the test that made it."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

HERE = Path(__file__).parent
NOT_BEGUN = "coroutine '.*' was never awaited"
"""What the end of a killed process would still have done: it is made, refused, and dropped."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Of a killed process nothing is awaited any more, and that is the point."""
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.filterwarnings(f"ignore:{NOT_BEGUN}:RuntimeWarning"))


@pytest.fixture(autouse=True)
def the_dead() -> Iterator[None]:
    """Collected here, and not while another test runs."""
    yield
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", NOT_BEGUN, RuntimeWarning)
        gc.collect()
