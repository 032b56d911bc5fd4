"""User errors of Shopify: a mutation responds with 200 and lists what it did not do, item by item. Spec: C9.

Such a response is a partial failure. The path of the invalid field holds the index of the item, as in
``["metafields", "2", "value"]``. An error without an index concerns the whole mutation. If there are too many
errors, or the response is too large, the result only says that items failed.

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
_MEMBER = b'serErrors"'
_NOT_EMPTY = re.compile(rb"\s*+:\s*+\[\s*+[^\]]")
_LONGEST_REF = 200


def find_user_errors(response: RawResponse, by_code: Mapping[str, Category]) -> BodyError | None:
    """Return the user errors of all mutations in *response*; None if there are none.

    Args:
        by_code: The categories that rules give to codes of the provider; any other means an invalid request.
    """
    if response.status != 200 or not response.may_contain("serErrors"):
        return None
    errors = tuple(islice(_errors(member(response.body, "data")), _MOST_ITEMS + 1))
    if len(errors) > _MOST_ITEMS or (not errors and response.holds(_MEMBER, _NOT_EMPTY)):
        return BodyError("user errors", partial=True, readable=False)
    if not errors:
        return None
    items = tuple(_item(error, by_code) for error in errors)
    messages = tuple(filter(None, (word(member(error, "message")) for error in errors)))
    codes = tuple(dict.fromkeys(item.code for item in items))
    return BodyError("user errors", codes, messages, items[0].category, partial=True, items=items)


def _errors(data: object) -> Iterator[object]:
    """Yield the user errors of each mutation, also of fields such as mediaUserErrors."""
    for payload in data.values() if isinstance(data, dict) else ():
        for name, errors in payload.items() if isinstance(payload, dict) else ():
            if name == "userErrors" or word(name).endswith("UserErrors"):
                yield from errors if isinstance(errors, list) else ()


def _item(error: object, by_code: Mapping[str, Category]) -> FailedItem:
    path = [part for part in entries(member(error, "field")) if isinstance(part, str)]
    index = next((int(part) for part in path if part.isascii() and part.isdigit() and len(part) <= 5), None)
    item_code = code(member(error, "code")) or "user_error"
    category = by_code.get(item_code, Category.PERMANENT_REQUEST)
    return FailedItem(index, item_code, category, ".".join(path)[:_LONGEST_REF] or None)
