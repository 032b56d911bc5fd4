"""What a server says of itself, for `fairlead doctor`: asked over one connection, judged by the caller."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import cast

import asyncpg

from fairlead.adapters.postgres.connection_setup import (
    ENCODING,
    ENCODING_HINT,
    MIN_VERSION,
    DatabaseSettings,
    connect_options,
)
from fairlead.adapters.postgres.driver import DatabaseConnection
from fairlead.adapters.postgres.postgres_errors import CONNECT_ERRORS, no_connection
from fairlead.adapters.postgres.roles import COMMON
from fairlead.adapters.postgres.row_security import RowSecurityState, wall_state
from fairlead.adapters.postgres.statements import statement

__all__ = ["ENCODING", "ENCODING_HINT", "MIN_VERSION", "PostgresInfo", "RowSecurityState", "server_facts"]

_TRIES = 3


@dataclass(frozen=True, slots=True)
class PostgresInfo:
    """One look at a server. Times in seconds."""

    version: int
    """As PostgreSQL numbers itself: 180004 is 18.4."""
    synchronous_commit: str
    isolation: str
    is_engine: bool | None
    """Whether this user has the rights of *engine_role*; None: there are no tables yet."""
    wall: RowSecurityState
    """What is there of the second wall between tenants, for this user."""
    skew_s: float
    """How far this host's clock is behind the server's; negative: ahead."""
    doubt_s: float
    """The skew may be off by this much: half of the round trip it was measured over."""
    snapshot_s: float = 0.0
    """How long the oldest snapshot is snapshot that keeps dead rows from being removed; 0.0 without one."""
    snapshot_of: str = ""
    """The holder of that snapshot."""
    behind: int = 0
    """How many transactions the stand-by or the slot is behind that keeps the oldest rows; 0 without one."""
    behind_of: str = ""
    """Which it is."""
    unseen: bool = False
    """Whether this user may not see the snapshots of some sessions."""
    encoding: str = ENCODING
    """Of the database's text; default UTF8, the only one that fairlead works on."""
    engine_role: str = COMMON.engine
    """The role that sees all tenants."""
    creators: str = ""
    """Roles that may create objects where sessions look for names, and should not; empty: none."""
    revokes: str = ""
    """The SQL that takes that right from them."""
    user: str = ""
    """This user, as SQL writes it."""

    @property
    def major(self) -> int:
        """18 of 18.4."""
        return self.version // 10_000


async def server_facts(settings: DatabaseSettings) -> PostgresInfo:
    """Ask the server; DependencyUnavailableError or InvalidConfigError if it does not answer."""
    try:
        connection = cast(DatabaseConnection, await asyncpg.connect(**connect_options(settings)))
        try:
            check = statement("server_check")
            facts = (await connection.fetch(check.text, *check.args(schema=settings.in_schema)))[0]
            wall = await wall_state(connection, settings.in_schema)
            skew_s, doubt_s = min([await _skew(connection) for _ in range(_TRIES)], key=lambda skew: skew[1])
            snapshot = (await connection.fetch(statement("snapshot_oldest").text))[0]
        finally:
            connection.terminate()
    except CONNECT_ERRORS as error:
        no_connection(error)
    return PostgresInfo(
        version=facts["version"],
        synchronous_commit=facts["synchronous_commit"],
        isolation=facts["isolation"],
        is_engine=facts["engine"],
        wall=wall,
        skew_s=skew_s,
        doubt_s=doubt_s,
        snapshot_s=snapshot["held_s"] or 0.0,
        snapshot_of=snapshot["holder"] or "",
        behind=snapshot["behind"] or 0,
        behind_of=snapshot["replica"] or "",
        unseen=snapshot["unseen"],
        encoding=facts["encoding"],
        engine_role=facts["engine_role"] or COMMON.engine,
        creators=facts["creators"],
        revokes=facts["revokes"],
        user=facts["me"],
    )


async def _skew(connection: DatabaseConnection) -> tuple[float, float]:
    sent_at = time.time()
    row = (await connection.fetch(statement("server_clock").text))[0]
    received_at = time.time()
    return row["now"].timestamp() - (sent_at + received_at) / 2, (received_at - sent_at) / 2
