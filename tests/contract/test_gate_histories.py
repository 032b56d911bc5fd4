"""Random histories: scripts, model and the simulation's server answer alike (E30 has many more of them)."""

from __future__ import annotations

from functools import partial
from random import Random

import pytest

from fairlead.adapters.embedded import Endpoints
from fairlead.adapters.local.local_gate import LocalGate
from fairlead.engine.ports import AdmitRequest, AdmitResult, GateRefusal, Lease, RefusedBy, Renewal
from fairlead.policy.limits.breaker import DestinationHealth
from fairlead.policy.limits.limit import Domain, Plan
from fairlead.policy.limits.pool import Holder, Pool
from tests.contract.gates import STORES, store_of
from tests.contract.histories import (
    DOMAIN,
    POOL,
    Again,
    AskFor,
    End,
    Lose,
    Renew,
    difference,
    history,
)
from tests.contract.shortest import shortest
from tests.simulation.shared_gate import SharedGate

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
        pytest.fail("\n".join(map(str, await shortest(steps, partial(difference, url)))))


SINGLE_SERVERS = ("valkey", "redis_62")
"""Stores that can be emptied: in a cluster each of many servers would be."""


@pytest.mark.slow
@pytest.mark.parametrize("url", SINGLE_SERVERS, indirect=True)
async def test_random_histories_with_losses(url: str) -> None:
    for seed in range(LOSSES):
        steps = history(Random(seed), STEPS, losses=0.03)
        if await difference(url, steps):
            pytest.fail(
                "\n".join([f"seed {seed}", *map(str, await shortest(steps, partial(difference, url)))])
            )


class GrantsAtOnce(SharedGate):
    """After a loss whoever asks gets a slot, though others may hold theirs still."""

    def _take_slot(self, ask: AdmitRequest, now_us: int) -> int | AdmitResult:
        return LocalGate._take_slot(self, ask, now_us)


class KnowsNobodyAgain(SharedGate):
    """After a loss nobody has the slot back that he holds."""

    def _renew(self, renewal: Renewal) -> Lease:
        return LocalGate._renew(self, renewal)


@pytest.mark.slow
@pytest.mark.parametrize("mistake", [GrantsAtOnce, KnowsNobodyAgain])
async def test_a_mistake_after_a_loss_is_found(mistake: type[SharedGate], servers: Endpoints) -> None:
    first_found = None
    for seed in range(20):
        steps = history(Random(seed), STEPS, losses=0.03)
        first_found = first_found or await difference(servers.redis_url, steps, mistake)
    assert first_found


# ---- a line that outlives its server -------------------------------------------------------------


class HandsOnAtOnce(SharedGate):
    """After a loss who stands in line is handed what seems free, though others may hold it still."""

    def _grant_waiting(self, domain: Domain, pool: Pool) -> None:
        LocalGate._grant_waiting(self, domain, pool)


class KeepsPlaces(SharedGate):
    """Who is refused after a loss stays in the line in which he stood."""

    def _take_slot(self, ask: AdmitRequest, now_us: int) -> int | AdmitResult:
        if ask.plan.pool is None or ask.holder is None:
            return super()._take_slot(ask, now_us)
        waiting = self._pool(ask.plan.domain, ask.plan.pool).waiting
        waiter = waiting.get(ask.holder)
        answer = super()._take_slot(ask, now_us)
        if waiter is not None and isinstance(answer, GateRefusal) and answer.by is RefusedBy.RECOVERY:
            waiting[ask.holder] = waiter
        return answer


def _request(number: int) -> AskFor:
    return AskFor(number, AdmitRequest(Plan(DOMAIN, pool=POOL), holder=Holder(number, "p1"), wait_s=2.0))


TAKEN_OVER = [
    *map(_request, range(1, POOL.capacity + 2)),
    Lose(kept=True),
    End(1, DestinationHealth.NEUTRAL, {}, {}),
    Renew(POOL.capacity + 1, held=False),
    Again(POOL.capacity + 1),
    Renew(POOL.capacity + 1, held=False),
]
"""One stands in line as another server takes over, and a slot comes free before any is granted again."""


@pytest.mark.parametrize("kind", [SharedGate, HandsOnAtOnce, KeepsPlaces])
async def test_a_line_that_outlives_its_server(kind: type[SharedGate], servers: Endpoints) -> None:
    differs = await difference(servers.redis_url, TAKEN_OVER, kind)
    assert (differs is None) is (kind is SharedGate)
