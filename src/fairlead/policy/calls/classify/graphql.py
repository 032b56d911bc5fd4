"""Errors of GraphQL: a 200 states them in its body, and may hold a part of the data as well.

Source: spec.graphql.org October 2021 §7.1 (errors, data); apollographql.com docs/apollo-server/data/errors;
shopify.dev docs/api/usage/response-codes.
"""

from __future__ import annotations

from collections.abc import Mapping

from fairlead.policy.calls.classify.error_fields import BodyError, code
from fairlead.policy.failures.category import Category
from fairlead.policy.limits.feedback.raw_response import RawResponse
from fairlead.policy.limits.feedback.readers import entries, member

_MEMBERS = frozenset({"data", "errors", "extensions"})
_MEANINGS: Mapping[str, Category] = {
    "ACCESS_DENIED": Category.PERMANENT_PERMISSION,
    "BAD_REQUEST": Category.PERMANENT_REQUEST,
    "BAD_USER_INPUT": Category.PERMANENT_REQUEST,
    "FORBIDDEN": Category.PERMANENT_PERMISSION,
    "GRAPHQL_PARSE_FAILED": Category.PERMANENT_REQUEST,
    "GRAPHQL_VALIDATION_FAILED": Category.PERMANENT_REQUEST,
    "INTERNAL_SERVER_ERROR": Category.TRANSIENT_SERVER,
    "MAX_COST_EXCEEDED": Category.PERMANENT_REQUEST,  # one query costs more than a bucket holds
    "SHOP_INACTIVE": Category.PERMANENT_PERMISSION,
    "TIMEOUT": Category.TRANSIENT_SERVER,
    "UNAUTHENTICATED": Category.PERMANENT_AUTH,
}


def find_graphql_errors(response: RawResponse) -> BodyError | None:
    """Return the errors of a GraphQL response; None if it is not GraphQL, or has no errors.

    GraphQL has no members other than data, errors and extensions. Other APIs list errors too, so a response with
    an error status counts as GraphQL only if it has ``data``, or codes in ``extensions``.
    """
    if not response.may_contain("errors"):
        return None
    body = response.body
    if not isinstance(body, dict) or not body.keys() <= _MEMBERS:
        return None
    errors = entries(body.get("errors"))
    if not errors or not all(isinstance(member(error, "message"), str) for error in errors):
        return None
    codes = tuple(filter(None, (code(member(error, "extensions", "code")) for error in errors)))
    if response.status >= 400 and not codes and "data" not in body:
        return None
    messages = tuple(str(member(error, "message")) for error in errors)
    # Shopify states this message without a code (community.shopify.com/t/8456).
    codes += ("THROTTLED",) if "Throttled" in messages and "THROTTLED" not in codes else ()
    data = body.get("data")
    partial = isinstance(data, dict) and any(value is not None for value in data.values())
    category = _meaning(codes, "data" in body)
    executed = _executed(errors, "data" in body, codes)
    return BodyError("GraphQL", codes, messages, category, partial, wordy=not codes, executed=executed)


def _executed(errors: tuple[object, ...], has_data: bool, codes: tuple[str, ...]) -> bool:
    """Return whether the operation was run: an error names a field, or the response has ``data`` (§7.1).

    Shopify refuses with THROTTLED before it runs anything, even if it adds ``data: null``.
    """
    if any(member(error, "path") is not None for error in errors):
        return True
    return has_data and "THROTTLED" not in codes


def _meaning(codes: tuple[str, ...], executed: bool) -> Category | None:
    """Return the category of the first known code; a query that was not executed was invalid."""
    category = next((_MEANINGS[code] for code in codes if code in _MEANINGS), None)
    return category or (None if executed else Category.PERMANENT_REQUEST)
