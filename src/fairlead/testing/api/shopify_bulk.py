"""Bulk operations of one shop: how many may run, how they end, and what they give (G5).

Before API version 2026-01 one of each type runs at a time; from then on five. They end by the API's clock.
Sources: shopify.dev changelog/faster-bulk-operations; docs/api/usage/bulk-operations/queries; docs/api/
admin-graphql/latest/enums/BulkOperationUserErrorCode. Whether the five are of both types together is not
stated there; here they are.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from fairlead.testing.api.graphql import Field, Query, cut

FIVE_SINCE = "2026-01"
_SEVERAL = 5
_GID = "gid://shopify/BulkOperation/"


@dataclass(slots=True)
class ShopifyBulkOperation:
    """One of them. *type*: QUERY or MUTATION."""

    number: int
    type: str
    query: str
    begun_s: float
    ends_s: float
    lines: tuple[str, ...]
    canceled: bool = False

    @property
    def id(self) -> str:
        """As the API names it."""
        return f"{_GID}{self.number}"

    def status(self, now_s: float) -> str:
        """RUNNING, COMPLETED or CANCELED."""
        if self.canceled:
            return "CANCELED"
        return "RUNNING" if now_s < self.ends_s else "COMPLETED"


class ShopifyBulkOperations:
    """All of one shop. *takes_s*: how long each runs."""

    def __init__(self, now_s: Callable[[], float], takes_s: float) -> None:
        self._now_s = now_s
        self._takes_s = takes_s
        self.all: list[ShopifyBulkOperation] = []

    def begin(
        self, kind: str, query: str, lines: Sequence[str], version: str
    ) -> ShopifyBulkOperation | dict[str, str]:
        """The operation, or the user error that refuses it."""
        now_s = self._now_s()
        running = [one for one in self.all if one.status(now_s) == "RUNNING"]
        if version >= FIVE_SINCE and len(running) >= _SEVERAL:
            return {
                "code": "LIMIT_REACHED",
                "message": "Bulk operations limit reached. Please try again later.",
            }
        same = [one for one in running if one.type == kind]
        if version < FIVE_SINCE and same:
            told = (
                f"A bulk {kind.lower()} operation for this app and shop is already in progress: {same[0].id}."
            )
            return {"code": "OPERATION_IN_PROGRESS", "message": told}
        made = ShopifyBulkOperation(
            len(self.all) + 1, kind, query, now_s, now_s + self._takes_s, tuple(lines)
        )
        self.all.append(made)
        return made

    def finish(self) -> None:
        """All that run are done now."""
        for one in self.all:
            one.ends_s = min(one.ends_s, self._now_s())

    def find(self, gid: object) -> ShopifyBulkOperation | None:
        """The one of this id."""
        return next((one for one in self.all if one.id == gid), None)

    def latest(self, kind: object) -> ShopifyBulkOperation | None:
        """What currentBulkOperation gives: the last of this type."""
        return next((one for one in reversed(self.all) if one.type == kind), None)

    def running(self) -> int:
        """How many run."""
        return sum(one.status(self._now_s()) == "RUNNING" for one in self.all)

    def shown(self, one: ShopifyBulkOperation | None, files: str) -> dict[str, object] | None:
        """As the API tells of it; *files*: where results are fetched from."""
        if one is None:
            return None
        status = one.status(self._now_s())
        done = status == "COMPLETED"
        count = str(len(one.lines)) if done else "0"
        return {
            "id": one.id,
            "type": one.type,
            "status": status,
            "errorCode": None,
            "createdAt": (datetime.now(UTC) - timedelta(seconds=self._now_s() - one.begun_s)).isoformat(),
            "query": one.query,
            "objectCount": count,
            "rootObjectCount": count if not done else str(sum('"__parentId"' not in x for x in one.lines)),
            "url": f"{files}/{one.number}.jsonl" if done and one.lines else None,
            "partialDataUrl": None,
        }


def result_lines(query: Query, source: Mapping[str, object]) -> Iterator[str]:
    """JSONL of a bulk query: a line for each node, and below it one for each node of its own lists.

    Lists inside a node become lines with ``__parentId``, as the vendor writes them.
    """
    for field in query.fields:
        connection = source.get(field.name)
        if callable(connection):
            yield from _lines(connection, field, None)


def _lines(
    connection: Callable[[Mapping[str, object]], object], field: Field, parent: object
) -> Iterator[str]:
    wanted = _node_fields(field)
    lists = [one for one in wanted if _node_fields(one)]
    plain = [one for one in wanted if one not in lists]
    told = connection({})
    for node in told["nodes"] if isinstance(told, dict) else ():
        line = cut(node, plain)
        assert isinstance(line, dict)
        yield json.dumps(line if parent is None else {**line, "__parentId": parent})
        for one in lists:
            yield from _lines(node[one.name], one, node["id"])


def _node_fields(field: Field) -> tuple[Field, ...]:
    """What is asked of each node of a list; empty where the field is none."""
    for one in field.fields:
        if one.name in ("nodes", "node"):
            return one.fields
        if one.name == "edges":
            return _node_fields(one)
    return ()
