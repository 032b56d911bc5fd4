"""Random histories: credentials and token endpoints in memory answer as those of PostgreSQL do.

More of them: ``python -m tests.contract.token_histories 10000``.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from fairlead.adapters.embedded import Endpoints
from fairlead.engine.ports import (
    DueConnection,
    EndpointPermit,
    EndpointRefusal,
    Intent,
    PermitRequest,
    ReauthRequirement,
    Settlement,
    SettleVerdict,
)
from fairlead.testing._memory.database import statement
from fairlead.testing._memory.token_rows import RotationRow
from tests.contract.losses import LossyDatabase
from tests.contract.pairs import batches, plain, still
from tests.contract.token_histories import Pair
from tests.support.memory_credentials import MemoryCredentialStore
from tests.support.memory_endpoints import MemoryEndpointGate

HISTORIES = 200
ENOUGH = 60
"""Of so many histories one at least finds each of the mistakes below."""


@pytest.fixture
async def still_one(servers: Endpoints) -> AsyncIterator[LossyDatabase]:
    async with still(servers.database_url) as database:
        yield database


@pytest.mark.slow
@pytest.mark.parametrize("seeds", batches(HISTORIES), ids=str)
async def test_random_histories_are_the_same_in_memory(still_one: LossyDatabase, seeds: range) -> None:
    pair = Pair(still_one)
    difference = await pair.first_difference(seeds)
    if difference is not None:
        pytest.fail(await pair.told(*difference))


# ---- with one safeguard taken out ------------------------------------------------------------------


class SettlesWhateverStands(MemoryCredentialStore):
    """No compare-and-set: an answer is stored though the generation has moved."""

    @statement
    def settle(self, settlement: Settlement) -> SettleVerdict:
        row = self.database.tokens.credentials.get(settlement.connection_id)
        if row is not None:
            settlement = replace(settlement, from_generation=row.generation)
        verdict: SettleVerdict = plain(MemoryCredentialStore.settle)(self, settlement)
        return verdict


class SendsAgainByTime(MemoryCredentialStore):
    """What was sent is claimed once its lease has run out (against R7)."""

    def _gives_way(self, rotation: RotationRow, intent: Intent) -> bool:
        ran_out = rotation.lease_until < self.database.now
        return super()._gives_way(rotation, intent) or (rotation.phase == "sent" and ran_out)


class ClaimsAReplay(MemoryCredentialStore):
    """An intent to replay passes for one that was never sent."""

    def _gives_way(self, rotation: RotationRow, intent: Intent) -> bool:
        return super()._gives_way(rotation, intent) or (
            rotation.phase == "intent" and self._is_free(rotation, intent.session_id)
        )


class ForgetsTheFirstSend(MemoryCredentialStore):
    """A replay that changed nothing ends the rotation, though the first send may have spent the token."""

    @statement
    def release(self, connection_id: UUID, attempt_id: UUID) -> bool:
        return (
            self._held(connection_id, attempt_id) is not None
            and self.database.tokens.rotations.pop(connection_id, None) is not None
        )


class CondemnsWithoutProof(MemoryCredentialStore):
    """A loser disables the winner: whoever holds the refresh is not asked."""

    @statement
    def require_reauth(self, reauth_requirement: ReauthRequirement) -> bool:
        rotation = self.database.tokens.rotations.get(reauth_requirement.connection_id)
        proof = replace(reauth_requirement, attempt_id=None if rotation is None else rotation.attempt_id)
        done: bool = plain(MemoryCredentialStore.require_reauth)(self, proof)
        return done


class LeavesTheDeadAlone(MemoryCredentialStore):
    """A refresh whose owner is gone is found only when its lease has run out."""

    @statement
    def left_behind(self, limit: int, cool_down_s: float) -> Sequence[DueConnection]:
        due_connections: Sequence[DueConnection] = plain(MemoryCredentialStore.left_behind)(
            self, limit, cool_down_s
        )
        rotations = self.database.tokens.rotations
        return [
            due for due in due_connections if rotations[due.connection_id].lease_until < self.database.now
        ]


class NumbersAReplayLikeTheFirst(MemoryCredentialStore):
    """A replay has the epoch of the send before it."""

    @statement
    def claim_replay(self, intent: Intent, replays: int) -> object:
        rotation = self.database.tokens.rotations.get(intent.connection_id)
        epoch = 0 if rotation is None else rotation.epoch
        granted: object = plain(MemoryCredentialStore.claim_replay)(self, intent, replays)
        if rotation is None or granted is None:
            return granted
        rotation.epoch = epoch
        return epoch


MISTAKES = [
    SettlesWhateverStands,
    SendsAgainByTime,
    ClaimsAReplay,
    ForgetsTheFirstSend,
    CondemnsWithoutProof,
    LeavesTheDeadAlone,
    NumbersAReplayLikeTheFirst,
]


@pytest.mark.slow
@pytest.mark.parametrize("mistake", MISTAKES)
async def test_a_mistake_is_found(still_one: LossyDatabase, mistake: type[MemoryCredentialStore]) -> None:
    assert await Pair(still_one, credentials=mistake).first_difference(range(ENOUGH)) is not None


class ProbesAtWill(MemoryEndpointGate):
    """Everybody probes a breaker whose time is up."""

    @statement
    def admit(self, ask: PermitRequest) -> EndpointPermit | EndpointRefusal:
        for row in self.database.tokens.endpoints.values():
            row.probe_until = None
        answer: EndpointPermit | EndpointRefusal = plain(MemoryEndpointGate.admit)(self, ask)
        return answer


class FillsBeyondTheBurst(MemoryEndpointGate):
    """A bucket that nobody asked for long holds more than its burst."""

    @statement
    def admit(self, ask: PermitRequest) -> EndpointPermit | EndpointRefusal:
        wide = replace(ask, limits=replace(ask.limits, burst=1e9))
        answer: EndpointPermit | EndpointRefusal = plain(MemoryEndpointGate.admit)(self, wide)
        return answer


class CountsAConnectionTwice(MemoryEndpointGate):
    """A connection that fails again counts as another one."""

    @statement
    def record(self, ask: PermitRequest, *more: Any) -> object:
        for row in self.database.tokens.endpoints.values():
            row.failing = ()
        change: object = plain(MemoryEndpointGate.record)(self, ask, *more)
        return change


@pytest.mark.slow
@pytest.mark.parametrize("mistake", [ProbesAtWill, FillsBeyondTheBurst, CountsAConnectionTwice])
async def test_a_mistake_about_endpoints_is_found(
    still_one: LossyDatabase, mistake: type[MemoryEndpointGate]
) -> None:
    assert await Pair(still_one, endpoints=mistake).first_difference(range(ENOUGH)) is not None


async def test_a_difference_is_told_by_the_fewest_steps(still_one: LossyDatabase) -> None:
    pair = Pair(still_one, credentials=SendsAgainByTime)
    difference = await pair.first_difference(range(ENOUGH))
    assert difference is not None
    message = await pair.told(*difference)
    assert message.count("Do(act='claim'") == 2, "one that is sent and one that takes it over"
    assert len(message.splitlines()) < 15
