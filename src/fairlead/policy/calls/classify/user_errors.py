"""Shopify's user errors: a mutation answers 200 and lists what it did not do, item by item (C9).

Such an answer is a partial failure. The place of an item stands in the path of the field that is wrong:
``["metafields", "2", "value"]``. An error without a place is one of the mutation as a whole, and named as an
item without index. Where they are too many, or the answer too large, only that some failed is told.

Source: shopify.dev docs/api/admin-graphql/latest/interfaces/DisplayableError; docs/api/usage/response-codes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import islice

from fairlead.policy.calls.classify.error_fields import BodyError, code
from fairlead.policy.calls.classify.verdict import FailedItem
from fairlead.policy.failures.category import Category
from fairlead.policy.limits.feedback.raw_response import RawResponse
from fairlead.policy.limits.feedback.readers import entries, member, word

_MOST_ITEMS = 10_000  # as of a batch
_TOLD = b'serErrors"'
_NOT_EMPTY = re.compile(rb"\s*+:\s*+\[\s*+[^\]]")
_LONGEST_REF = 200


def user_errors(response: RawResponse, by_code: Mapping[str, Category]) -> BodyError | None:
    """What the mutations of an answer did not do; None where there is no user error.

    *by_code*: the categories that rules have for codes of the provider; others say that the request is wrong.
    """
    if response.status != 200 or not response.may_contain("serErrors"):
        return None
    errors = tuple(islice(_errors(member(response.body, "data")), _MOST_ITEMS + 1))
    if len(errors) > _MOST_ITEMS or (not errors and response.holds(_TOLD, _NOT_EMPTY)):
        return BodyError("user errors", partial=True, readable=False)
    if not errors:
        return None
    items = tuple(_item(error, by_code) for error in errors)
    messages = tuple(filter(None, (word(member(error, "message")) for error in errors)))
    codes = tuple(dict.fromkeys(item.code for item in items))
    return BodyError("user errors", codes, messages, items[0].category, partial=True, items=items)


def _errors(data: object) -> Iterator[object]:
    """Those of each mutation; some call them mediaUserErrors, customerUserErrors."""
    for payload in data.values() if isinstance(data, dict) else ():
        for name, told in payload.items() if isinstance(payload, dict) else ():
            if name == "userErrors" or word(name).endswith("UserErrors"):
                yield from told if isinstance(told, list) else ()


def _item(error: object, by_code: Mapping[str, Category]) -> FailedItem:
    path = [part for part in entries(member(error, "field")) if isinstance(part, str)]
    index = next((int(part) for part in path if part.isascii() and part.isdigit() and len(part) <= 5), None)
    told = code(member(error, "code")) or "user_error"
    category = by_code.get(told, Category.PERMANENT_REQUEST)
    return FailedItem(index, told, category, ".".join(path)[:_LONGEST_REF] or None)
