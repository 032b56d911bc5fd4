"""Rate, breaker and pause of token endpoints and the back-off of connections, as rows in PostgreSQL.

Spec: R13, R50.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from uuid import UUID

from fairlead.adapters.postgres.database import Database
from fairlead.adapters.postgres.driver import Row
from fairlead.adapters.postgres.permits import Permits, endpoint_names, insert_endpoints
from fairlead.adapters.postgres.statements import Statement, statement
from fairlead.engine.ports import (
    EndpointChange,
    EndpointKey,
    EndpointPermit,
    EndpointRefusal,
    Json,
    PermitRequest,
)
from fairlead.policy.calls.blast_radius import GRANTED, NEVER_SENT, OWN_FAULT, Reach, Shared


class PostgresEndpointGate:
    """Implements ``EndpointGate``."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._permits = Permits(database)

    async def close(self) -> None:
        """Answer pending requests, then accept no more."""
        await self._permits.close()

    async def admit(self, request: PermitRequest) -> EndpointPermit | EndpointRefusal:
        granted = await self._permits.take(request)
        return granted if isinstance(granted, EndpointRefusal) else granted.permit

    async def record(
        self, request: PermitRequest, permit: EndpointPermit, reach: Reach, reason: str, hint_s: float = 0.0
    ) -> EndpointChange | None:
        if reach == GRANTED and not (permit.dirty or permit.probe):
            return None  # a success changes nothing if nothing was closed
        return await self._write(request, permit, reach, reason, hint_s)

    async def _write(
        self, request: PermitRequest, permit: EndpointPermit, reach: Reach, reason: str, hint_s: float
    ) -> EndpointChange | None:
        run = partial(self._run, {**_parameters(request, permit, reach), "reason": reason, "hint_s": hint_s})
        key, limits = request.key, request.limits
        change: EndpointChange | None = None
        if reach.backs_off:
            await run(statement("refresh_back_off"))
        if Shared.HOST in reach.lifts and (permit.dirty or permit.probe):
            row = await run(statement("endpoint_healthy"))
            change = None if row is None else EndpointChange(row["client_id"], "closed")
        match reach.shared:
            case Shared.HOST:
                row = await run(statement("endpoint_failed"))
                if row is None:
                    await insert_endpoints(self._database, key, limits, key.health_key)
                    row = await run(statement("endpoint_failed"))
                if row is not None and row["opened_s"] is not None:
                    said_by = tuple(reporter.partition(" ")[0] for reporter in row["said_by"])
                    return EndpointChange(key.health_key, "open", row["opened_s"], said_by=said_by)
            case Shared.RATE:
                await run(statement("endpoint_penalise"))
            case Shared.APP if request.secret_fingerprint is not None:
                await insert_endpoints(self._database, key, limits, key.client_id, key.health_key)
                if (row := await run(statement("endpoint_pause"))) is not None:
                    said_by = tuple(reporter.partition(" ")[2] for reporter in row["said_by"])
                    return EndpointChange(row["client_id"], "paused", row["for_s"], row["news"], said_by)
            case _ if reach in (NEVER_SENT, OWN_FAULT):
                await run(statement("endpoint_give_back"))
        return change

    async def _run(self, parameters: Mapping[str, object], change: Statement) -> Row | None:
        return await self._database.first(change, **{name: parameters[name] for name in change.params})

    async def resume(self, key: EndpointKey) -> bool:
        row = await self._database.first(
            statement("endpoint_resume"), provider=key.provider, client_id=key.health_key
        )
        return row is not None

    async def backoff(self, connection_id: UUID, generation: int) -> Mapping[str, Json]:
        row = await self._database.first(
            statement("endpoint_backoff"), connection_id=connection_id, generation=generation
        )
        return {} if row is None else dict(row.items())

    async def search(self) -> list[Mapping[str, Json]]:
        return [dict(row.items()) for row in await self._database.fetch(statement("endpoint_list"))]

    async def prune(self, older_than_s: float) -> int:
        (row,) = await self._database.fetch(statement("endpoint_prune"), older_than_s=older_than_s)
        return int(row["deleted"])


def _parameters(request: PermitRequest, permit: EndpointPermit, reach: Reach) -> dict[str, object]:
    """Return the parameters, by name, of the statements about one permitted request."""
    limits = request.limits
    return {
        **endpoint_names(request.key),
        "host": request.key.host,
        "connection_id": request.connection_id,
        "generation": request.generation,
        "session_id": request.session_id if reach.by_process else None,
        "secret_fingerprint": request.secret_fingerprint,
        "probe": permit.probe,
        "granted": Shared.APP in reach.lifts,
        "threshold": limits.breaker_failures,
        "per_s": limits.per_s,
        "burst": limits.burst,
        "first_s": limits.backoff_s,
        "open_s": limits.open_s,
        "open_max_s": limits.open_max_s,
    }
