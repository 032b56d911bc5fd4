"""What the planner does with our statements, on tables that are not small."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from fairlead.adapters.postgres.database import Database
from fairlead.adapters.postgres.statements import statement
from tests.support.raw_connections import raw_connection

EXPLAIN = "EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) "
TOUCHED = (
    "SELECT relname::text AS table, seq_tup_read + coalesce(idx_tup_fetch, 0) AS rows, seq_scan"
    " FROM pg_stat_xact_user_tables"
)


@dataclass(frozen=True, slots=True)
class Plan:
    """A plan as it was carried out."""

    tree: dict[str, Any]

    def nodes(self) -> Iterator[dict[str, Any]]:
        """Yield every node of the plan."""
        todo = [self.tree]
        while todo:
            node = todo.pop()
            yield node
            todo.extend(node.get("Plans", ()))

    @property
    def rows(self) -> int:
        """Rows it gave."""
        return int(self.tree["Actual Rows"])

    @property
    def buffers(self) -> int:
        """Pages looked at."""
        return int(self.tree["Shared Hit Blocks"] + self.tree["Shared Read Blocks"])

    def scanned_whole(self) -> set[str]:
        """Return the tables that were scanned completely."""
        return {node["Relation Name"] for node in self.nodes() if node["Node Type"] == "Seq Scan"}

    def indexes(self) -> set[str]:
        """Return the indexes that were used."""
        return {node["Index Name"] for node in self.nodes() if "Index Name" in node and node["Actual Loops"]}


async def explained(database: Database, name: str, *, keep: bool = False, **values: object) -> Plan:
    """Execute ``sql/<name>.sql`` with these values, and return its plan. Roll back unless it is to be kept.

    A plan does not show the work inside functions, but its buffers include it.
    """
    sql = statement(name)
    async with raw_connection(database) as connection:
        await connection.execute("BEGIN")
        rows = await connection.fetch(EXPLAIN + sql.text, *sql.args(**values))
        await connection.execute("COMMIT" if keep else "ROLLBACK")
    return Plan(json.loads(rows[0][0])[0]["Plan"])


async def touched(
    database: Database, name: str, *, generic: bool, **values: object
) -> dict[str, tuple[int, int]]:
    """Return rows read and complete scans by table, of the statement under a generic or a custom plan."""
    sql = statement(name)
    async with raw_connection(database) as connection:
        await connection.execute("BEGIN")
        mode = "force_generic_plan" if generic else "force_custom_plan"
        await connection.execute(f"SET LOCAL plan_cache_mode = {mode}")
        before_by_table = {row["table"]: row for row in await connection.fetch(TOUCHED)}
        await connection.fetch(sql.text, *sql.args(**values))
        after_rows = await connection.fetch(TOUCHED)
        await connection.execute("ROLLBACK")
    return {
        row["table"]: tuple(
            row[column] - before_by_table[row["table"]][column] for column in ("rows", "seq_scan")
        )  # type: ignore[misc]
        for row in after_rows
    }
