"""Rate, breaker and pause of token endpoints as rows of PostgreSQL, until the gate exists (R13).

Permits of one endpoint that are asked for at the same moment are taken in one statement.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fairlead.adapters.postgres.driver import Row
from fairlead.adapters.postgres.pool import Database
from fairlead.adapters.postgres.sqlfiles import statement
from fairlead.engine.batch import Batcher
from fairlead.engine.ports import EndpointKey, EndpointLimits, EndpointPermit, EndpointRefusal, Json


@dataclass(frozen=True, slots=True)
class _Ask:
    key: EndpointKey
    limits: EndpointLimits
    secret_fingerprint: str | None


class PostgresEndpointGate:
    """Implements ``EndpointGate``."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._asks: Batcher[_Ask, EndpointPermit | EndpointRefusal] = Batcher(
            self._admit_many, name="endpoint_take"
        )

    async def close(self) -> None:
        """Answer what was asked, then take no more."""
        await self._asks.close()

    async def admit(
        self, key: EndpointKey, limits: EndpointLimits, secret_fingerprint: str | None
    ) -> EndpointPermit | EndpointRefusal:
        return await self._asks(_Ask(key, limits, secret_fingerprint))

    async def _admit_many(self, asks: Sequence[_Ask]) -> list[EndpointPermit | EndpointRefusal]:
        answers: dict[int, EndpointPermit | EndpointRefusal] = {}
        groups: dict[_Ask, list[int]] = {}
        for place, ask in enumerate(asks):
            groups.setdefault(ask, []).append(place)
        for ask, places in groups.items():
            row = await self._take(ask, len(places))
            for turn, place in enumerate(places):
                answers[place] = _answer(row, turn, ask.limits)
        return [answers[place] for place in range(len(asks))]

    async def _take(self, ask: _Ask, want: int) -> Row:
        where = {"provider": ask.key.provider, "client_id": ask.key.client_id}
        for _ in range(3):
            row = await self._database.first(
                statement("endpoint_take"),
                want=want,
                per_s=ask.limits.per_s,
                burst=ask.limits.burst,
                probe_s=ask.limits.probe_s,
                secret_fingerprint=ask.secret_fingerprint,
                **where,
            )
            if row is not None:
                return row
            await self._database.fetch(statement("endpoint_insert"), burst=ask.limits.burst, **where)
        raise RuntimeError("an endpoint's row vanishes as soon as it is made")

    async def record(
        self, key: EndpointKey, limits: EndpointLimits, permit: EndpointPermit, healthy: bool, reason: str
    ) -> float | None:
        if healthy:
            await self._database.fetch(
                statement("endpoint_healthy"), provider=key.provider, client_id=key.client_id
            )
            return None
        row = await self._database.first(
            statement("endpoint_failed"),
            provider=key.provider,
            client_id=key.client_id,
            threshold=limits.breaker_failures,
            open_s=limits.open_s,
            open_max_s=limits.open_max_s,
            probe=permit.probe,
            reason=reason,
        )
        return None if row is None else row["opened_s"]

    async def penalise(self, key: EndpointKey, limits: EndpointLimits, hint_s: float) -> None:
        await self._database.fetch(
            statement("endpoint_penalise"),
            provider=key.provider,
            client_id=key.client_id,
            per_s=limits.per_s,
            hint_s=hint_s,
        )

    async def pause(self, key: EndpointKey, reason: str, secret_fingerprint: str) -> bool:
        row = await self._database.first(
            statement("endpoint_pause"),
            provider=key.provider,
            client_id=key.client_id,
            reason=reason,
            secret_fingerprint=secret_fingerprint,
        )
        return row is not None

    async def resume(self, key: EndpointKey) -> bool:
        row = await self._database.first(
            statement("endpoint_resume"), provider=key.provider, client_id=key.client_id
        )
        return row is not None

    async def search(self) -> list[Mapping[str, Json]]:
        return [dict(row.items()) for row in await self._database.fetch(statement("endpoint_list"))]


def _answer(row: Row, turn: int, limits: EndpointLimits) -> EndpointPermit | EndpointRefusal:
    """What the *turn*-th of a group gets: permits go to the first, the rest is told its own turn."""
    if turn < row["granted"]:
        return EndpointPermit(probe=row["probe"], dirty=row["dirty"])
    reason = row["reason"] or "the token endpoint was ill"
    if row["guard"] == "pause":
        return EndpointRefusal("pause", 60.0, f"paused: {reason}")
    if row["guard"] == "breaker":
        return EndpointRefusal("breaker", max(1.0, row["retry_after_s"] or 1.0), f"breaker open: {reason}")
    missing = turn + 1 - row["level"]
    wait_s = missing / limits.per_s if limits.per_s else 1.0
    return EndpointRefusal("rate", max(wait_s, 0.01), "the token endpoint's rate is used up")
