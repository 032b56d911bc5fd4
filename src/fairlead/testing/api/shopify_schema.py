"""The objects of Shopify's GraphQL API, as values that `graphql.cut` reads."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fairlead.testing.api.catalogue import ORDERS, PRODUCTS, Order, Product, amount

_MOST_NODES = 250
Arguments = Mapping[str, Any]
Source = dict[str, Any]


def roots() -> Source:
    """Return the lists at the root."""
    return {"orders": _connection(ORDERS, order_object), "products": _connection(PRODUCTS, product_object)}


def product_object(product: Product) -> Source:
    """Return a product as the API shows it."""
    return {"__typename": "Product", "id": f"gid://shopify/Product/{product.number}", "title": product.title,
            "price": amount(product.cents)}  # fmt: skip


def order_object(order: Order) -> Source:
    """Return an order as the API shows it, with its lines as a list."""
    gid = f"gid://shopify/Order/{order.number}"
    lines = [
        {
            "__typename": "LineItem",
            "id": f"gid://shopify/LineItem/{order.number}{index}",
            "title": line.title,
            "quantity": 1,
        }
        for index, line in enumerate(order.lines)
    ]
    return {
        "__typename": "Order",
        "id": gid,
        "name": f"#{order.number}",
        "email": order.email,
        "totalPrice": amount(order.cents),
        "lineItems": _connection(lines, dict),
    }


def product_update(arguments: Arguments) -> Source:
    """Return the vendor's response to a change of a product, and change nothing."""
    changes = arguments.get("product") or arguments.get("input") or {}
    product = next((item for item in map(product_object, PRODUCTS) if item["id"] == changes.get("id")), None)
    if product is None:
        return {"product": None, "userErrors": [{"field": ["id"], "message": "Product does not exist"}]}
    title = changes.get("title", product["title"])
    if not str(title).strip():
        return {"product": None, "userErrors": [{"field": ["title"], "message": "Title can't be blank"}]}
    return {"product": product | {"title": title}, "userErrors": []}


def _connection(items: Sequence[Any], view: Callable[[Any], Source]) -> Callable[[Arguments], Source]:
    """Return a list that takes ``first`` and ``after``; without them it returns all items."""

    def page(arguments: Arguments) -> Source:
        start = _position(arguments.get("after"))
        count = arguments.get("first")
        end = start + min(count, _MOST_NODES) if isinstance(count, int) else len(items)
        nodes = [view(item) for item in items[start:end]]
        cursors = [_cursor(start + index + 1) for index in range(len(nodes))]
        return {
            "nodes": nodes,
            "edges": [{"cursor": cursor, "node": node} for cursor, node in zip(cursors, nodes, strict=True)],
            "pageInfo": {
                "hasNextPage": end < len(items),
                "hasPreviousPage": start > 0,
                "startCursor": cursors[0] if cursors else None,
                "endCursor": cursors[-1] if cursors else None,
            },
        }

    return page


def _cursor(position: int) -> str:
    return base64.b64encode(f"after:{position}".encode()).decode()


def _position(cursor: object) -> int:
    if not isinstance(cursor, str):
        return 0
    try:
        return int(base64.b64decode(cursor).decode().removeprefix("after:"))
    except ValueError:
        return 0
