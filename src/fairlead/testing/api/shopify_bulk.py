"""Bulk operations of one shop: how many may run, when they end, and their results.

Before API version 2026-01 one of each type runs at a time; from then on five. They end by the API's clock.
Sources: shopify.dev changelog/faster-bulk-operations; docs/api/usage/bulk-operations/queries; docs/api/
admin-graphql/latest/enums/BulkOperationUserErrorCode. Whether the five are of both types together is not
stated there; here they are.
Spec: G5.
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
    """One bulk operation; *type* is QUERY or MUTATION."""

    number: int
    type: str
    query: str
    begun_mono: float
    ends_mono: float
    lines: tuple[str, ...]
    canceled: bool = False

    @property
    def id(self) -> str:
        """The id in the API."""
        return f"{_GID}{self.number}"

    def status(self, now_mono: float) -> str:
        """Return RUNNING, COMPLETED or CANCELED."""
        if self.canceled:
            return "CANCELED"
        return "RUNNING" if now_mono < self.ends_mono else "COMPLETED"


class ShopifyBulkOperations:
    """All bulk operations of one shop; each runs for *takes_s* seconds of the clock *monotonic*."""

    def __init__(self, monotonic: Callable[[], float], takes_s: float) -> None:
        self._monotonic = monotonic
        self._takes_s = takes_s
        self.all: list[ShopifyBulkOperation] = []

    def begin(
        self, kind: str, query: str, lines: Sequence[str], version: str
    ) -> ShopifyBulkOperation | dict[str, str]:
        """Start an operation and return it, or return the user error that refuses it."""
        now_mono = self._monotonic()
        running = [operation for operation in self.all if operation.status(now_mono) == "RUNNING"]
        if version >= FIVE_SINCE and len(running) >= _SEVERAL:
            return {
                "code": "LIMIT_REACHED",
                "message": "Bulk operations limit reached. Please try again later.",
            }
        same = [operation for operation in running if operation.type == kind]
        if version < FIVE_SINCE and same:
            message = (
                f"A bulk {kind.lower()} operation for this app and shop is already in progress: {same[0].id}."
            )
            return {"code": "OPERATION_IN_PROGRESS", "message": message}
        operation = ShopifyBulkOperation(
            len(self.all) + 1, kind, query, now_mono, now_mono + self._takes_s, tuple(lines)
        )
        self.all.append(operation)
        return operation

    def finish(self) -> None:
        """Complete all running operations now."""
        for operation in self.all:
            operation.ends_mono = min(operation.ends_mono, self._monotonic())

    def find(self, gid: object) -> ShopifyBulkOperation | None:
        """Return the operation of this id, or None."""
        return next((operation for operation in self.all if operation.id == gid), None)

    def latest(self, kind: object) -> ShopifyBulkOperation | None:
        """Return the last operation of this type, which currentBulkOperation shows."""
        return next((operation for operation in reversed(self.all) if operation.type == kind), None)

    def running(self) -> int:
        """Return how many operations run."""
        return sum(operation.status(self._monotonic()) == "RUNNING" for operation in self.all)

    def view(self, operation: ShopifyBulkOperation | None, files: str) -> dict[str, object] | None:
        """Return the API's object; results are downloaded below the URL *files*."""
        if operation is None:
            return None
        status = operation.status(self._monotonic())
        done = status == "COMPLETED"
        count = str(len(operation.lines)) if done else "0"
        return {
            "id": operation.id,
            "type": operation.type,
            "status": status,
            "errorCode": None,
            "createdAt": (
                datetime.now(UTC) - timedelta(seconds=self._monotonic() - operation.begun_mono)
            ).isoformat(),
            "query": operation.query,
            "objectCount": count,
            "rootObjectCount": count
            if not done
            else str(sum('"__parentId"' not in line for line in operation.lines)),
            "url": f"{files}/{operation.number}.jsonl" if done and operation.lines else None,
            "partialDataUrl": None,
        }


def result_lines(query: Query, source: Mapping[str, object]) -> Iterator[str]:
    """Yield the JSONL of a bulk query: a line for each node, followed by one for each node of its lists.

    Lists inside a node become lines with ``__parentId``, as the vendor writes them.
    """
    for field in query.fields:
        connection = source.get(field.name)
        if callable(connection):
            yield from _lines(connection, field, None)


def _lines(
    connection: Callable[[Mapping[str, object]], object], field: Field, parent: object
) -> Iterator[str]:
    node_fields = _node_fields(field)
    lists = [inner for inner in node_fields if _node_fields(inner)]
    plain = [inner for inner in node_fields if inner not in lists]
    page = connection({})
    for node in page["nodes"] if isinstance(page, dict) else ():
        line = cut(node, plain)
        assert isinstance(line, dict)
        yield json.dumps(line if parent is None else {**line, "__parentId": parent})
        for inner in lists:
            yield from _lines(node[inner.name], inner, node["id"])


def _node_fields(field: Field) -> tuple[Field, ...]:
    """Return the fields requested of each node of a list; empty if *field* is no list."""
    for inner in field.fields:
        if inner.name in ("nodes", "node"):
            return inner.fields
        if inner.name == "edges":
            return _node_fields(inner)
    return ()
