"""Rate, breaker and pause of token endpoints and the back-off of connections, as rows of PostgreSQL.

Spec: R13, R50.

Permits of one endpoint that are asked for at the same moment are taken in one statement. Each app is asked
for by itself: what fails one of them, or holds its rows, stops no other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from functools import partial
from uuid import UUID

from fairlead.adapters.postgres.driver import Row
from fairlead.adapters.postgres.failures import RowLocked
from fairlead.adapters.postgres.pool import Database
from fairlead.adapters.postgres.sqlfiles import Statement, statement
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
from fairlead.engine.ports.sending import endpoint_answer
from fairlead.policy.blast_radius import NEVER_SENT, Reach, Shared

BUSY = EndpointRefusal(
    "busy", 1.0, "another transaction holds a row of the token endpoint: see pg_blocking_pids()"
)

_Answer = EndpointPermit | EndpointRefusal
_Group = tuple[EndpointKey, EndpointLimits, str | None]


class PostgresEndpointGate:
    """Implements ``EndpointGate``."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._asks: Batcher[EndpointAsk, _Answer] = Batcher(self._admit_many, name="endpoint_take")

    async def close(self) -> None:
        """Answer what was asked, then take no more."""
        await self._asks.close()

    async def admit(self, ask: EndpointAsk) -> _Answer:
        return await self._asks(ask)

    async def _admit_many(self, asks: Sequence[EndpointAsk]) -> list[_Answer | Exception]:
        answers: list[_Answer | Exception] = [BUSY] * len(asks)
        apps: dict[tuple[str, str], dict[_Group, list[int]]] = {}
        for index, ask in enumerate(asks):
            groups = apps.setdefault((ask.key.provider, ask.key.client_id), {})
            groups.setdefault((ask.key, ask.limits, ask.secret_fingerprint), []).append(index)
        await asyncio.gather(*(self._admit_app(groups, asks, answers) for groups in apps.values()))
        return answers

    async def _admit_app(
        self,
        groups: Mapping[_Group, list[int]],
        asks: Sequence[EndpointAsk],
        answers: list[_Answer | Exception],
    ) -> None:
        """Fill in *answers*. Where a row is locked, it and those that follow stay `BUSY`, after one wait."""
        for group, indexes in groups.items():
            try:
                rows = await self._take(group, [asks[index] for index in indexes])
            except RowLocked:
                return
            except Exception as error:  # noqa: BLE001 (it is its askers' to handle, and nobody else's)
                for index in indexes:
                    answers[index] = error
            else:
                for index, row in zip(indexes, rows, strict=True):
                    answers[index] = endpoint_answer(row, group[1])

    async def _take(self, group: _Group, asks: Sequence[EndpointAsk]) -> Sequence[Row]:
        key, limits, secret_fingerprint = group
        for _ in range(3):
            rows = await self._database.fetch(
                statement("endpoint_take"),
                **_names(key),
                connection_ids=[ask.connection_id for ask in asks],
                generations=[None if ask.at_once else ask.generation for ask in asks],
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
        run = partial(self._run, {**_facts(ask, permit, reach), "reason": reason, "hint_s": hint_s})
        key, limits = ask.key, ask.limits
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
                    await self._insert(key, limits, key.place)
                    row = await run(statement("endpoint_failed"))
                if row is not None and row["opened_s"] is not None:
                    said_by = tuple(said.partition(" ")[0] for said in row["said_by"])
                    return EndpointChange(key.place, "open", row["opened_s"], said_by=said_by)
            case Shared.RATE:
                await run(statement("endpoint_penalise"))
            case Shared.APP if ask.secret_fingerprint is not None:
                await self._insert(key, limits, key.client_id, key.place)
                if (row := await run(statement("endpoint_pause"))) is not None:
                    said_by = tuple(said.partition(" ")[2] for said in row["said_by"])
                    return EndpointChange(row["client_id"], "paused", row["for_s"], row["news"], said_by)
            case _ if reach == NEVER_SENT:
                await run(statement("endpoint_give_back"))
        return change

    async def _run(self, facts: Mapping[str, object], wanted: Statement) -> Row | None:
        return await self._database.first(wanted, **{name: facts[name] for name in wanted.params})

    async def resume(self, key: EndpointKey) -> bool:
        row = await self._database.first(
            statement("endpoint_resume"), provider=key.provider, client_id=key.place
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


def _names(key: EndpointKey) -> dict[str, str]:
    return {"provider": key.provider, "app": key.client_id, "place": key.place, "bucket": key.bucket}


def _facts(ask: EndpointAsk, permit: EndpointPermit, reach: Reach) -> dict[str, object]:
    """What the statements about one permitted request may take, by name."""
    limits = ask.limits
    return {
        **_names(ask.key),
        "host": ask.key.host,
        "connection_id": ask.connection_id,
        "generation": ask.generation,
        "session_id": ask.session_id if reach.by_process else None,
        "secret_fingerprint": ask.secret_fingerprint,
        "probe": permit.probe,
        "granted": Shared.APP in reach.lifts,
        "threshold": limits.breaker_failures,
        "per_s": limits.per_s,
        "burst": limits.burst,
        "first_s": limits.backoff_s,
        "open_s": limits.open_s,
        "open_max_s": limits.open_max_s,
    }
