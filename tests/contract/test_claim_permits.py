"""CredentialStore.claim: the permit of the token endpoint and the INTENT, both or neither (R13)."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from uuid import UUID

from fairlead.engine.ports import (
    Claim,
    EndpointKey,
    EndpointLimits,
    EndpointPermit,
    EndpointRefusal,
    Intent,
    PermitRequest,
)
from fairlead.policy.calls.blast_radius import TOKEN
from tests.contract.credential_steps import KEY, connected, intent, read_credential
from tests.contract.stores import Stores, a_session

ONE_REQUEST = EndpointLimits(per_s=0.001, burst=1.0)
"""One permit, and the next a quarter of an hour later."""


def ask_of(attempt: Intent, limits: EndpointLimits = ONE_REQUEST) -> PermitRequest:
    return PermitRequest(
        EndpointKey("mercadolibre", "app"), limits, attempt.connection_id, attempt.from_generation, "f"
    )


async def two_connections(stores: Stores) -> tuple[Intent, Intent]:
    """Return an intent of each."""
    owner = await a_session(stores)
    first, second = await connected(stores), await connected(stores, KEY._replace(tenant="bolt"))
    return intent(first, owner), intent(second, owner)


async def test_a_claim_takes_a_permit_and_none_where_it_loses(stores: Stores) -> None:
    attempt, other = await two_connections(stores)
    stale = replace(attempt, from_generation=7)
    assert await stores.credentials.claim(stale, ask_of(stale)) is None
    granted = await stores.credentials.claim(attempt, ask_of(attempt))
    assert isinstance(granted, Claim), "the permit of the claim that lost is free"
    assert granted.permit == EndpointPermit()
    refused = await stores.credentials.claim(other, ask_of(other))
    assert isinstance(refused, EndpointRefusal)
    assert refused.by == "rate"


async def test_without_a_permit_nothing_is_claimed(stores: Stores) -> None:
    attempt, other = await two_connections(stores)
    assert isinstance(await stores.endpoints.admit(ask_of(other)), EndpointPermit)
    assert isinstance(await stores.credentials.claim(attempt, ask_of(attempt)), EndpointRefusal)
    assert (await read_credential(stores)).rotation is None
    assert await stores.credentials.mark_sent(attempt.connection_id, attempt.attempt_id) is None


async def test_claims_of_one_moment_share_the_permits_of_their_endpoint(stores: Stores) -> None:
    owner, three = await a_session(stores), replace(ONE_REQUEST, burst=3.0)
    attempts = [
        intent(await connected(stores, KEY._replace(tenant=f"t{number}")), owner) for number in range(6)
    ]
    stale = [replace(attempt, from_generation=7) for attempt in attempts[:2]]
    granted = await asyncio.gather(
        *(stores.credentials.claim(attempt, ask_of(attempt, three)) for attempt in (*attempts[2:], *stale))
    )
    assert sum(isinstance(claim, Claim) for claim in granted) == 3


async def test_the_place_of_a_probe_is_free_again_where_its_claim_loses(stores: Stores) -> None:
    attempt, other = await two_connections(stores)
    limits = EndpointLimits(per_s=None, burst=1.0, breaker_failures=2, open_s=60.0, probe_s=600.0)
    for process_number in range(2):
        failed = replace(ask_of(attempt, limits), connection_id=UUID(int=process_number))
        await stores.endpoints.record(failed, EndpointPermit(), TOKEN["unknown"], "http_500")
    await stores.pass_time(61)
    stale = replace(attempt, from_generation=7)
    assert await stores.credentials.claim(stale, ask_of(stale, limits)) is None
    granted = await stores.credentials.claim(other, ask_of(other, limits))
    assert isinstance(granted, Claim)
    assert granted.permit == EndpointPermit(probe=True, dirty=True)
    refused = await stores.credentials.claim(attempt, ask_of(attempt, limits))
    assert isinstance(refused, EndpointRefusal)
    assert refused.by == "breaker"
