"""The little GraphQL of the rude Shopify: what is read, cut and counted."""

from __future__ import annotations

import pytest

from fairlead.testing.api.graphql import Field, QuerySyntaxError, cost, cut, read_query


def test_names_aliases_arguments_and_variables() -> None:
    query = read_query(
        """
        # a comment, and commas count for nothing
        query Q($n: Int! = 3, $in: [Thing!]! @x) {
            few: orders(first: $n, reverse: true, sortKey: ID, where: {tags: ["a", "b\\"c"], price: -1.5}) {
                id
            }
            ... on QueryRoot { shop { name } }
        }
        """,
        {"n": 7},
    )
    few, shop = query.fields
    assert (query.kind, few.key, few.name) == ("query", "few", "orders")
    assert few.arguments == {
        "first": 7, "reverse": True, "sortKey": "ID", "where": {"tags": ["a", 'b"c'], "price": -1.5},
    }  # fmt: skip
    assert shop == Field("shop", "shop", {}, (Field("name", "name", {}),))


def test_a_block_text_keeps_its_quotes() -> None:
    query = read_query('mutation { run(query: """{ a(b: "c") }""") { id } }')
    assert (query.kind, query.fields[0].arguments) == ("mutation", {"query": '{ a(b: "c") }'})


@pytest.mark.parametrize(
    "text",
    ["", "{", "{ a", "{ a(", "{ a(b: }", "{ a(b: 1 }", "query", "{ ~ }", '{ a(b: "c }', "{ a } ~",
     "{ a " * 50 + "}" * 50, '{ a(b: "\\x") }'],
)  # fmt: skip
def test_invalid_query_is_refused(text: str) -> None:
    with pytest.raises(QuerySyntaxError):
        read_query(text)


def test_no_more_is_given_than_was_asked_for() -> None:
    source = {
        "orders": lambda arguments: {"nodes": [{"id": n, "secret": 1} for n in range(arguments["first"])]}
    }
    query = read_query("{ a: orders(first: 2) { nodes { id none } } }")
    assert cut(source, query.fields) == {"a": {"nodes": [{"id": 0, "none": None}, {"id": 1, "none": None}]}}


@pytest.mark.parametrize(
    ("text", "points"),
    [
        ("{ shop { name } }", 1),
        ("{ orders(first: 10) { nodes { id } } }", 12),
        ("{ orders(first: 10) { edges { cursor node { id } } pageInfo { hasNextPage } } }", 12),
        ("{ orders(first: 10) { nodes { lineItems(first: 5) { nodes { id } } } } }", 2 + 10 * 8),
        ("{ orders(first: 10) { edges { node { customer { id } } } } }", 2 + 10 * 2),
        ("mutation { productUpdate(id: 1) { product { id } userErrors { field } } }", 10 + 3),
        ('{ node(id: "x") { id } }', 1),
    ],
)
def test_cost_of_a_query_is_counted(text: str, points: float) -> None:
    assert cost(read_query(text)) == points


@pytest.mark.parametrize("shape", ["nodes { id }", "edges { node { id } }"])
def test_in_the_end_what_it_gave_is_counted(shape: str) -> None:
    query = read_query(f"{{ orders(first: 10) {{ {shape} }} }}")
    nodes = [{"id": number} for number in range(3)]
    result = {
        "orders": {"nodes": nodes} if "nodes" in shape else {"edges": [{"node": node} for node in nodes]}
    }
    assert cost(query, result) == 5
