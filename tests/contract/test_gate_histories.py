"""Random histories: the scripts answer as the model does (E30 has many more of them)."""

from __future__ import annotations

from random import Random

import pytest

from tests.contract.gates import STORES, store_of
from tests.contract.histories import difference, history, shortest

STEPS = 120


@pytest.fixture(params=STORES)
def url(request: pytest.FixtureRequest) -> str:
    return store_of(request)


@pytest.mark.parametrize("seed", range(8))
async def test_a_random_history(url: str, seed: int) -> None:
    steps = history(Random(seed), STEPS)
    if await difference(url, steps):
        pytest.fail("\n".join(map(str, await shortest(url, steps))))
