"""What the gate stores in PostgreSQL: learned limits, and the time of its first use.

Connections that are requested at the same moment are read in one statement.

Spec: G3, R23.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence

from fairlead.adapters.postgres.credential_rows import connection_of, is_asked_for, named_columns
from fairlead.adapters.postgres.database import Database
from fairlead.adapters.postgres.statements import statement
from fairlead.engine.base.batch import Batcher
from fairlead.engine.ports import Connection, ConnectionKey, LearnedLimit, LearnedSlots


class PostgresGateNotes:
    """Implements ``GateNotes``."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._reads: Batcher[ConnectionKey, Connection | None] = Batcher(
            self._read_many, name="gate_connection"
        )

    async def close(self) -> None:
        """Answer pending requests, then accept no more."""
        await self._reads.close()

    async def connection(self, key: ConnectionKey) -> Connection | None:
        return await self._reads(key)

    async def _read_many(self, keys: Sequence[ConnectionKey]) -> list[Connection | None]:
        rows = await self._database.for_tenants(*{key.tenant for key in keys}).fetch(
            statement("gate_connection"), **named_columns(keys)
        )
        connections: list[Connection | None] = [None] * len(keys)
        for row in (row for row in rows if is_asked_for(row, keys)):
            learned = {name: (float(of), float(at)) for name, (of, at) in json.loads(row["observed"]).items()}
            existed_s = math.inf if row["existed_s"] is None else row["existed_s"]
            slots = None if row["slots"] is None else LearnedSlots(int(row["slots"]), row["slots_version"])
            connections[row["ord"] - 1] = connection_of(row, learned, existed_s, slots)
        return connections

    async def save(self, limits: Sequence[LearnedLimit]) -> None:
        await self._database.resolve_doubt(
            lambda: self._database.fetch(
                statement("observed_limit_store"),
                connection_ids=[limit.connection_id for limit in limits],
                limit_names=[limit.limit for limit in limits],
                versions=[limit.version for limit in limits],
                capacities=[limit.capacity for limit in limits],
                per_s=[limit.per_s for limit in limits],
            ),
            within_s=2.0,
        )

    async def record_first_use(self, prefix: str) -> bool:
        # After a commit in doubt the retry finds the first statement's row and returns False, which is safe.
        row = await self._database.resolve_doubt(
            lambda: self._database.first(statement("gate_first_use"), prefix=prefix), within_s=2.0
        )
        return row is not None
