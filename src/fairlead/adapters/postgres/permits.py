"""Permits of token endpoints, each with the INTENT of the refresh that will use it, in one statement.

Permits of one endpoint that are requested at the same moment are taken in one statement. Each app has its own
statement, so that an error or locked rows of one app stop no other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from fairlead.adapters.postgres.database import Database
from fairlead.adapters.postgres.driver import Row
from fairlead.adapters.postgres.postgres_errors import RowLockedError
from fairlead.adapters.postgres.statements import statement
from fairlead.engine.base.batch import Batcher
from fairlead.engine.ports import (
    EndpointKey,
    EndpointLimits,
    EndpointPermit,
    EndpointRefusal,
    Intent,
    PermitRequest,
    permit_from_row,
)

IN_DOUBT_S = 2.0
"""How long a statement that recognises its own effect is retried while a commit is in doubt."""
BUSY = EndpointRefusal(
    "busy", 1.0, "another transaction holds a row of the token endpoint: see pg_blocking_pids()"
)

_Claim = tuple[PermitRequest, Intent | None]
"""One request for a permit, and the INTENT that is committed with it."""
_Group = tuple[EndpointKey, EndpointLimits, str | None]


class GrantedPermit(NamedTuple):
    """A permit and the epoch of the INTENT committed with it (None: lost, or not requested)."""

    permit: EndpointPermit
    epoch: int | None


class Permits:
    """Batched requests for permits."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._requests: Batcher[_Claim, Row | EndpointRefusal] = Batcher(
            self._take_many, name="endpoint_take"
        )

    async def close(self) -> None:
        """Answer pending requests, then accept no more."""
        await self._requests.close()

    async def take(
        self, request: PermitRequest, intent: Intent | None = None
    ) -> GrantedPermit | EndpointRefusal:
        """Return a permit with *intent* committed, or a refusal. A lost claim frees its permit."""
        row = await self._requests((request, intent))
        if isinstance(row, EndpointRefusal):
            return row
        permit = permit_from_row(row, request.limits)
        return permit if isinstance(permit, EndpointRefusal) else GrantedPermit(permit, row["epoch"])

    async def _take_many(self, requests: Sequence[_Claim]) -> list[Row | EndpointRefusal | Exception]:
        answers: list[Row | EndpointRefusal | Exception] = [BUSY] * len(requests)
        apps: dict[tuple[str, str], dict[_Group, list[int]]] = {}
        for index, (request, _) in enumerate(requests):
            groups = apps.setdefault((request.key.provider, request.key.client_id), {})
            groups.setdefault((request.key, request.limits, request.secret_fingerprint), []).append(index)
        await asyncio.gather(*(self._take_of_app(groups, requests, answers) for groups in apps.values()))
        return answers

    async def _take_of_app(
        self,
        groups: Mapping[_Group, list[int]],
        requests: Sequence[_Claim],
        answers: list[Row | EndpointRefusal | Exception],
    ) -> None:
        """Fill in *answers*. If a row is locked, its answer and later ones stay `BUSY` after one wait."""
        for group, indexes in groups.items():
            try:
                rows = await self._take(group, [requests[index] for index in indexes])
            except RowLockedError:
                return
            except Exception as error:  # noqa: BLE001 (only the callers of this app get it)
                for index in indexes:
                    answers[index] = error
            else:
                for index, row in zip(indexes, rows, strict=True):
                    answers[index] = row

    async def _take(self, group: _Group, requests: Sequence[_Claim]) -> Sequence[Row]:
        key, limits, secret_fingerprint = group
        values = {
            **endpoint_names(key),
            **_columns(requests),
            "per_s": limits.per_s,
            "burst": limits.burst,
            "probe_s": limits.probe_s,
            "secret_fingerprint": secret_fingerprint,
        }
        for _ in range(3):
            rows = await self._database.resolve_doubt(
                lambda: self._database.fetch(statement("endpoint_take"), **values), within_s=IN_DOUBT_S
            )
            if rows:
                return rows
            await insert_endpoints(self._database, key, limits, key.rate_key)
        raise RuntimeError("the row of a token endpoint is deleted as soon as it is created")


def _columns(requests: Sequence[_Claim]) -> dict[str, list[object]]:
    intents = [intent for _, intent in requests]
    return {
        "connection_ids": [request.connection_id for request, _ in requests],
        "generations": [
            intent.from_generation if intent else request.generation for request, intent in requests
        ],
        "at_onces": [request.at_once for request, _ in requests],
        "attempt_ids": [intent and intent.attempt_id for intent in intents],
        "session_ids": [intent and intent.session_id for intent in intents],
        "leases_s": [intent and intent.lease_s for intent in intents],
    }


async def insert_endpoints(database: Database, key: EndpointKey, limits: EndpointLimits, *names: str) -> None:
    """Create the rows *names* of an endpoint that are missing."""
    await database.fetch(
        statement("endpoint_insert"), provider=key.provider, names=[*names], burst=limits.burst
    )


def endpoint_names(key: EndpointKey) -> dict[str, str]:
    """Return the names of an endpoint's rows as parameters of its statements."""
    return {"provider": key.provider, "app": key.client_id, "place": key.health_key, "bucket": key.rate_key}
