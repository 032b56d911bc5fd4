"""Bulk operations of Shopify: GraphQL starts and reports them, and a file holds their rows.

API versions from 2026-01 on have ``bulkOperation(id)`` and ``bulkOperations``; earlier ones have ``node(id)`` and
``currentBulkOperation(type)``, which returns the last operation only.
Source: shopify.dev docs/api/usage/bulk-operations/queries and .../imports, changelog/new-queries-for-bulk-
operations, docs/api/admin-graphql/latest/objects/BulkOperation, .../enums/BulkOperationStatus.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from fairlead.errors import InvalidInputError
from fairlead.policy.calls.bulk.protocol import BulkQuery, BulkRejection, BulkState, BulkStatus
from fairlead.policy.failures.http_date import parse_rfc_3339
from fairlead.policy.limits.bulk_token import is_running_id
from fairlead.policy.limits.feedback.raw_response import RawResponse
from fairlead.policy.limits.feedback.readers import entries, member, word

LISTED_SINCE = "2026-01"
_LATEST = 25
_LONGEST_URL = 8192
_LONGEST_TEXT = 1 << 20
_COUNT = re.compile(r"[0-9]{1,15}", re.ASCII)
_MUTATION = re.compile(r"(?:[\s,\ufeff]|#[^\n]*(?:\n|\Z))*mutation\b")
_FIELDS = "id status type errorCode query objectCount url createdAt"
_ERRORS = "userErrors { field message code }"
_BEGIN: Mapping[str, str] = {
    "query": "mutation ($text: String!) { bulkOperationRunQuery(query: $text)"
    f" {{ bulkOperation {{ {_FIELDS} }} {_ERRORS} }} }}",
    "mutation": "mutation ($text: String!, $stagedUploadPath: String!) {"
    " bulkOperationRunMutation(mutation: $text, stagedUploadPath: $stagedUploadPath)"
    f" {{ bulkOperation {{ {_FIELDS} }} {_ERRORS} }} }}",
}
_STATES: Mapping[str, BulkState] = {
    "COMPLETED": BulkState.COMPLETED,
    "CANCELED": BulkState.ENDED,
    "EXPIRED": BulkState.ENDED,
    "FAILED": BulkState.ENDED,
}


class ShopifyBulk:
    """The bulk operations of Shopify."""

    api = "graphql"

    def kind_of(self, text: str) -> str:
        return "mutation" if _MUTATION.match(text) else "query"

    def start_query(self, kind: str, text: str, variables: Mapping[str, Any]) -> BulkQuery:
        needed = {"stagedUploadPath"} if kind == "mutation" else set()
        if set(variables) != needed:
            names = ", ".join(sorted(needed)) or "none"
            hint = "upload the lines first (stagedUploadsCreate)" if needed else "write values into the query"
            raise InvalidInputError(f"a bulk {kind} takes these variables: {names}", hint=hint)
        return BulkQuery(_BEGIN[kind], {"text": text, **variables}, changes=True)

    def parse_start(self, response: RawResponse) -> BulkStatus | BulkRejection:
        data = member(response.body, "data")
        payload = next(iter(data.values()), None) if isinstance(data, dict) else None
        operation = _parse_operation(member(payload, "bulkOperation"))
        if operation is not None:
            return operation
        errors = entries(member(payload, "userErrors"))
        first = errors[0] if errors else None
        return BulkRejection(word(member(first, "code")) or "not_begun", word(member(first, "message")))

    def status_query(self, running_id: str, version: str) -> BulkQuery:
        if version >= LISTED_SINCE:
            text = f"query ($id: ID!) {{ bulkOperation(id: $id) {{ {_FIELDS} }} }}"
        else:
            text = f"query ($id: ID!) {{ node(id: $id) {{ ... on BulkOperation {{ {_FIELDS} }} }} }}"
        return BulkQuery(text, {"id": running_id})

    def list_query(self, kind: str, version: str) -> BulkQuery:
        if version >= LISTED_SINCE:
            return BulkQuery(f"{{ bulkOperations(first: {_LATEST}) {{ nodes {{ {_FIELDS} }} }} }}")
        return BulkQuery(f"{{ currentBulkOperation(type: {kind.upper()}) {{ {_FIELDS} }} }}")

    def parse_operations(self, response: RawResponse) -> tuple[BulkStatus, ...]:
        data = member(response.body, "data")
        payload = next(iter(data.values()), None) if isinstance(data, dict) else None
        nodes = member(payload, "nodes")
        values = entries(nodes) if nodes is not None else (payload,)
        return tuple(filter(None, map(_parse_operation, values)))

    def may_share(self, kind: str) -> bool:
        return kind == "query"  # the rows of a mutation are those of its uploaded file, which is not named


def _parse_operation(value: object) -> BulkStatus | None:
    running_id, status = word(member(value, "id")), word(member(value, "status"))
    if not is_running_id(running_id):
        return None
    text, url = member(value, "query"), member(value, "url")
    return BulkStatus(
        running_id,
        _STATES.get(status, BulkState.RUNNING),
        status,
        text[:_LONGEST_TEXT] if isinstance(text, str) else "",
        word(member(value, "errorCode")),
        _count(member(value, "objectCount")),
        url if isinstance(url, str) and len(url) <= _LONGEST_URL else None,
        parse_rfc_3339(word(member(value, "createdAt"))),
    )


def _count(value: object) -> int | None:
    text = str(value) if isinstance(value, int) and not isinstance(value, bool) else word(value)
    return int(text) if _COUNT.fullmatch(text) else None
