"""Shopify: limits of REST calls, GraphQL points and bulk operations for each shop.

    async with ShopifyApi() as api:
        ...  # GET  {api.url}/{shop}/admin/api/2026-10/orders.json?limit=10
             # POST {api.url}/{shop}/admin/api/2026-10/graphql.json
        assert api.ledger.refused("my-shop") == 0

A query costs first what it requests, and in the end what it returned; the variables ``cost`` and ``actual``
set other figures, for tests that need them. Refusals look as Shopify's do: 429 with Retry-After for REST, 200
with code THROTTLED for GraphQL (some saw 429: *throttled_status*).
Sources: shopify.dev docs/apps/build/apis/graphql-admin/rate-limits; docs/api/admin-rest/usage/rate-limits;
docs/api/usage/pagination-rest.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from fairlead.testing.api.catalogue import ORDERS, PRODUCTS, amount
from fairlead.testing.api.graphql import QuerySyntaxError, cost, cut, read_query
from fairlead.testing.api.leaky import LeakyBucket
from fairlead.testing.api.shopify_bulk import (
    FIVE_SINCE,
    ShopifyBulkOperation,
    ShopifyBulkOperations,
    result_lines,
)
from fairlead.testing.api.shopify_schema import product_update, roots
from fairlead.testing.api.vendor_api import ApiRequest, ApiResponse, Route, VendorApi

LATEST = "2026-10"
_MAX_QUERY_COST = 1000.0  # points of one query
_PAGE, _LARGEST_PAGE = 50, 250
# A signed address is its own permission: storage services refuse a second one.
_TWO_PERMISSIONS = "<Error><Code>InvalidArgument</Code><Message>Only one auth mechanism</Message></Error>"


@dataclass(frozen=True, slots=True)
class ShopLimits:
    """The limits of each shop: REST calls and GraphQL points."""

    calls: float = 40
    calls_per_s: float = 2
    points: float = 1000
    points_per_s: float = 100


class ShopifyApi(VendorApi):
    """Shopify's API; the first part of the path is the shop.

    Args:
        limits: The limits of each shop.
        takes_s: Seconds that a call takes.
        throttled_status: The status of a throttled query, 200 or 429.
        bulk_s: Seconds that a bulk operation runs; `finish_bulk` ends it sooner.
    """

    name = "shopify"

    def __init__(
        self,
        limits: ShopLimits | None = None,
        *,
        takes_s: float = 0.02,
        throttled_status: int = 200,
        bulk_s: float = 1.0,
        **more: Any,
    ) -> None:
        super().__init__(takes_s=takes_s, **more)
        self._shop_limits = limits or ShopLimits()
        self._throttled_status = throttled_status
        self._bulk_s = bulk_s
        self._bulk: dict[str, ShopifyBulkOperations] = {}

    def routes(self) -> Iterable[Route]:
        return (
            ("GET", "/admin/api/rest.json", self._rest),
            ("GET", "/admin/api/{version}/orders.json", self._orders),
            ("GET", "/admin/api/{version}/products.json", self._products),
            ("POST", "/admin/api/graphql.json", self._graphql),
            ("POST", "/admin/api/{version}/graphql.json", self._graphql),
            ("GET", "/bulk/{file}", self._file),
        )

    def unauthorised(self, call: ApiRequest) -> ApiResponse:
        message = "[API] Invalid API key or access token (unrecognized login or wrong password)"
        return ApiResponse({"errors": message}, 401)

    async def absent(self, call: ApiRequest) -> ApiResponse:
        return ApiResponse({"errors": "Not Found"}, 404)

    def bulk(self, shop: str) -> ShopifyBulkOperations:
        """Return the bulk operations of *shop*."""
        return self._bulk.setdefault(shop, ShopifyBulkOperations(self.clock.monotonic, self._bulk_s))

    def limits(self, account: str) -> Mapping[str, Mapping[str, float]]:
        self._calls(account)
        self._points(account)
        return super().limits(account)

    def _calls(self, shop: str) -> LeakyBucket:
        return self.bucket(shop, "rest", self._shop_limits.calls, self._shop_limits.calls_per_s)

    def _points(self, shop: str) -> LeakyBucket:
        return self.bucket(shop, "graphql", self._shop_limits.points, self._shop_limits.points_per_s)

    def finish_bulk(self, shop: str) -> None:
        """Complete the running bulk operations of *shop* now."""
        self.bulk(shop).finish()

    # ---- REST --------------------------------------------------------------------------------------

    async def _rest(self, call: ApiRequest) -> ApiResponse:
        return await self._counted(call, ApiResponse({"shop": call.account}))

    async def _orders(self, call: ApiRequest) -> ApiResponse:
        rows = [
            {
                "id": order.number,
                "name": f"#{order.number}",
                "email": order.email,
                "total_price": amount(order.cents),
            }
            for order in ORDERS
        ]
        return await self._counted(call, self._page(call, "orders", rows))

    async def _products(self, call: ApiRequest) -> ApiResponse:
        rows = [{"id": product.number, "title": product.title} for product in PRODUCTS]
        return await self._counted(call, self._page(call, "products", rows))

    async def _counted(self, call: ApiRequest, response: ApiResponse) -> ApiResponse:
        bucket = self._calls(call.account)
        allowed = bucket.take()
        headers = {"X-Shopify-Shop-Api-Call-Limit": f"{_used(bucket)}/{bucket.capacity_now:.0f}"}
        if not allowed:
            headers["Retry-After"] = f"{max(1.0, bucket.wait_s()):.1f}"
            errors = {"errors": "Exceeded 2 calls per second for api client."}
            return ApiResponse(errors, 429, headers, refused="rest")
        await self.serve(call)
        return ApiResponse(response.body, response.status, {**response.headers, **headers})

    def _page(self, call: ApiRequest, name: str, rows: list[dict[str, object]]) -> ApiResponse:
        """Return the page after the id in ``page_info``, with a Link to the next one."""
        count = call.number("limit", _PAGE, most=_LARGEST_PAGE)
        last_id = call.number("page_info", 0, most=1 << 62)
        later = [row for row in rows if isinstance(row["id"], int) and row["id"] > last_id]
        page = later[:count]
        if len(later) <= count:
            return ApiResponse({name: page})
        link = f"{self.url}{call.request.path}?limit={count}&page_info={page[-1]['id']}"
        return ApiResponse({name: page}, headers={"Link": f'<{link}>; rel="next"'})

    # ---- GraphQL -----------------------------------------------------------------------------------

    async def _graphql(self, call: ApiRequest) -> ApiResponse:
        variables: Mapping[str, Any] = call.fields.get("variables") or {}  # type: ignore[assignment]
        try:
            query = read_query(str(call.fields.get("query", "")), variables)
        except QuerySyntaxError as error:
            return ApiResponse({"errors": [{"message": f"syntax error, {error}"}]})
        source = self._source(call)
        unknown = [field.name for field in query.fields if field.name not in source]
        if unknown:
            return ApiResponse({"errors": [_undefined(query.kind, unknown[0])]})
        requested = float(variables.get("cost", cost(query)))
        if requested > _MAX_QUERY_COST:
            return ApiResponse({"errors": [_too_expensive(requested)]})
        bucket = self._points(call.account)
        if not bucket.take(requested):
            throttled = {"message": "Throttled", "extensions": {"code": "THROTTLED"}}
            body = {"errors": [throttled], "extensions": _cost(bucket, requested, None)}
            return ApiResponse(body, self._throttled_status, refused="graphql")
        await self.serve(call)
        result = cut(source, query.fields)
        actual = min(requested, float(variables.get("actual", variables.get("cost", cost(query, result)))))
        bucket.refill()
        bucket.give_back(requested - actual)
        return ApiResponse({"data": result, "extensions": _cost(bucket, requested, actual)})

    def _source(self, call: ApiRequest) -> dict[str, object]:
        """Return all fields that a query can request."""
        version = call.request.match_info.get("version", LATEST)
        shop = {"__typename": "Shop", "id": "gid://shopify/Shop/1", "name": call.account}
        return {"shop": shop, **roots(), **self._bulk_fields(call.account, version)}

    def _bulk_fields(self, shop: str, version: str) -> dict[str, object]:
        bulk, files = self.bulk(shop), f"{self.url}/{shop}/bulk"

        def view(operation: ShopifyBulkOperation | None) -> object:
            return bulk.view(operation, files)

        def begin(kind: str, text: object) -> object:
            lines = _bulk_lines(kind, str(text))
            if lines is None:
                return _bulk_error("INVALID", "Invalid bulk query")
            operation = bulk.begin(kind, str(text), lines, version)
            if isinstance(operation, ShopifyBulkOperation):
                return {"bulkOperation": view(operation), "userErrors": []}
            return _bulk_error(**operation)

        def cancel(operation: ShopifyBulkOperation | None) -> object:
            if operation is None:
                return {"bulkOperation": None, "userErrors": [{"field": ["id"], "message": "does not exist"}]}
            operation.canceled |= operation.status(self.clock.monotonic()) == "RUNNING"
            return {"bulkOperation": view(operation), "userErrors": []}

        fields: dict[str, object] = {
            "productUpdate": product_update,
            "bulkOperationRunQuery": lambda arguments: begin("QUERY", arguments.get("query")),
            "bulkOperationRunMutation": lambda arguments: begin("MUTATION", arguments.get("mutation")),
            "bulkOperationCancel": lambda arguments: cancel(bulk.find(arguments.get("id"))),
            "currentBulkOperation": lambda arguments: view(bulk.latest(arguments.get("type", "QUERY"))),
            "node": lambda arguments: view(bulk.find(arguments.get("id"))),
        }
        if version >= FIVE_SINCE:
            fields["bulkOperation"] = fields["node"]
            fields["bulkOperations"] = lambda _: {
                "nodes": [view(operation) for operation in reversed(bulk.all)]
            }
        return fields

    async def _file(self, call: ApiRequest) -> ApiResponse:
        number = call.part("file").removesuffix(".jsonl")
        operation = self.bulk(call.account).find(f"gid://shopify/BulkOperation/{number}")
        if operation is None:
            return await self.absent(call)
        if call.arrival.authorization:
            return ApiResponse(_TWO_PERMISSIONS, 400, content_type="application/xml", refused="credential")
        await self.serve(call)
        text = "".join(f"{line}\n" for line in operation.lines)
        return ApiResponse(text, content_type="application/jsonl")


def _bulk_lines(kind: str, text: str) -> list[str] | None:
    """Return the result lines of a bulk operation; None if its text is no GraphQL. Those of a mutation are empty."""
    try:
        query = read_query(text)
    except QuerySyntaxError:
        return None
    return list(result_lines(query, roots())) if kind == "QUERY" else []


def _bulk_error(code: str, message: str) -> dict[str, object]:
    error = {"field": None, "code": code, "message": message}
    return {"bulkOperation": None, "userErrors": [error]}


def _used(bucket: LeakyBucket) -> int:
    return math.ceil(bucket.capacity_now - bucket.level)


def _undefined(kind: str, name: str) -> Mapping[str, object]:
    root = "Mutation" if kind == "mutation" else "QueryRoot"
    return {
        "message": f"Field '{name}' doesn't exist on type '{root}'",
        "extensions": {"code": "undefinedField", "typeName": root, "fieldName": name},
    }


def _too_expensive(requested: float) -> Mapping[str, object]:
    return {
        "message": f"Query cost is {requested:.0f}, which exceeds the single query max cost limit (1000).",
        "extensions": {"code": "MAX_COST_EXCEEDED", "cost": requested, "maxCost": _MAX_QUERY_COST},
    }


def _cost(bucket: LeakyBucket, requested: float, actual: float | None) -> dict[str, Any]:
    return {
        "cost": {
            "requestedQueryCost": requested,
            "actualQueryCost": actual,
            "throttleStatus": {
                "maximumAvailable": bucket.capacity_now,
                "currentlyAvailable": math.floor(bucket.level),
                "restoreRate": bucket.per_s_now,
            },
        }
    }
