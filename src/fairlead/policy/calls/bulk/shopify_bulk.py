"""Shopify's bulk operations: GraphQL begins and follows them, their rows lie in a file.

From API 2026-01 on ``bulkOperation(id)`` and ``bulkOperations``; before, ``node(id)`` and
``currentBulkOperation(type)``, which knows the last one alone.
Source: shopify.dev docs/api/usage/bulk-operations/queries and .../imports, changelog/new-queries-for-bulk-
operations, docs/api/admin-graphql/latest/objects/BulkOperation, .../enums/BulkOperationStatus.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from fairlead.errors import InvalidInputError
from fairlead.policy.calls.bulk.protocol import BulkDenied, BulkQuery, BulkSeen, BulkState
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
    """See BulkWay."""

    api = "graphql"

    def kind_of(self, text: str) -> str:
        """``mutation`` where it begins with that word."""
        return "mutation" if _MUTATION.match(text) else "query"

    def begin(self, kind: str, text: str, variables: Mapping[str, Any]) -> BulkQuery:
        """A mutation reads its lines from a file that was uploaded before."""
        needed = {"stagedUploadPath"} if kind == "mutation" else set()
        if set(variables) != needed:
            told = ", ".join(sorted(needed)) or "none"
            hint = "upload the lines first (stagedUploadsCreate)" if needed else "write values into the query"
            raise InvalidInputError(f"a bulk {kind} takes these variables: {told}", hint=hint)
        return BulkQuery(_BEGIN[kind], {"text": text, **variables}, changes=True)

    def begun(self, reply: RawResponse) -> BulkSeen | BulkDenied:
        """The operation, or the first of the user errors."""
        data = member(reply.body, "data")
        told = next(iter(data.values()), None) if isinstance(data, dict) else None
        seen = _seen(member(told, "bulkOperation"))
        if seen is not None:
            return seen
        errors = entries(member(told, "userErrors"))
        first = errors[0] if errors else None
        return BulkDenied(word(member(first, "code")) or "not_begun", word(member(first, "message")))

    def look(self, running_id: str, version: str) -> BulkQuery:
        """By its id."""
        if version >= LISTED_SINCE:
            text = f"query ($id: ID!) {{ bulkOperation(id: $id) {{ {_FIELDS} }} }}"
        else:
            text = f"query ($id: ID!) {{ node(id: $id) {{ ... on BulkOperation {{ {_FIELDS} }} }} }}"
        return BulkQuery(text, {"id": running_id})

    def latest(self, kind: str, version: str) -> BulkQuery:
        """Newest first; before 2026-01 there is one."""
        if version >= LISTED_SINCE:
            return BulkQuery(f"{{ bulkOperations(first: {_LATEST}) {{ nodes {{ {_FIELDS} }} }} }}")
        return BulkQuery(f"{{ currentBulkOperation(type: {kind.upper()}) {{ {_FIELDS} }} }}")

    def seen(self, reply: RawResponse) -> tuple[BulkSeen, ...]:
        """Of one field: an operation, or a list of them."""
        data = member(reply.body, "data")
        told = next(iter(data.values()), None) if isinstance(data, dict) else None
        found = entries(member(told, "nodes")) if member(told, "nodes") is not None else (told,)
        return tuple(_all(found))

    def may_share(self, kind: str) -> bool:
        """A mutation's rows are those of its uploaded file, which the vendor does not name."""
        return kind == "query"


def _all(values: tuple[object, ...]) -> Iterator[BulkSeen]:
    for value in values:
        seen = _seen(value)
        if seen is not None:
            yield seen


def _seen(value: object) -> BulkSeen | None:
    running_id, status = word(member(value, "id")), word(member(value, "status"))
    if not is_running_id(running_id):
        return None
    text, url = member(value, "query"), member(value, "url")
    return BulkSeen(
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
