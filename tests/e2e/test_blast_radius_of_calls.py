"""Whom a failed call stops, row by row of the table: its own connection, on real stores (R50)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from fairlead import Fairlead
from fairlead.adapters.embedded import Endpoints
from fairlead.adapters.postgres.connection_setup import DatabaseSettings
from fairlead.errors import FairleadError, LimitExceededError
from fairlead.policy.calls.blast_radius import CALL, LocalReach
from fairlead.policy.calls.classify.verdict import LimitScope
from fairlead.policy.failures.category import Category
from fairlead.policy.limits.breaker import DestinationHealth
from fairlead.testing.api.raw import OK, RawConnection, RawServer
from tests.e2e.test_client import fairlead_for


def spoilt(status: str, *headers: str, body: str = "{}") -> bytes:
    head = "\r\n".join((f"HTTP/1.1 {status}", "Content-Type: application/json", *headers))
    return f"{head}\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode()


RESPONSES: dict[Category | LimitScope | DestinationHealth, bytes | None] = {
    Category.TRANSIENT_NETWORK: spoilt("408 Request Timeout"),
    Category.TRANSIENT_RATE_LIMIT: spoilt("429 Too Many Requests", "Retry-After: 900"),
    Category.TRANSIENT_SERVER: spoilt("502 Bad Gateway"),
    Category.PERMANENT_AUTH: spoilt("401 Unauthorized"),
    Category.PERMANENT_CONFIG: spoilt("400 Bad Request"),
    Category.PERMANENT_PERMISSION: spoilt("403 Forbidden"),
    Category.PERMANENT_REQUEST: spoilt("404 Not Found"),
    LimitScope.CONNECTION: spoilt("429 Too Many Requests", "Retry-After: 900"),
    LimitScope.DAY: spoilt("429 Too Many Requests", "Retry-After: 80000"),
    LimitScope.ENDPOINT: spoilt("429 Too Many Requests", "Stripe-Rate-Limited-Reason: endpoint-rate"),
    LimitScope.OBJECT: spoilt("429 Too Many Requests", body='{"error":{"code":"lock_timeout"}}'),
    DestinationHealth.NEUTRAL: None,
    DestinationHealth.HEALTHY: OK,
    DestinationHealth.RESPONDING: OK,  # said on the way, while the body of a good response still comes
    DestinationHealth.UNHEALTHY: spoilt("500 Internal Server Error"),
}


async def call(fairlead: Fairlead, tenant: str) -> FairleadError | None:
    try:
        async with fairlead.client(tenant, "stripe") as api:
            await api.post("/charges", data={"amount": "1"}, wait_s=1.0, deadline_s=5.0)
    except FairleadError as error:
        return error
    return None


@asynccontextmanager
async def vendor(rude: bytes | None) -> AsyncIterator[RawServer]:
    """One that answers *rude* (None: not at all) to one key, and well to all others."""

    async def script(connection: RawConnection) -> None:
        while (request := await connection.request()) is not None:
            if b"sk_test_rude" in request and rude is None:
                connection.hang_up()
            else:
                await connection.send(rude if rude and b"sk_test_rude" in request else OK)

    async with RawServer(script) as server:
        yield server


async def connected(fairlead: Fairlead) -> None:
    for tenant in ("rude", "well"):
        breaker_settings = {"breaker_failures": 3}
        await fairlead.connections.upsert(
            tenant, "stripe", api_key=f"sk_test_{tenant}", settings=breaker_settings
        )


@pytest.mark.parametrize("row", RESPONSES, ids=str)
async def test_a_call_stops_no_other_connection(
    servers: Endpoints,
    database_settings: DatabaseSettings,
    tmp_path: Path,
    row: Category | LimitScope | DestinationHealth,
) -> None:
    # one connection's host is every connection's; no response is an error of a handler
    assert set(RESPONSES) == set(CALL) - {DestinationHealth.UNREACHED, Category.HANDLER_ERROR}
    async with (
        vendor(RESPONSES[row]) as server,
        fairlead_for(server.url, servers, database_settings, tmp_path) as fl,
    ):
        await connected(fl)
        errors = [await call(fl, "rude") for _ in range(5)]
        assert await call(fl, "well") is None
        closed = CALL[row].local in (LocalReach.LIMIT, LocalReach.ROUTE)
        assert not closed or isinstance(errors[-1], LimitExceededError), errors


async def test_redis_that_does_not_answer_stops_no_call(
    servers: Endpoints, database_settings: DatabaseSettings, tmp_path: Path
) -> None:
    nowhere = replace(servers, redis_url="redis://127.0.0.1:1/0")
    async with vendor(OK) as server, fairlead_for(server.url, nowhere, database_settings, tmp_path) as fl:
        await connected(fl)
        assert [await call(fl, tenant) for tenant in ("rude", "well")] == [None, None]
