"""From what people write to a request, and from an answer to what they read."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from typing import Any
from uuid import UUID

import pytest

import fairlead
from fairlead import Client, Fairlead, StreamedResponse
from fairlead.app.client.batch import BatchResult, retry_failed
from fairlead.app.client.headers import Headers
from fairlead.app.client.options import CallOptions, check_options
from fairlead.app.client.request import body_of, full_url, plain_params
from fairlead.app.client.response import Response
from fairlead.engine.calls.pages import Page
from fairlead.engine.calls.request import Call, CallResult
from fairlead.engine.ports import Connection, ConnectionKey, HttpResponse
from fairlead.errors import CallFailedError, InvalidConfigError, InvalidInputError, ResponseDecodingError
from fairlead.policy.calls.classify.body import parse_response
from fairlead.policy.calls.classify.classifier import classify
from fairlead.policy.calls.classify.rules import rules_of
from fairlead.policy.providers.call_settings import CallSettings
from fairlead.policy.providers.pagination import OffsetPagination, PageInfoPagination, PaginationConfig
from fairlead.policy.providers.profile_load import load_profiles
from fairlead.testing import MemoryFairlead
from tools.reference import CLIENT_TYPES

KEY = ConnectionKey("acme", "stripe", "default")
STRIPE = load_profiles()["stripe"]
CONNECTION = Connection(UUID(int=1), KEY, None, None, "client", {}, {})

# ---- options ---------------------------------------------------------------------------------------

ELSEWHERE = [
    ("timeout", 5, "deadline_s"),
    ("files", {}, "content"),
    ("auth", ("a", "b"), "credential"),
    ("cookies", {}, "headers"),
    ("follow_redirects", True, "redirects"),
    ("extensions", {}, "none"),
    ("idempotant", False, "idempotent is one"),
    ("zzz", 1, "there are api, content"),
]


@pytest.mark.parametrize(("name", "value", "hint"), ELSEWHERE)
def test_an_option_that_there_is_not_is_refused_with_what_there_is(name: str, value: Any, hint: str) -> None:
    with pytest.raises(InvalidInputError, match=f"'{name}'") as refused:
        check_options({"params": {}, name: value}, KEY)
    assert hint in refused.value.hint
    assert (refused.value.tenant, refused.value.provider) == ("acme", "stripe")


def test_all_that_there_are_pass() -> None:
    check_options(dict.fromkeys(CallOptions.__annotations__), KEY)


class Wire:
    """A pipeline that keeps what it is to send, and whose lists are one page of what was asked for."""

    def __init__(self) -> None:
        self.sent: list[Call] = []
        self.ways: list[PaginationConfig] = []

    def config_for(self, _connection: Connection) -> Any:
        return self

    settings = CallSettings()

    def now_mono(self) -> float:
        return 0.0

    async def connection(self, _key: ConnectionKey, *_times_s: float | None) -> Connection:
        return CONNECTION

    def base(self, _connection: Connection, _api: str | None) -> str:
        return "https://api.stripe.com/v1"

    async def send(self, call: Call) -> CallResult:
        self.sent.append(call)
        return call_result(b'{"data": [], "has_more": false}')

    async def pages(
        self, _key: Any, fetch: Any, pagination: PaginationConfig, first: Any
    ) -> AsyncIterator[Page]:
        self.ways.append(pagination)
        await fetch(first)
        yield Page([1], first)


def client(wire: Wire) -> Client:
    return Client(KEY, wire, lambda _name, _variant: STRIPE, None)  # type: ignore[arg-type]


@pytest.mark.parametrize("method", ["request", "get", "delete", "graphql", "soap", "stream", "paginate"])
async def test_no_way_of_a_call_lets_an_unknown_option_pass(method: str) -> None:
    wire = Wire()
    with pytest.raises(InvalidInputError, match="repeatible"):
        await call_method(client(wire), method, {"repeatible": False})
    assert wire.sent == []


async def call_method(api: Any, method: str, options: dict[str, Any]) -> None:
    if method == "stream":
        async with api.stream("GET", "/a", **options):
            pytest.fail("it was begun")
    elif method == "paginate":
        api.paginate("/a", **options)
    else:
        positional_args = {"request": ("GET", "/a"), "graphql": ("{ a }",), "soap": ("get", "<a/>")}
        await getattr(api, method)(*positional_args.get(method, ("/a",)), **options)


@pytest.mark.parametrize("method", ["graphql", "soap", "paginate"])
@pytest.mark.parametrize("body", ["json", "data", "content"])
async def test_no_body_is_left_out_in_silence(method: str, body: str) -> None:
    wire = Wire()
    options: dict[str, Any] = {"query": "{ a }"} if method == "paginate" else {}
    with pytest.raises(InvalidInputError, match=f"the body itself, and {body} is another"):
        await call_method(client(wire), method, {**options, body: b"" if body == "content" else {}})
    assert wire.sent == []


@pytest.mark.parametrize("pages", [OffsetPagination(param="from"), {"kind": "offset", "param": "from"}])
async def test_a_way_of_pages_is_taken_in_both_its_forms(pages: Any) -> None:
    wire = Wire()
    assert [item async for item in client(wire).paginate("/charges", items="rows", pages=pages)] == [1]
    assert wire.ways == [OffsetPagination(param="from", items="rows")]


# ---- parameters and forms --------------------------------------------------------------------------

PARAMS: dict[str, Any] = {"ids": ["a", 2], "deep": False, "page": None, "limit": 5, "none": []}
QUERY = "ids=a&ids=2&deep=false&limit=5"


async def test_a_list_is_asked_for_as_a_call_is_also_where_it_goes_on() -> None:
    wire = Wire()
    api = client(wire)
    await api.get("/charges", params=PARAMS)
    listing = api.paginate("/charges", params=PARAMS)
    assert [item async for item in listing] == [1]
    assert listing.cursor is not None
    again = api.paginate("/charges", cursor=json.loads(json.dumps(listing.cursor)))
    assert [item async for item in again] == [1]
    assert {call.url for call in wire.sent} == {f"https://api.stripe.com/v1/charges?{QUERY}"}
    assert len(wire.sent) == 3


async def test_the_pages_of_a_query_of_graphql_have_their_parameters_too() -> None:
    wire = Wire()
    pages = PageInfoPagination(items="data.a.nodes", page_info="data.a.pageInfo")
    listing = client(wire).paginate("", query="{ a }", params=PARAMS, pages=pages)
    assert [item async for item in listing] == [1]
    assert wire.sent[0].url == f"https://api.stripe.com/v1?{QUERY}"


def test_a_form_is_written_as_a_query_is() -> None:
    body, headers = body_of({"data": PARAMS})
    assert body == QUERY.encode()
    assert headers == {"content-type": "application/x-www-form-urlencoded"}


@pytest.mark.parametrize("payload", ["a=1", [("a", "1")], 7])
def test_data_or_params_without_a_mapping_are_refused(payload: Any) -> None:
    with pytest.raises(InvalidInputError, match="data must be a mapping"):
        body_of({"data": payload})
    with pytest.raises(InvalidInputError, match="params must be a mapping"):
        full_url("https://api.example.com", "/a", payload)
    with pytest.raises(InvalidInputError, match="params must be a mapping"):
        client(Wire()).paginate("/a", params=payload)


def test_plain_params_are_idempotent() -> None:
    plain = plain_params(PARAMS)
    assert plain_params(plain) == plain


# ---- answers ---------------------------------------------------------------------------------------


def call_result(body: bytes, **headers: tuple[str, ...]) -> CallResult:
    reply = parse_response(200, headers, body)
    answer = HttpResponse(200, headers, body, 0.0)
    return CallResult(answer, reply, classify(rules_of(STRIPE), reply, now_epoch_s=None), 2, 0.0)


def test_headers_are_found_however_their_names_are_written() -> None:
    response = Response(call_result(b"{}", link=("a", "b")), tenant="acme", provider="stripe")
    assert response.headers["Link"] == response.headers["link"] == response.headers.get("LINK") == "a, b"
    assert "X-None" not in response.headers
    assert response.headers == {"link": "a, b"}
    assert "a, b" not in repr(response.headers), "a cookie may be among them"
    streamed = StreamedResponse(Lines(), tenant="acme", provider="stripe")
    assert streamed.headers["Content-Type"] == "text/plain"
    assert len(Headers({"A": ("1",)})) == 1


class Lines:
    """A stream whose only line is long."""

    status = 200

    def __init__(self) -> None:
        self.headers = {"content-type": ("text/plain",)}

    async def __aiter__(self) -> AsyncIterator[bytes]:
        yield b"x" * 100


async def test_an_answer_that_cannot_be_read_was_sent_and_is_no_wrong_call() -> None:
    response = Response(call_result(b"<p>sorry</p>"), tenant="acme", provider="stripe")
    broken = Response(call_result(b"<p>sorry"), tenant="acme", provider="stripe")
    streamed = StreamedResponse(Lines(), tenant="acme", provider="stripe")

    async def lines() -> None:
        _ = [line async for line in streamed.aiter_lines(longest_bytes=10)]

    errors: list[CallFailedError] = []
    with pytest.raises(ResponseDecodingError) as failed:
        response.json()
    errors.append(failed.value)
    assert (failed.value.response, failed.value.attempts) == (response._result.response, 2)
    with pytest.raises(ResponseDecodingError) as failed:
        _ = broken.xml
    errors.append(failed.value)
    with pytest.raises(ResponseDecodingError) as failed:
        await lines()
    errors.append(failed.value)
    assert [error.reason for error in errors] == ["not_json", "not_xml", "line_too_long"]
    for error in errors:
        assert (error.sent, error.retryable, error.http_status) == (True, False, 502)
        assert error.category == "permanent_request", "a job that ran again would send the call again"


async def test_an_empty_batch_is_complete() -> None:
    async def send(_items: Sequence[int]) -> Response:
        raise AssertionError("there is nothing to send")

    async def may_go_on(*_: object) -> bool:
        return False

    result: BatchResult[int] = await retry_failed([], send, str, may_go_on)
    assert result.complete


# ---- where they are --------------------------------------------------------------------------------


def test_the_types_can_be_imported() -> None:
    for name in CLIENT_TYPES:
        assert name in fairlead.__all__
        assert getattr(fairlead, name).__name__ == name


def test_all_that_is_offered_is_there() -> None:
    for name in fairlead.__all__:
        assert getattr(fairlead, name) is not None
    assert set(fairlead._HOMES) == set(fairlead.__all__) - {"__version__"}


async def test_in_memory_there_are_no_calls_and_it_is_said(fl: Fairlead) -> None:
    async with MemoryFairlead(fl):
        with pytest.raises(InvalidConfigError, match="MemoryFairlead") as refused:
            fl.client("acme", "shopify")
    assert "fairlead.testing.api" in refused.value.hint
    with pytest.raises(InvalidConfigError, match="not open"):
        fl.client("acme", "shopify")
