"""As much of GraphQL as `ShopifyApi` needs: parse a query, cut a result to its fields, and compute its cost.

There are no types and no validation.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

MUTATION_COST = 10.0
_CONNECTION_COST = 2.0
_DEEPEST = 40
_TOKEN = re.compile(
    r'(?:[\s,\ufeff]|#[^\n]*)*(?:("""(?:[^"]|"(?!""))*"""|"(?:[^"\\\n]|\\.)*")'
    r"|(-?[0-9]+(?:\.[0-9]+)?)|([A-Za-z_][A-Za-z0-9_]*)|(\.\.\.|[{}()\[\]:=!$@|&])|\Z)"
)
_TRANSPARENT = frozenset({"nodes", "edges", "node", "pageInfo"})


class QuerySyntaxError(ValueError):
    """The text is no query that this parser reads."""


@dataclass(frozen=True, slots=True)
class Field:
    """One requested field; *key* is its name in the response."""

    key: str
    name: str
    arguments: Mapping[str, object]
    fields: tuple[Field, ...] = ()


@dataclass(frozen=True, slots=True)
class Query:
    """One operation; *kind* is query or mutation."""

    kind: str
    fields: tuple[Field, ...]


def read_query(text: str, variables: Mapping[str, object] | None = None) -> Query:
    """Return the first operation of *text* with its variables filled in; raise QuerySyntaxError if there is none.

    >>> read_query("{ shop { name } }").fields[0].fields[0].name
    'name'
    """
    return _Reader(text, variables or {}).document()


class _Reader:
    def __init__(self, text: str, variables: Mapping[str, object]) -> None:
        self._tokens = list(_tokens(text))
        self._at = 0
        self._variables = variables

    def document(self) -> Query:
        kind = "query"
        if self._next_is("query", "mutation"):
            kind = self._take()
            while not self._next_is("{"):  # its name, and the types of its variables
                self._skip()
        return Query(kind, self._selection(0))

    def _selection(self, depth: int) -> tuple[Field, ...]:
        if depth > _DEEPEST:
            raise QuerySyntaxError("too deep")
        self._take("{")
        fields: list[Field] = []
        while not self._next_is("}"):
            if self._next_is("..."):
                fields += self._fragment(depth)
            else:
                fields.append(self._field(depth))
        self._take("}")
        return tuple(fields)

    def _fragment(self, depth: int) -> tuple[Field, ...]:
        self._take("...")
        if self._next_is("on"):
            self._take()
            self._take()
        return self._selection(depth + 1)

    def _field(self, depth: int) -> Field:
        key = name = self._take()
        if self._next_is(":"):
            self._take()
            name = self._take()
        arguments = self._arguments() if self._next_is("(") else {}
        fields = self._selection(depth + 1) if self._next_is("{") else ()
        return Field(key, name, arguments, fields)

    def _arguments(self) -> dict[str, object]:
        self._take("(")
        arguments: dict[str, object] = {}
        while not self._next_is(")"):
            name = self._take()
            self._take(":")
            arguments[name] = self._value()
        self._take(")")
        return arguments

    def _value(self) -> object:
        token = self._take()
        if token == "$":
            return self._variables.get(self._take())
        if token == "{":
            members: dict[str, object] = {}
            while not self._next_is("}"):
                name = self._take()
                self._take(":")
                members[name] = self._value()
            self._take("}")
            return members
        if token == "[":
            items = []
            while not self._next_is("]"):
                items.append(self._value())
            self._take("]")
            return items
        return _scalar(token)

    def _next_is(self, *tokens: str) -> bool:
        return self._at < len(self._tokens) and self._tokens[self._at] in tokens

    def _skip(self) -> None:
        """Skip one token, or everything in brackets."""
        if self._take() == "(":
            while not self._next_is(")"):
                self._skip()
            self._take(")")

    def _take(self, expected: str | None = None) -> str:
        if self._at >= len(self._tokens):
            raise QuerySyntaxError("unexpected end of file")
        token = self._tokens[self._at]
        if expected is not None and token != expected:
            raise QuerySyntaxError(f"expected {expected} and found {token[:40]}")
        self._at += 1
        return token


def _tokens(text: str) -> Iterator[str]:
    at = 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise QuerySyntaxError(f"unexpected character {text[at]!r}")
        at = match.end()
        if match.lastindex is not None:
            yield match[match.lastindex]
        elif at < len(text):  # the pattern matched its end, but text follows
            raise QuerySyntaxError("unexpected text")


def _scalar(token: str) -> object:
    if token.startswith('"""'):
        return token[3:-3]
    if token.startswith('"'):
        try:
            return json.loads(token)
        except ValueError:
            raise QuerySyntaxError("a text that cannot be read") from None
    if token[0] in "-0123456789":
        return float(token) if "." in token else int(token)
    return {"true": True, "false": False, "null": None}.get(token, token)  # else a word of an enum


def cut(value: object, fields: Sequence[Field]) -> object:
    """Return *value* reduced to *fields*. A callable member is called with the arguments of its field."""
    if isinstance(value, list):
        return [cut(item, fields) for item in value]
    if not isinstance(value, Mapping):
        return value
    if not fields:  # the vendor would refuse this
        return {name: member for name, member in value.items() if not callable(member)}
    members: dict[str, object] = {}
    for field in fields:
        member = value.get(field.name)
        members[field.key] = cut(member(field.arguments) if callable(member) else member, field.fields)
    return members


def cost(query: Query, result: object = None) -> float:
    """Return the points of *query* before it runs, or with its *result* the points of what it returned.

    An object costs 1, a mutation 10, a list 2 plus the cost of each node. This follows the vendor's rules; its
    formula for lists is not published.
    """
    least = MUTATION_COST * len(query.fields) if query.kind == "mutation" else 0.0
    return least + _sum(query.fields, result)


def _sum(fields: Sequence[Field], result: object) -> float:
    return sum(_cost(field, result.get(field.key) if isinstance(result, dict) else None) for field in fields)


def _cost(field: Field, result: object) -> float:
    if not field.fields:
        return 0.0
    if isinstance(result, list):
        return len(result) + sum(_sum(field.fields, item) for item in result)
    count = field.arguments.get("first", field.arguments.get("last"))
    if not isinstance(count, int):
        object_cost = 0.0 if field.name in _TRANSPARENT and not field.arguments else 1.0
        return object_cost + _sum(field.fields, result)
    return _CONNECTION_COST + (_sum(field.fields, result) if result else count * _node(field.fields))


def _node(fields: Sequence[Field]) -> float:
    """Return the points of one node of a list."""
    inner = [field for field in fields if field.name in ("nodes", "edges", "node")]
    if not inner:
        return 1.0
    return max(_node(field.fields) if field.name == "edges" else 1.0 + _sum(field.fields, None)
               for field in inner)  # fmt: skip
