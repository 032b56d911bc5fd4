"""What Shopify is asked about bulk operations, and how its answers are read; hostile ones too."""

from __future__ import annotations

from typing import Any

import pytest

from fairlead.errors import InvalidInputError
from fairlead.policy.calls.bulk import BULK_PROTOCOLS
from fairlead.policy.calls.bulk.protocol import BulkRejection, BulkState, BulkStatus
from fairlead.policy.limits.feedback.raw_response import RawResponse
from fairlead.testing.api.graphql import read_query

PROTOCOL = BULK_PROTOCOLS["shopify"]
ID = "gid://shopify/BulkOperation/7"


def graphql_response(name: str, value: Any) -> RawResponse:
    return RawResponse(200, {}, body={"data": {name: value}})


def test_a_mutation_is_told_by_its_first_word() -> None:
    for text in ("mutation { a }", "  # note\n,mutation M($a: Int) { a }", "mutation($a: Int) { a }"):
        assert PROTOCOL.kind_of(text) == "mutation"
    for text in ("{ mutation }", "query { a }", "query mutation { a }", "mutations", ""):
        assert PROTOCOL.kind_of(text) == "query"


def test_bulk_requests_are_graphql_of_their_version() -> None:
    for kind, variables in (("query", {}), ("mutation", {"stagedUploadPath": "tmp/x"})):
        ask = PROTOCOL.start_query(kind, '{ "text" }', variables)
        query = read_query(ask.query, ask.variables)
        assert (query.kind, ask.changes) == ("mutation", True)
        assert '{ "text" }' in query.fields[0].arguments.values()
    for version, look, latest in (
        ("2025-10", "node", "currentBulkOperation"),
        ("2026-01", "bulkOperation", "bulkOperations"),
        ("unstable", "bulkOperation", "bulkOperations"),
    ):
        (field,) = read_query(
            PROTOCOL.status_query(ID, version).query, PROTOCOL.status_query(ID, version).variables
        ).fields
        assert (field.name, field.arguments["id"]) == (look, ID)
        assert read_query(PROTOCOL.list_query("query", version).query).fields[0].name == latest
        assert not PROTOCOL.list_query("query", version).changes


def test_variables_are_what_the_vendor_takes() -> None:
    for kind, variables in (
        ("mutation", {}),
        ("query", {"a": 1}),
        ("mutation", {"stagedUploadPath": 1, "b": 2}),
    ):
        with pytest.raises(InvalidInputError, match="variables"):
            PROTOCOL.start_query(kind, "{ a }", variables)


@pytest.mark.parametrize(
    ("status", "state"),
    [
        ("CREATED", BulkState.RUNNING),
        ("RUNNING", BulkState.RUNNING),
        ("CANCELING", BulkState.RUNNING),
        ("A_NEW_WORD", BulkState.RUNNING),
        ("COMPLETED", BulkState.COMPLETED),
        ("FAILED", BulkState.ENDED),
        ("CANCELED", BulkState.ENDED),
        ("EXPIRED", BulkState.ENDED),
    ],
)
def test_states(status: str, state: BulkState) -> None:
    (bulk_status,) = PROTOCOL.parse_operations(
        graphql_response("node", {"id": ID, "status": status, "objectCount": "12", "url": "https://x/y"})
    )
    assert (bulk_status.state, bulk_status.status, bulk_status.count, bulk_status.url) == (
        state,
        status,
        12,
        "https://x/y",
    )


def test_the_beginning_or_why_not() -> None:
    status = PROTOCOL.parse_start(
        graphql_response("bulkOperationRunQuery", {"bulkOperation": {"id": ID, "status": "CREATED"}})
    )
    assert isinstance(status, BulkStatus)
    assert status.id == ID
    errors = [{"code": "INVALID", "message": "no such field", "field": None}]
    denied = PROTOCOL.parse_start(
        graphql_response("bulkOperationRunQuery", {"bulkOperation": None, "userErrors": errors})
    )
    assert denied == BulkRejection("INVALID", "no such field")


@pytest.mark.parametrize(
    "value",
    [
        None,
        [],
        "x",
        {"id": "a b"},
        {"id": "x" * 300},
        {"id": 7},
        {"nodes": None},
        {"nodes": [None, 1, {}]},
        {"bulkOperation": 3, "userErrors": {"code": 1}},
    ],
)
def test_unreadable_bulk_response_is_none(value: Any) -> None:
    assert PROTOCOL.parse_operations(graphql_response("bulkOperations", value)) == ()
    assert PROTOCOL.parse_start(graphql_response("bulkOperationRunQuery", value)) == BulkRejection(
        "not_begun", ""
    )
    assert PROTOCOL.parse_operations(RawResponse(200, {}, body=value)) == ()


def test_of_an_operation_only_what_is_sound_is_taken() -> None:
    hostile = {"id": ID, "status": ["RUNNING"], "objectCount": "1e9", "url": "x" * 9000, "query": 3}
    assert PROTOCOL.parse_operations(graphql_response("node", hostile)) == (
        BulkStatus(ID, BulkState.RUNNING, ""),
    )
