"""Random histories: scripts, model and the simulation's server answer alike (E30 has many more of them)."""

from __future__ import annotations

from random import Random

import pytest

from fairlead.adapters.embedded import Endpoints
from fairlead.adapters.local.gate import LocalGate
from fairlead.engine.ports.gate import Answer, Ask, Lease, Renewal
from tests.contract.gates import STORES, store_of
from tests.contract.histories import difference, history, shortest
from tests.simulation.redis import SharedGate, SimRedis

STEPS = 120
LOSSES = 150
"""Histories with losses, of each server."""


@pytest.fixture(params=STORES)
def url(request: pytest.FixtureRequest) -> str:
    return store_of(request)


@pytest.mark.parametrize("seed", range(8))
async def test_a_random_history(url: str, seed: int) -> None:
    steps = history(Random(seed), STEPS)
    if await difference(url, steps):
        pytest.fail("\n".join(map(str, await shortest(url, steps))))


ALONE = ("valkey", "redis_62")
"""Stores that can be emptied: in a cluster each of many servers would be."""


@pytest.mark.slow
@pytest.mark.parametrize("url", ALONE, indirect=True)
async def test_random_histories_with_losses(url: str) -> None:
    for seed in range(LOSSES):
        steps = history(Random(seed), STEPS, losses=0.03)
        if await difference(url, steps):
            pytest.fail("\n".join([f"seed {seed}", *map(str, await shortest(url, steps))]))


class GrantsAtOnce(SharedGate):
    """After a loss whoever asks gets a slot, though others may hold theirs still."""

    def _take(self, ask: Ask, now_us: int) -> int | Answer:
        return LocalGate._take(self, ask, now_us)


class KnowsNobodyAgain(SharedGate):
    """After a loss nobody has the slot back that he holds."""

    def _renewed(self, renewal: Renewal) -> Lease:
        return LocalGate._renewed(self, renewal)


@pytest.mark.slow
@pytest.mark.parametrize("mistake", [GrantsAtOnce, KnowsNobodyAgain])
async def test_a_mistake_after_a_loss_is_found(
    mistake: type[SharedGate], servers: Endpoints, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SimRedis, "kind", mistake)
    found = [
        await difference(servers.redis_url, history(Random(seed), STEPS, losses=0.03)) for seed in range(20)
    ]
    assert any(found)
