"""Failed items of responses to batches. Spec: C9.

A 207 is read in the common shapes: a list under ``items``, ``results``, ``responses`` or at the top, each item
with a status. HubSpot lists errors separately, with ids in place of indexes. Salesforce responds with 200 to
collections, composites and graphs; a graph succeeds or fails as a whole, so it is one item. A 207 that cannot be
read is a partial failure without known items, and so is a response of Salesforce that is too large to parse and
reports a failure.

Source: RFC 4918 §13; developers.hubspot.com docs/api/error-handling (multi-status);
developer.salesforce.com api_rest resources_composite_sobjects_collections, resources_composite_composite,
resources_composite_graph.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace

from fairlead.policy.calls.classify.error_fields import BodyError, code
from fairlead.policy.calls.classify.status import category_of_status, is_success
from fairlead.policy.calls.classify.verdict import FailedItem
from fairlead.policy.failures.category import Category
from fairlead.policy.limits.feedback.raw_response import RawResponse
from fairlead.policy.limits.feedback.readers import member, word

_LISTS = ("items", "results", "responses")
_STATUS = ("status", "statusCode", "httpStatusCode", "code")
_MOST_ITEMS = 10_000
_FALSE, _TRUE = re.compile(rb"\s*+:\s*+false\b"), re.compile(rb"\s*+:\s*+true\b")
_NO_SUCCESS = re.compile(rb"\s*+:\s*+[13-5][0-9]{2}\b")
_FAILED_PART = (
    (b'"hasErrors"', _TRUE),
    (b'"isSuccessful"', _FALSE),
    (b'"httpStatusCode"', _NO_SUCCESS),
    (b'"statusCode"', _NO_SUCCESS),
)
_ROLLED_BACK = (
    "PROCESSING_HALTED"  # the code of the parts of a graph that were rolled back because another part failed
)


def find_failed_items(
    response: RawResponse, dialect: str, by_code: Mapping[str, Category]
) -> BodyError | None:
    """Return the failed items of a batch; None if it is no response to a batch, or every item succeeded.

    Args:
        by_code: The categories that rules give to codes of the provider.
    """
    if response.status == 207:
        failed = _multi_status(response.body, by_code)
    elif dialect == "salesforce" and response.status == 200 and _may_be_salesforce(response):
        failed = None if _unread(response) else _salesforce(response.body, by_code)
    else:
        return None
    if failed is None:
        return BodyError("batch", partial=True, readable=False)
    items = tuple(failed)
    codes = tuple(dict.fromkeys(item.code for item in items))
    return BodyError("batch", codes, partial=True, items=items) if items else None


def _multi_status(body: object, by_code: Mapping[str, Category]) -> list[FailedItem] | None:
    """Return the failed items in order; None if they cannot be identified."""
    if (errors := _list(member(body, "errors"))) and isinstance(member(body, "results"), list):
        return [item for error in errors for item in _hubspot(error, by_code)]
    lists = (body, *(member(body, name) for name in _LISTS))
    items = next((values for values in lists if isinstance(values, list)), None)
    if items is None or len(items) > _MOST_ITEMS:
        return None
    statuses = [(_index(item, position), item, _status(item)) for position, item in enumerate(items)]
    if any(status is None for _, _, status in statuses):
        return None
    return [
        _failed(index, item, status, by_code)
        for index, item, status in statuses
        if status is not None and not is_success(status)
    ]


def _failed(index: int | None, item: object, status: int, by_code: Mapping[str, Category]) -> FailedItem:
    candidates = [
        code(member(item, *path)) for path in (("code",), ("error", "code"), ("errorCode",), ("error",))
    ]
    item_code = next((candidate for candidate in candidates if candidate and candidate != str(status)), "")
    category = by_code.get(item_code) or category_of_status(status) or Category.TRANSIENT_NETWORK
    return FailedItem(index, item_code or str(status), category, word(member(item, "id")) or None)


def _hubspot(error: object, by_code: Mapping[str, Category]) -> Iterator[FailedItem]:
    item_code = code(member(error, "category")) or code(member(error, "subCategory")) or "failed"
    category = by_code.get(item_code) or Category.PERMANENT_REQUEST
    ids = [word(value) for value in _list(member(error, "context", "ids"))]
    for ref in ids or [""]:
        yield FailedItem(None, item_code, category, ref or None)


def _may_be_salesforce(response: RawResponse) -> bool:
    return any(map(response.may_contain, ("success", "httpStatusCode", "hasErrors", "isSuccessful")))


def _unread(response: RawResponse) -> bool:
    """Return whether *response* reports a failure although its JSON was not parsed, because it is large or invalid."""
    text = (response.text or "").lstrip("\ufeff \t\r\n")
    if text.startswith("["):
        return response.holds(b'"success"', _FALSE)
    is_composite = any(map(response.may_contain, ("compositeResponse", "hasErrors", "isSuccessful")))
    return text.startswith("{") and is_composite and any(response.holds(*part) for part in _FAILED_PART)


def _salesforce(body: object, by_code: Mapping[str, Category]) -> list[FailedItem]:
    """Return the failed items of a collection, a composite, a batch (``results``) or a set of graphs."""
    collection = _list(body)
    if collection and all(isinstance(member(item, "success"), bool) for item in collection):
        failed = [(index, item) for index, item in enumerate(collection) if member(item, "success") is False]
        return [_of_errors(index, _list(member(item, "errors")), None, by_code) for index, item in failed]
    return [
        *_parts(_list(member(body, "compositeResponse")), "httpStatusCode", "body", by_code),
        *_parts(_list(member(body, "results")), "statusCode", "result", by_code),
        *_graphs(_list(member(body, "graphs")), by_code),
    ]


def _parts(
    parts: list[object], status_key: str, body_key: str, by_code: Mapping[str, Category]
) -> Iterator[FailedItem]:
    for index, item in enumerate(parts):
        status = member(item, status_key)
        if isinstance(status, int) and not isinstance(status, bool) and not is_success(status):
            ref = word(member(item, "referenceId")) or None
            yield _of_errors(index, _list(member(item, body_key)), status, by_code, ref)


def _graphs(graphs: list[object], by_code: Mapping[str, Category]) -> Iterator[FailedItem]:
    """Yield the graphs that failed, each with its first cause: a part that was not merely rolled back."""
    for index, graph in enumerate(graphs):
        parts = _list(member(graph, "graphResponse", "compositeResponse"))
        failed = list(_parts(parts, "httpStatusCode", "body", by_code))
        is_done = member(graph, "isSuccessful")
        if is_done is False or (failed and is_done is not True):
            causes = [part for part in failed if part.code != _ROLLED_BACK]
            first = (causes or failed or [_of_errors(index, [], None, by_code)])[0]
            yield replace(first, index=index, ref=word(member(graph, "graphId")) or None)


def _of_errors(
    index: int,
    errors: list[object],
    status: int | None,
    by_code: Mapping[str, Category],
    ref: str | None = None,
) -> FailedItem:
    """Return the failed item, with the code of the first error that has one."""
    item_code = next((code(member(error, key)) for error in errors for key in ("statusCode", "errorCode")
                 if code(member(error, key))), "")  # fmt: skip
    by_status = category_of_status(status) if status is not None else None
    category = by_code.get(item_code) or by_status or Category.PERMANENT_REQUEST
    return FailedItem(index, item_code or str(status or "failed"), category, ref)


def _status(item: object) -> int | None:
    for key in _STATUS:
        value = member(item, key)
        if isinstance(value, int) and not isinstance(value, bool) and 100 <= value <= 599:
            return value
    return None


def _index(item: object, position: int) -> int:
    stated = member(item, "index")
    is_one = isinstance(stated, int) and not isinstance(stated, bool) and 0 <= stated < _MOST_ITEMS
    return stated if is_one and isinstance(stated, int) else position


def _list(value: object) -> list[object]:
    return value if isinstance(value, list) else []
