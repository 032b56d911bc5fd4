"""Rate, breaker and pause of token endpoints and the back-off of connections, as rows of PostgreSQL.

Spec: R13, R50.

Permits of one endpoint that are asked for at the same moment are taken in one statement.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fairlead.adapters.postgres.driver import Row
from fairlead.adapters.postgres.pool import Database
from fairlead.adapters.postgres.sqlfiles import statement
from fairlead.engine.batch import Batcher
from fairlead.engine.ports import (
    EndpointAsk,
    EndpointChange,
    EndpointKey,
    EndpointLimits,
    EndpointPermit,
    EndpointRefusal,
    Json,
)
from fairlead.policy.blast_radius import NEVER_SENT, Reach, Shared

PAUSE_LOOK_S = 60.0
"""When a connection asks again at the latest whose app is paused: the pause may be lifted by then."""

_Group = tuple[EndpointKey, EndpointLimits, str | None]


class PostgresEndpointGate:
    """Implements ``EndpointGate``."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._asks: Batcher[EndpointAsk, EndpointPermit | EndpointRefusal] = Batcher(
            self._admit_many, name="endpoint_take"
        )

    async def close(self) -> None:
        """Answer what was asked, then take no more."""
        await self._asks.close()

    async def admit(self, ask: EndpointAsk) -> EndpointPermit | EndpointRefusal:
        return await self._asks(ask)

    async def _admit_many(self, asks: Sequence[EndpointAsk]) -> list[EndpointPermit | EndpointRefusal]:
        answers: dict[int, EndpointPermit | EndpointRefusal] = {}
        groups: dict[_Group, list[int]] = {}
        for index, ask in enumerate(asks):
            groups.setdefault((ask.key, ask.limits, ask.secret_fingerprint), []).append(index)
        for group, indexes in groups.items():
            rows = await self._take(group, [asks[index] for index in indexes])
            answers |= {index: _answer(row, group[1]) for index, row in zip(indexes, rows, strict=True)}
        return [answers[index] for index in range(len(asks))]

    async def _take(self, group: _Group, asks: Sequence[EndpointAsk]) -> Sequence[Row]:
        key, limits, secret_fingerprint = group
        for _ in range(3):
            rows = await self._database.fetch(
                statement("endpoint_take"),
                **_names(key),
                connection_ids=[ask.connection_id for ask in asks],
                generations=[ask.generation for ask in asks],
                per_s=limits.per_s,
                burst=limits.burst,
                probe_s=limits.probe_s,
                secret_fingerprint=secret_fingerprint,
            )
            if rows:
                return rows
            await self._insert(key, limits, key.bucket)
        raise RuntimeError("an endpoint's row vanishes as soon as it is made")

    async def _insert(self, key: EndpointKey, limits: EndpointLimits, *names: str) -> None:
        await self._database.fetch(
            statement("endpoint_insert"), provider=key.provider, names=[*names], burst=limits.burst
        )

    async def record(
        self, ask: EndpointAsk, permit: EndpointPermit, reach: Reach, reason: str, hint_s: float = 0.0
    ) -> EndpointChange | None:
        if reach.backs_off:
            await self._back_off(ask, reason, hint_s)
        if Shared.HOST in reach.lifts and (permit.dirty or permit.probe):
            await self._database.fetch(
                statement("endpoint_healthy"),
                **_names(ask.key),
                granted=Shared.APP in reach.lifts,
                secret_fingerprint=ask.secret_fingerprint,
            )
        match reach.shared:
            case Shared.HOST:
                return await self._failed(ask, permit, reason)
            case Shared.RATE:
                await self._limited(ask, hint_s)
            case Shared.APP if ask.secret_fingerprint is not None:
                return await self._refused(ask, reason)
            case _ if reach == NEVER_SENT:
                await self._database.fetch(
                    statement("endpoint_give_back"), **_names(ask.key), probe=permit.probe
                )
        return None

    async def _back_off(self, ask: EndpointAsk, reason: str, hint_s: float) -> None:
        await self._database.fetch(
            statement("refresh_back_off"),
            connection_id=ask.connection_id,
            generation=ask.generation,
            first_s=ask.limits.backoff_s,
            most_s=ask.limits.open_s,
            hint_s=hint_s,
            reason=reason,
        )

    async def _failed(self, ask: EndpointAsk, permit: EndpointPermit, reason: str) -> EndpointChange | None:
        key, limits = ask.key, ask.limits
        for _ in range(2):
            row = await self._database.first(
                statement("endpoint_failed"),
                provider=key.provider,
                place=key.place,
                connection_id=ask.connection_id,
                threshold=limits.breaker_failures,
                open_s=limits.open_s,
                open_max_s=limits.open_max_s,
                probe=permit.probe,
                reason=reason,
            )
            if row is not None:
                opened_s = row["opened_s"]
                return None if opened_s is None else EndpointChange(key.place, "open", opened_s)
            await self._insert(key, limits, key.place)
        return None

    async def _limited(self, ask: EndpointAsk, hint_s: float) -> None:
        await self._database.fetch(
            statement("endpoint_penalise"),
            provider=ask.key.provider,
            bucket=ask.key.bucket,
            connection_id=ask.connection_id,
            per_s=ask.limits.per_s,
            hint_s=hint_s,
        )

    async def _refused(self, ask: EndpointAsk, reason: str) -> EndpointChange | None:
        await self._insert(ask.key, ask.limits, ask.key.client_id, ask.key.place)
        row = await self._database.first(
            statement("endpoint_pause"),
            provider=ask.key.provider,
            app=ask.key.client_id,
            place=ask.key.place,
            host=ask.key.host,
            connection_id=ask.connection_id,
            secret_fingerprint=ask.secret_fingerprint,
            reason=reason,
            look_s=ask.limits.open_max_s,
        )
        return row if row is None else EndpointChange(row["client_id"], "paused", row["for_s"], row["news"])

    async def resume(self, key: EndpointKey) -> bool:
        row = await self._database.first(
            statement("endpoint_resume"), provider=key.provider, client_id=key.place
        )
        return row is not None

    async def search(self) -> list[Mapping[str, Json]]:
        return [dict(row.items()) for row in await self._database.fetch(statement("endpoint_list"))]

    async def prune(self, older_than_s: float) -> int:
        (row,) = await self._database.fetch(statement("endpoint_prune"), older_than_s=older_than_s)
        return int(row["deleted"])


def _names(key: EndpointKey) -> dict[str, str]:
    return {"provider": key.provider, "app": key.client_id, "place": key.place, "bucket": key.bucket}


def _answer(row: Row, limits: EndpointLimits) -> EndpointPermit | EndpointRefusal:
    """What one ask of a group gets: permits go to the first, the rest is told its own turn."""
    if row["held_s"] is not None:
        return EndpointRefusal("connection", row["held_s"], f"its last refresh failed: {row['reason']}")
    if row["turn"] < row["granted"]:
        return EndpointPermit(probe=row["probe"], dirty=row["dirty"])
    reason = row["reason"] or "the token endpoint was ill"
    if row["guard"] == "pause":
        return EndpointRefusal(
            "pause", min(PAUSE_LOOK_S, max(1.0, row["retry_after_s"] or 1.0)), f"paused: {reason}"
        )
    if row["guard"] == "breaker":
        return EndpointRefusal("breaker", max(1.0, row["retry_after_s"] or 1.0), f"breaker open: {reason}")
    missing = row["turn"] + 1 - row["level"]
    wait_s = missing / limits.per_s if limits.per_s else 1.0
    return EndpointRefusal("rate", max(wait_s, 0.01), "the token endpoint's rate is used up")
