"""A call that is written wrong is told so (InvalidInputError), and nothing of it is sent."""

from __future__ import annotations

import enum
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest

from fairlead import Client
from fairlead.app.client.forwarding import ForwardedRequest
from fairlead.app.client.request import headers_of, plain_params
from fairlead.errors import InvalidInputError
from fairlead.policy.providers.profile_load import load_profiles
from fairlead.policy.providers.profile_parts import CredentialHeader
from tests.unit.app.test_client_request import KEY, Wire, client

PROFILES = load_profiles()

HALF = "\ud800"  # of a surrogate pair: JSON of strangers may hold it, UTF-8 may not
DEEP: list[Any] = []
_inner = DEEP
for _ in range(100_000):
    _inner.append([])
    _inner = _inner[0]
HUGE = 10**5000


class Word(str, enum.Enum):  # noqa: UP042 (as of programs that are older than StrEnum)
    OPEN = "open"


class Number(int, enum.Enum):
    ONE = 1


class Plain(enum.Enum):
    A = 1


OPTIONS: list[tuple[str, Any, str]] = [
    ("headers", [("a", "b")], "headers must be a mapping, not list"),
    ("headers", {"X-Count": 1}, "must be a text by a name, not int by 'X-Count'"),
    ("headers", {"X-None": None}, "not NoneType by 'X-None'"),
    ("headers", {1: "a"}, "by a int"),
    ("params", "a=1", "params must be a mapping, not str"),
    ("params", [], "params must be a mapping, not list"),
    ("params", {1: "a"}, "a name in params is of type int"),
    ("params", {"a": b"xy"}, "'a' in params is of type bytes"),
    ("params", {"a": [b"xy"]}, "'a' in params is of type bytes"),
    ("params", {"a": {"b": 1}}, "'a' in params is of type dict"),
    ("params", {"a": {1}}, "'a' in params is of type set"),
    ("params", {"a": [[1]]}, "'a' in params is of type list"),
    ("params", {"a": Plain.A}, "'a' in params is of type Plain"),
    ("params", {"a": Decimal(1)}, "'a' in params is of type Decimal"),
    ("params", {"a": HUGE}, "'a' in params is of type int"),
    ("params", {"a": HALF}, "a text in params"),
    ("params", {HALF: "a"}, "a text in params"),
    ("data", {"a": HALF}, "a text in data"),
    ("data", {"a": b"xy"}, "'a' in data is of type bytes"),
    ("content", 5, "content must be bytes or a text, not int"),
    ("content", iter([b"a"]), "content must be bytes or a text"),
    ("content", HALF, "a text in content"),
    ("json", DEEP, "nested too deep"),
    ("json", HALF, "a text in json"),
    ("json", {1, 2}, "the body is no JSON"),
    ("cost", "1", "cost must be a number, not str"),
    ("cost", True, "cost must be a number, not bool"),
    ("wait_s", "1", "wait_s must be a number, not str"),
    ("operation", ["a"], "operation must be a text, not list"),
    ("api", ["a"], "api must be a text, not list"),
    ("idempotent", "no", "idempotent must be True or False, not str"),
    ("idempotent", 0, "idempotent must be True or False, not int"),
    ("priority", ["batch"], "is no priority"),
    ("deadline_s", "1", "deadline_s is '1'"),
    ("max_body_bytes", "1", "max_body_bytes is '1'"),
]
URL = "https://api.stripe.com/v1/charges"
CALLS: list[tuple[str, tuple[Any, ...], dict[str, Any], str]] = [
    ("request", (None, "/a"), {}, "method must be a text"),
    ("get", (None,), {}, "path must be a text, not NoneType"),
    ("get", (b"/a",), {}, "path must be a text, not bytes"),
    ("get", (f"/items/{HALF}",), {}, "the URL of the call is not valid"),
    ("get", (f"{URL}/{HALF}",), {}, "the URL of the call is not valid"),
    ("graphql", (None,), {}, "the query must be a text"),
    ("graphql", ("{ a }", [1]), {}, "variables must be a mapping"),
    ("graphql", ("{ a }", {1: 2}), {}, "the name of a variable must be a text"),
    ("graphql", ("{ a }", {"a": DEEP}), {}, "nested too deep"),
    ("bulk", (None,), {}, "the query must be a text"),
    ("soap", (None, "<a/>"), {}, "the action"),
    ("soap", ("get", None), {}, "NoneType is no element of XML"),
    ("soap", ("get", {1: 2}), {}, "int is no name of an XML element"),
    ("soap", ("get", {"a": {1: 2}}), {}, "int is no name of an XML element"),
    ("soap", ("get", {"a": [["b"]]}), {}, "list is no value of XML"),
    ("soap", ("get", {"a": object()}), {}, "object is no value of XML"),
    ("soap", ("get", {"a": Plain.A}), {}, "Plain is no value of XML"),
    ("soap", ("get", {"a": HUGE}), {}, "int is no value of XML"),
    ("soap", ("get", "<a/>"), {"header": 5}, "int is no element of XML"),
    ("soap", ("get", "<a/>"), {"version": "1.3"}, "'1.3' is no version of SOAP"),
    ("soap", ("get", "<a/>"), {"namespaces": {"a": 1}}, "a namespace of a SOAP message is no text"),
    ("soap", ("get", "<a/>"), {"namespaces": ["a"]}, "are no mapping"),
    ("soap", ("get", "<a/>"), {"headers": [("a", "b")]}, "headers must be a mapping"),
    ("paginate", (None,), {}, "path must be a text"),
    ("paginate", ("/a",), {"pagination": "requeue"}, "'requeue' is no pagination.*requeue_job"),
    ("paginate", ("/a",), {"pagination": None}, "is no pagination"),
    ("paginate", ("/a",), {"pages": "link"}, "pages must be a mapping"),
    ("paginate", ("/a",), {"items": 5}, "pages are not acceptable"),
    ("paginate", ("/a",), {"query": 5}, "the query must be a text"),
    ("paginate", ("/a",), {"query": "{ a }", "variables": [1]}, "variables must be a mapping"),
    ("paginate", ("/a",), {"query": "{ a }", "variables": {"a": DEEP}}, "nested too deep"),
    ("paginate", ("/a",), {"cursor": {"x": 1}}, "cursor is not one of a Paginator"),
    ("paginate", ("/a",), {"cursor": "x"}, "cursor is not one of a Paginator"),
    ("paginate", ("/a",), {"cursor": {"url": URL, "params": 5}}, "cursor is not one of a Paginator"),
    ("paginate", ("/a",), {"cursor": {"url": URL, "params": {"a": b"x"}}}, "'a' in params is of type bytes"),
]


