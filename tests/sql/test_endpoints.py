"""Rate, breaker and pause of a token endpoint, shared by all processes (R13)."""

from __future__ import annotations

import asyncio

import pytest

from fairlead.adapters.postgres.endpoints import PostgresEndpointGate
from fairlead.engine.ports import EndpointKey, EndpointLimits, EndpointPermit, EndpointRefusal
from tests.support.rows import run

KEY = EndpointKey("mercadolibre", "app")
UNLIMITED = EndpointLimits(per_s=None, burst=1.0, breaker_failures=3)
TEN = EndpointLimits(per_s=0.001, burst=10.0)


@pytest.fixture
async def gates(database):
    made = [PostgresEndpointGate(database) for _ in range(4)]
    yield made
    for gate in made:
        await gate.close()


async def test_the_fleet_shares_one_bucket_exactly(gates) -> None:
    answers = await asyncio.gather(*(gate.admit(KEY, TEN, "f") for gate in gates for _ in range(25)))
    refused = [answer for answer in answers if isinstance(answer, EndpointRefusal)]
    assert len(answers) - len(refused) == 10
    assert {answer.by for answer in refused} == {"rate"}
    assert all(answer.retry_after_s > 0 for answer in refused)


async def test_waiters_are_told_their_own_turn(gates) -> None:
    slow = EndpointLimits(per_s=10.0, burst=1.0)
    await gates[0].admit(KEY, slow, "f")
    answers = await asyncio.gather(*(gates[0].admit(KEY, slow, "f") for _ in range(20)))
    waits = [answer.retry_after_s for answer in answers if isinstance(answer, EndpointRefusal)]
    assert len(waits) >= 15
    assert max(waits) > 1.0, "twenty waiters at ten a second do not all return at once"


async def test_enough_failures_open_the_breaker_once(gates) -> None:
    permit = await gates[0].admit(KEY, UNLIMITED, "f")
    assert permit == EndpointPermit()
    opened = [await gates[0].record(KEY, UNLIMITED, EndpointPermit(), False, "http_500") for _ in range(5)]
    assert [value is not None for value in opened] == [False, False, True, False, False]
    answer = await gates[1].admit(KEY, UNLIMITED, "f")
    assert isinstance(answer, EndpointRefusal)
    assert (answer.by, answer.retry_after_s > 50) == ("breaker", True)


async def test_one_probe_in_the_fleet_and_its_word_counts(gates, database) -> None:
    for _ in range(3):
        await gates[0].admit(KEY, UNLIMITED, "f")
        await gates[0].record(KEY, UNLIMITED, EndpointPermit(), False, "http_500")
    await run(database, "UPDATE endpoint_gate SET open_until = now()")
    answers = await asyncio.gather(*(gate.admit(KEY, UNLIMITED, "f") for gate in gates for _ in range(5)))
    probes = [answer for answer in answers if isinstance(answer, EndpointPermit)]
    assert probes == [EndpointPermit(probe=True, dirty=True)]
    again_s = await gates[0].record(KEY, UNLIMITED, probes[0], False, "http_500")
    assert again_s is not None
    assert again_s > 100, "twice as long"
    await run(database, "UPDATE endpoint_gate SET open_until = now(), probe_until = NULL")
    probe = await gates[0].admit(KEY, UNLIMITED, "f")
    assert isinstance(probe, EndpointPermit)
    await gates[0].record(KEY, UNLIMITED, probe, True, "")
    assert await gates[1].admit(KEY, UNLIMITED, "f") == EndpointPermit()


async def test_a_pause_is_for_the_secret_that_was_refused(gates) -> None:
    assert await gates[0].pause(KEY, "invalid_client", "f1")
    assert not await gates[1].pause(KEY, "invalid_client", "f1"), "told once"
    refused = await gates[2].admit(KEY, UNLIMITED, "f1")
    assert isinstance(refused, EndpointRefusal)
    assert refused.by == "pause"
    assert isinstance(await gates[2].admit(KEY, UNLIMITED, "f2"), EndpointPermit)
    await gates[0].pause(KEY, "invalid_client", "f1")
    assert await gates[3].resume(KEY)
    assert isinstance(await gates[2].admit(KEY, UNLIMITED, "f1"), EndpointPermit)
    assert [row["state"] for row in await gates[0].search()] == ["closed"]
