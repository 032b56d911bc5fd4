"""Rate and probe of a token endpoint are the fleet's; else see tests/contract/test_endpoint_gate.py (R13)."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from uuid import UUID

import pytest

from fairlead.adapters.postgres.endpoints import PostgresEndpointGate
from fairlead.adapters.postgres.permits import insert_endpoints
from fairlead.adapters.postgres.statements import Statement
from fairlead.engine.ports import EndpointKey, EndpointLimits, EndpointPermit, EndpointRefusal, PermitRequest
from fairlead.policy.calls.blast_radius import TOKEN
from tests.support.raw_connections import raw_connection
from tests.support.rows import rows, run

KEY = EndpointKey("mercadolibre", "app", "host")
UNLIMITED = EndpointLimits(per_s=None, burst=1.0, breaker_failures=3)
LOCK = Statement("lock", "SELECT FROM endpoint_gate WHERE provider = 'mercadolibre' FOR UPDATE", ())
TEN = EndpointLimits(per_s=0.001, burst=10.0)
LATE_GATES = """
CREATE FUNCTION endpoint_gate_lock(of_provider text, names text[]) RETURNS SETOF endpoint_gate
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(4711);
    RETURN QUERY SELECT * FROM endpoint_gates_now(of_provider, names);
END $$"""
"""Reads the rows later than the statement that calls it began: as if another process ran in between."""


def ask(number: int = 0, limits: EndpointLimits = UNLIMITED) -> PermitRequest:
    return PermitRequest(KEY, limits, UUID(int=number), 1, "f")


@pytest.fixture
async def gates(database):
    gates = [PostgresEndpointGate(database) for _ in range(4)]
    yield gates
    for gate in gates:
        await gate.close()


async def test_the_fleet_shares_one_bucket_exactly(gates) -> None:
    answers = await asyncio.gather(*(gate.admit(ask(0, TEN)) for gate in gates for _ in range(25)))
    refused = [answer for answer in answers if isinstance(answer, EndpointRefusal)]
    assert len(answers) - len(refused) == 10
    assert {answer.by for answer in refused} == {"rate"}
    assert all(answer.retry_after_s > 0 for answer in refused)


async def test_a_row_that_is_newer_than_the_statement_gives_no_permit_for_nothing(gates, database) -> None:
    await run(database, "ALTER FUNCTION endpoint_gate_lock RENAME TO endpoint_gates_now")
    await run(database, LATE_GATES)
    async with raw_connection(database) as holder:
        await holder.fetch("SELECT pg_advisory_lock(4711)")
        task = asyncio.create_task(gates[0].admit(ask(0, TEN)))
        while not await holder.fetch("SELECT FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"):
            await asyncio.sleep(0)
        await insert_endpoints(database, KEY, TEN, KEY.rate_key)
        await holder.fetch("SELECT pg_advisory_unlock(4711)")
    assert isinstance(await task, EndpointPermit)
    (gate,) = await rows(database, "SELECT permits FROM endpoint_gate WHERE client_id = $1", KEY.rate_key)
    assert gate["permits"] == pytest.approx(9, abs=0.1)


async def test_waiters_are_told_their_own_turn(gates) -> None:
    slow = EndpointLimits(per_s=10.0, burst=1.0)
    await gates[0].admit(ask(0, slow))
    answers = await asyncio.gather(*(gates[0].admit(ask(0, slow)) for _ in range(20)))
    waits = [answer.retry_after_s for answer in answers if isinstance(answer, EndpointRefusal)]
    assert len(waits) >= 15
    assert max(waits) > 1.0, "twenty waiters at ten a second do not all return at once"


async def test_of_all_processes_one_probes(gates, database) -> None:
    for number in range(3):
        await gates[number].admit(ask(number))
        await gates[number].record(ask(number), EndpointPermit(), TOKEN["unknown"], "http_500")
    await run(database, "UPDATE endpoint_gate SET open_until = now()")
    answers = await asyncio.gather(*(gate.admit(ask(9)) for gate in gates for _ in range(5)))
    probes = [answer for answer in answers if isinstance(answer, EndpointPermit)]
    assert probes == [EndpointPermit(probe=True, dirty=True)]


async def test_a_locked_row_holds_up_no_other_provider(gates, database) -> None:
    other = replace(ask(), key=EndpointKey("xero", "app"))
    for request in (ask(), other):
        await gates[0].admit(request)
    async with asyncio.timeout(5), database.transaction() as holder:
        await holder.fetch(LOCK)
        answers = await asyncio.gather(*(gates[0].admit(request) for request in (ask(1), other, ask(2))))
        assert [type(answer) for answer in answers] == [EndpointRefusal, EndpointPermit, EndpointRefusal]
        assert answers[0].by == answers[2].by == "busy"
    assert isinstance(await gates[0].admit(ask(1)), EndpointPermit)


async def test_breaker_and_rate_of_a_removed_connection_are_gone_with_it(gates, database) -> None:
    await run(
        database,
        "INSERT INTO connection (connection_id, tenant_id, provider, account, client_id)"
        " VALUES ($1, 't', 'p', 'b', 'app')",
        UUID(int=7),
    )
    assert isinstance(await gates[0].admit(ask(7)), EndpointPermit)
    await gates[0].record(ask(7), EndpointPermit(), TOKEN["unknown"], "http_500")
    assert (await gates[1].admit(ask(7))).by == "connection"
    await run(database, "DELETE FROM connection")
    assert isinstance(await gates[1].admit(ask(7)), EndpointPermit)