async def call_method(wire: Wire, method: str, arguments: tuple[Any, ...], options: dict[str, Any]) -> None:
    api: Any = client(wire)
    if method == "paginate":
        assert [item async for item in api.paginate(*arguments, **options)] == [1]
    elif method == "bulk":
        async with api.bulk(*arguments, **options):
            pytest.fail("it was begun")
    else:
        await getattr(api, method)(*arguments, **options)


@pytest.mark.parametrize(
    ("name", "value", "why"), OPTIONS, ids=[f"{o[0]}-{n}" for n, o in enumerate(OPTIONS)]
)
async def test_an_option_of_a_wrong_type_is_told(name: str, value: Any, why: str) -> None:
    wire = Wire()
    with pytest.raises(InvalidInputError, match=why):
        await call_method(wire, "get", ("/a",), {name: value})
    assert wire.sent == []


@pytest.mark.parametrize(
    ("method", "arguments", "options", "why"), CALLS, ids=[f"{c[0]}-{n}" for n, c in enumerate(CALLS)]
)
async def test_a_call_that_is_none_is_told(
    method: str, arguments: tuple[Any, ...], options: dict[str, Any], why: str
) -> None:
    wire = Wire()
    with pytest.raises(InvalidInputError, match=why):
        await call_method(wire, method, arguments, options)
    assert wire.sent == []


