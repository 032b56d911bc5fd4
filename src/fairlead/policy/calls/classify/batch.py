"""Answers to several things at once, of which some failed (C9): the items that did, and what each says.

207 Multi-Status is read in the shapes that vendors give it: a list under ``items``, ``results``,
``responses`` or at the top, each with its status; and HubSpot's, which lists errors apart with ids in place
of indexes. Salesforce says 200 for its collections, composites and graphs; of a graph all is done or nothing,
so it is one item. A 207 that cannot be read is a partial failure of which nothing is known; so is an answer
of Salesforce, too large to be read, that tells of one.

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
_ROLLED_BACK = "PROCESSING_HALTED"  # said of the parts of a graph that failed for another one's sake


def batch(response: RawResponse, dialect: str, by_code: Mapping[str, Category]) -> BodyError | None:
    """The failed items of a batch; None where *reply* answers no batch, or all of it was done.

    *by_code*: the categories that rules have for codes of the provider.
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
    """Failed items in order; None where it cannot be told which they are."""
    if (errors := _list(member(body, "errors"))) and isinstance(member(body, "results"), list):
        return [item for error in errors for item in _hubspot(error, by_code)]
    lists = (body, *(member(body, name) for name in _LISTS))
    items = next((each for each in lists if isinstance(each, list)), None)
    if items is None or len(items) > _MOST_ITEMS:
        return None
    told = [(_index(item, place), item, _status(item)) for place, item in enumerate(items)]
    if any(status is None for _, _, status in told):
        return None
    return [
        _failed(index, item, status, by_code)
        for index, item, status in told
        if status is not None and not is_success(status)
    ]


def _failed(index: int | None, item: object, status: int, by_code: Mapping[str, Category]) -> FailedItem:
    words = [code(member(item, *path)) for path in (("code",), ("error", "code"), ("errorCode",), ("error",))]
    told = next((each for each in words if each and each != str(status)), "")
    category = by_code.get(told) or category_of_status(status) or Category.TRANSIENT_NETWORK
    return FailedItem(index, told or str(status), category, word(member(item, "id")) or None)


def _hubspot(error: object, by_code: Mapping[str, Category]) -> Iterator[FailedItem]:
    told = code(member(error, "category")) or code(member(error, "subCategory")) or "failed"
    category = by_code.get(told) or Category.PERMANENT_REQUEST
    ids = [word(each) for each in _list(member(error, "context", "ids"))]
    for ref in ids or [""]:
        yield FailedItem(None, told, category, ref or None)


def _may_be_salesforce(response: RawResponse) -> bool:
    return any(map(response.may_contain, ("success", "httpStatusCode", "hasErrors", "isSuccessful")))


def _unread(response: RawResponse) -> bool:
    """Whether it tells of a failure, and its JSON was not read: it is large, or none."""
    text = (response.text or "").lstrip("\ufeff \t\r\n")
    if text.startswith("["):
        return response.holds(b'"success"', _FALSE)
    is_composite = any(map(response.may_contain, ("compositeResponse", "hasErrors", "isSuccessful")))
    return text.startswith("{") and is_composite and any(response.holds(*part) for part in _FAILED_PART)


def _salesforce(body: object, by_code: Mapping[str, Category]) -> list[FailedItem]:
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
    """Graphs that failed, each by what its first part says that did not fail for another one's sake."""
    for index, graph in enumerate(graphs):
        parts = _list(member(graph, "graphResponse", "compositeResponse"))
        failed = list(_parts(parts, "httpStatusCode", "body", by_code))
        is_done = member(graph, "isSuccessful")
        if is_done is False or (failed and is_done is not True):
            causes = [part for part in failed if part.code != _ROLLED_BACK]
            told = (causes or failed or [_of_errors(index, [], None, by_code)])[0]
            yield replace(told, index=index, ref=word(member(graph, "graphId")) or None)


def _of_errors(
    index: int,
    errors: list[object],
    status: int | None,
    by_code: Mapping[str, Category],
    ref: str | None = None,
) -> FailedItem:
    """An item by the first error that is told of it."""
    told = next((code(member(error, key)) for error in errors for key in ("statusCode", "errorCode")
                 if code(member(error, key))), "")  # fmt: skip
    by_status = category_of_status(status) if status is not None else None
    category = by_code.get(told) or by_status or Category.PERMANENT_REQUEST
    return FailedItem(index, told or str(status or "failed"), category, ref)


def _status(item: object) -> int | None:
    for key in _STATUS:
        value = member(item, key)
        if isinstance(value, int) and not isinstance(value, bool) and 100 <= value <= 599:
            return value
    return None


def _index(item: object, place: int) -> int:
    told = member(item, "index")
    is_one = isinstance(told, int) and not isinstance(told, bool) and 0 <= told < _MOST_ITEMS
    return told if is_one and isinstance(told, int) else place


def _list(value: object) -> list[object]:
    return value if isinstance(value, list) else []
