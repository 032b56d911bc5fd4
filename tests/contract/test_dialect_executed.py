"""An answer that was executed is no refusal, whatever its words say: nothing is sent twice for it."""

from __future__ import annotations

from typing import Any

import pytest

from fairlead.policy.limits.feedback.raw_response import RawResponse
from tests.contract.dialects import judged


@pytest.mark.parametrize(
    ("error", "more", "refused"),
    [
        ({"path": ["createOrder", "shipping"]}, {"data": None}, False),
        ({"path": ["createOrder"], "extensions": {"code": "RATE_LIMITED"}}, {"data": None}, False),
        ({"path": ["createOrder"], "extensions": {"code": "UNAUTHENTICATED"}}, {}, False),
        ({"extensions": {"code": "RATE_LIMITED"}}, {"data": None}, False),
        ({"extensions": {"code": "THROTTLED"}}, {"data": None}, True),
        ({"extensions": {"code": "RATE_LIMITED"}}, {}, True),
        ({}, {}, True),
    ],
)
def test_an_operation_that_was_run_was_not_refused(
    error: dict[str, Any], more: dict[str, Any], refused: bool
) -> None:
    """GraphQL October 2021 §7.1: without execution there is no ``data``, and no path in an error."""
    body = {"errors": [{"message": "429: too many requests", **error}], **more}
    assert judged(RawResponse(200, body=body), "shopify").refused_before_acting is refused


def test_a_field_that_was_run_beside_one_that_was_refused() -> None:
    denied = {"userErrors": [{"code": "LIMIT_REACHED", "message": "no"}], "bulkOperation": None}
    for data, refused in (({"bulk": denied}, True), ({"made": {"id": 1}, "bulk": denied}, False)):
        assert judged(RawResponse(200, body={"data": data}), "shopify").refused_before_acting is refused