def test_a_list_that_is_none_is_told_where_it_is_written() -> None:
    for options in ({"cursor": {"x": 1}}, {"pages": "link"}, {"pagination": "requeue"}):
        with pytest.raises(InvalidInputError):
            client(Wire()).paginate("/a", **options)  # type: ignore[arg-type]


async def test_another_library_says_truly_whether_it_may_be_sent_twice() -> None:
    request = ForwardedRequest("POST", URL, (), b"", idempotent="no")  # type: ignore[arg-type]
    with pytest.raises(InvalidInputError, match="idempotent must be True or False"):
        await client(Wire()).forward(request)


# ---- what is no mistake ----------------------------------------------------------------------------


@pytest.mark.parametrize("body", ["json", "data", "content"])
async def test_none_is_no_body(body: str) -> None:
    wire = Wire()
    await call_method(wire, "post", ("/a",), {body: None})
    await call_method(
        wire, "post", ("/a",), {body: None, "content": b"null"} if body != "content" else {"json": 0}
    )
    assert [(call.body, dict(call.headers)) for call in wire.sent] == [
        (None, {}),
        (b"null", {}) if body != "content" else (b"0", {"content-type": "application/json"}),
    ]


async def test_none_is_as_if_it_were_not_said() -> None:
    wire = Wire()
    most = dict.fromkeys(
        ("params", "headers", "api", "cost", "operation", "priority", "wait_s", "deadline_s", "idempotent")
    )
    await call_method(wire, "graphql", ("{ a }",), {**most, "json": None})
    await call_method(wire, "graphql", ("{ a }",), {})
    await call_method(wire, "soap", ("get", "<a/>"), most)
    await call_method(wire, "soap", ("get", "<a/>"), {})
    assert wire.sent[0] == wire.sent[1]
    assert (wire.sent[0].api, wire.sent[0].idempotent) == ("graphql", True)
    assert wire.sent[2] == wire.sent[3]
    netsuite: Any = Client(KEY, wire, lambda _name, _variant: PROFILES["netsuite"], None)  # type: ignore[arg-type]
    await netsuite.soap("get", "<a/>", api=None)
    assert wire.sent[4].api == "soap"


async def test_an_enum_of_texts_or_numbers_is_what_it_stands_for() -> None:
    wire = Wire()
    many = {"status": Word.OPEN, "page": Number.ONE, "ids": (Word.OPEN, Number.ONE, 1.5)}
    await call_method(wire, "get", ("/a",), {"params": many, "headers": {"X-Status": Word.OPEN}})
    (call,) = wire.sent
    assert call.url == "https://api.stripe.com/v1/a?status=open&page=1&ids=open&ids=1&ids=1.5"
    assert f"{call.headers['x-status']}" == "open"
    assert {type(value) for value in plain_params({"a": Word.OPEN, "b": Number.ONE}).values()} == {str}


async def test_bytes_in_all_their_forms_are_a_body() -> None:
    wire = Wire()
    for body in (b"ab", bytearray(b"ab"), memoryview(b"ab"), "ab"):
        await call_method(wire, "post", ("/a",), {"content": body})
    assert [call.body for call in wire.sent] == [b"ab"] * 4
    assert {type(call.body) for call in wire.sent} == {bytes}


# ---- headers ---------------------------------------------------------------------------------------

NOTION = CredentialHeader(fixed={"Notion-Version": "2022-06-28"})


@pytest.mark.parametrize("name", ["Notion-Version", "notion-version", "NOTION-VERSION"])
def test_a_header_that_the_profile_has_is_sent_once(name: str) -> None:
    headers = headers_of({name: "2025-09-03", "X-A": "b"}, {}, NOTION)
    assert {**NOTION.fixed, **headers} == {"Notion-Version": "2025-09-03", "x-a": "b"}


def test_the_credential_is_not_given_by_hand() -> None:
    for name in ("authorization", "Authorization"):
        with pytest.raises(InvalidInputError, match="fairlead adds the credential"):
            headers_of({name: str(UUID(int=1))}, {}, NOTION)
