"""Random histories: the scripts answer as the model does (E30 has many more of them)."""

from __future__ import annotations

from random import Random

import pytest

from fairlead.adapters.redis import node as node_module
from tests.contract.gates import STORES, store_of
from tests.contract.histories import difference, history, shortest
from tests.faults.support.gateless import altered

STEPS = 120
APART = (
    "a quota does not learn what the pool's set holds",
    ("line", "redis.call('ZUNIONSTORE', quota.leases, 1, leases_of(pool.name))", "0"),
)
FOR_GOOD = (
    "a pool that met another stays the partner of the first",
    ("line", "        if pool then\n            alone(pool)\n        end\n", ""),
)


@pytest.fixture(params=STORES)
def url(request: pytest.FixtureRequest) -> str:
    return store_of(request)


@pytest.mark.parametrize("seed", range(8))
async def test_a_random_history(url: str, seed: int) -> None:
    steps = history(Random(seed), STEPS)
    if await difference(url, steps):
        pytest.fail("\n".join(map(str, await shortest(url, steps))))


@pytest.mark.parametrize(("what", "change"), [APART, FOR_GOOD])
async def test_a_defect_is_found(
    what: str, change: tuple[str, str, str], monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    made = altered("gate", [change])
    monkeypatch.setattr(node_module, "script", lambda _name: made)
    where = request.getfixturevalue("servers").redis_url
    found = [seed for seed in range(60) if await difference(where, history(Random(seed), STEPS))]
    assert found, what
