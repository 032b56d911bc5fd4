"""What a rude Shopify can be asked for in GraphQL, as values that `graphql.cut` understands."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fairlead.testing.api.catalogue import ORDERS, PRODUCTS, Order, Product, amount

_MOST_NODES = 250
Arguments = Mapping[str, Any]
Source = dict[str, Any]


def roots() -> Source:
    """The lists and the shop."""
    return {"orders": _connection(ORDERS, order), "products": _connection(PRODUCTS, product)}


def product(one: Product) -> Source:
    """A product."""
    return {"__typename": "Product", "id": f"gid://shopify/Product/{one.number}", "title": one.title,
            "price": amount(one.cents)}  # fmt: skip


def order(one: Order) -> Source:
    """An order, with its lines as a list of their own."""
    gid = f"gid://shopify/Order/{one.number}"
    lines = [
        {
            "__typename": "LineItem",
            "id": f"gid://shopify/LineItem/{one.number}{place}",
            "title": line.title,
            "quantity": 1,
        }
        for place, line in enumerate(one.lines)
    ]
    return {
        "__typename": "Order",
        "id": gid,
        "name": f"#{one.number}",
        "email": one.email,
        "totalPrice": amount(one.cents),
        "lineItems": _connection(lines, dict),
    }


def product_update(arguments: Arguments) -> Source:
    """Changes nothing: tells what the real one would say of it."""
    told = arguments.get("product") or arguments.get("input") or {}
    found = next((one for one in PRODUCTS if product(one)["id"] == told.get("id")), None)
    if found is None:
        return {"product": None, "userErrors": [{"field": ["id"], "message": "Product does not exist"}]}
    title = told.get("title", found.title)
    if not str(title).strip():
        return {"product": None, "userErrors": [{"field": ["title"], "message": "Title can't be blank"}]}
    return {"product": product(found) | {"title": title}, "userErrors": []}


def _connection(items: Sequence[Any], shown: Callable[[Any], Source]) -> Callable[[Arguments], Source]:
    """A list as it answers to ``first`` and ``after``; without them, all of it."""

    def page(arguments: Arguments) -> Source:
        start = _place(arguments.get("after"))
        count = arguments.get("first")
        end = start + min(count, _MOST_NODES) if isinstance(count, int) else len(items)
        nodes = [shown(item) for item in items[start:end]]
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


def _cursor(place: int) -> str:
    return base64.b64encode(f"after:{place}".encode()).decode()


def _place(cursor: object) -> int:
    if not isinstance(cursor, str):
        return 0
    try:
        return int(base64.b64decode(cursor).decode().removeprefix("after:"))
    except ValueError:
        return 0
