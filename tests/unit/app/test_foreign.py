"""Requests of other HTTP libraries: what of them is kept, and how their answers are handed over."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from fairlead.app.client.client import Client
from fairlead.app.client.forwarding import ForwardedRequest, ForwardedResponse, deadline_of, forwarded_call
from fairlead.engine.calls.request import Call
from fairlead.engine.ports import Connection, ConnectionKey, HttpResponse, HttpStream
from fairlead.errors import CallFailedError, DependencyUnavailableError, LimitExceededError, SlotLostError
from fairlead.policy.providers.profile_load import load_profiles

KEY = ConnectionKey("acme", "openai", "default")
CALL = Call(KEY, "POST", "https://api.openai.com/v1/chat", deadline_s=60.0)
PROFILES = load_profiles()


def call(url: str, *headers: tuple[str, str], provider: str = "openai", **endpoint: str) -> Call:
    key = ConnectionKey("acme", provider, "default")
    connection = Connection(UUID(int=1), key, None, None, "client", endpoint, {})
    return forwarded_call(connection, PROFILES[provider], ForwardedRequest("GET", url, headers, None), None)


def test_the_librarys_own_credential_and_framing_are_left_out() -> None:
    prepared = call(
        "https://api.openai.com/v1/models",
        ("Authorization", "Bearer placeholder"),
        ("host", "api.openai.com"),
        ("accept-encoding", "br"),
        ("content-length", "0"),
        ("Connection", "keep-alive"),
        ("OpenAI-Organization", "org"),
        ("x-a", "1"),
        ("X-A", "2"),
    )
    assert prepared.headers == {"openai-organization": "org", "x-a": "1, 2"}
    prepared = call(
        "https://api.anthropic.com/v1/models",
        ("x-api-key", "placeholder"),
        ("anthropic-version", "2030-01-01"),
        provider="anthropic",
    )
    assert prepared.headers == {"anthropic-version": "2030-01-01"}, "the library knows which one it speaks"


@pytest.mark.parametrize(
    ("url", "api"),
    [
        ("https://my-shop.myshopify.com/admin/api/2026-01/graphql.json", "graphql"),
        ("https://my-shop.myshopify.com/admin/api/2026-01/orders.json?a=1", "rest"),
        ("https://my-shop.myshopify.com:443/admin/api/2026-01/graphql.jsonp", "rest"),
        ("https://my-shop.myshopify.com/admin/oauth/access_scopes.json", "rest"),
        ("https://[my-shop", "rest"),
    ],
)
def test_the_api_whose_address_it_is_below_has_its_limits(url: str, api: str) -> None:
    assert call(url, provider="shopify", shop="my-shop", api_version="2026-01").api == api


def test_its_deadline_is_what_was_told_or_a_long_one_of_the_library() -> None:
    timeouts = ((5.0, 600.0), (None, 600.0), (None, 5.0), (None, None))
    assert [deadline_of(*timeout) for timeout in timeouts] == [5.0, 600.0, None, None]


@pytest.mark.parametrize("name", ["httpx", "httpx2"])
def test_without_the_extra_it_is_said_what_to_install(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.delitem(sys.modules, f"fairlead.{name}", raising=False)
    with pytest.raises(DependencyUnavailableError, match=rf"fairlead\[{name}\]"):
        import_module(f"fairlead.{name}")


def test_both_libraries_are_served_by_the_same_code() -> None:
    """What is mended for one is mended for the other."""
    ours = [Path(str(import_module(f"fairlead.{name}").__file__)).read_text() for name in ("httpx", "httpx2")]
    assert ours[0].replace("httpx", "httpx2") == ours[1]
    assert len(ours[0].splitlines()) < 50, "the rest is in app/client/connection_transport.py"


# ---- answers ---------------------------------------------------------------------------------------


class Chunks:
    """An answer whose chunks are counted as they are taken; *then* is raised after the last one."""

    def __init__(self, *chunks: bytes, then: Exception | None = None) -> None:
        self.status = 200
        kind = {"content-type": ("text/event-stream",), "content-encoding": ("gzip",)}
        self.headers = {**kind, "x-a": ("1", "2")}
        self._chunks = chunks
        self._then = then
        self.taken = 0

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for chunk in self._chunks:
            self.taken += 1
            yield chunk
        if self._then:
            raise self._then


class Failure(Chunks):
    """One of no kind that is judged."""

    def __init__(self) -> None:
        super().__init__()
        self.status = 500


class Pipe:
    """A pipeline that gives *came*, or raises it."""

    def __init__(self, chunks: Chunks | Exception) -> None:
        self._came = chunks
        self.inside = False
        self.go_on = asyncio.Event()
        self.go_on.set()

    @asynccontextmanager
    async def stream(self, call: Call, *, read_whole: Callable[[HttpStream], bool]) -> AsyncIterator[Any]:
        self.inside = True
        try:
            await self.go_on.wait()
            if isinstance(self._came, Exception):
                raise self._came
            assert not read_whole(self._came)
            assert read_whole(Failure())
            yield self._came
        finally:
            self.inside = False


def forwarded(pipe: Pipe, call: Call = CALL, deadline_s: float = 60.0) -> ForwardedResponse:
    return ForwardedResponse(pipe, call, deadline_s)  # type: ignore[arg-type]


async def test_stream_is_read_no_faster_than_its_reader() -> None:
    chunks = Chunks(b"a", b"b", b"c")
    pipe = Pipe(chunks)
    answer = await forwarded(pipe).head()
    assert (answer.status, answer.error, chunks.taken) == (200, None, 1)
    assert answer.headers == [("content-type", "text/event-stream"), ("x-a", "1"), ("x-a", "2")]
    reading = aiter(answer)
    assert (await anext(reading), chunks.taken, pipe.inside) == (b"a", 1, True)
    assert [chunk async for chunk in reading] == [b"b", b"c"]
    assert not pipe.inside


@pytest.mark.parametrize("error", [CallFailedError("cut off"), SlotLostError("lost"), ValueError("a bug")])
async def test_error_of_a_stream_is_raised_to_its_reader(error: Exception) -> None:
    answer = await forwarded(Pipe(Chunks(b"a", then=error))).head()
    reading = aiter(answer)
    assert await anext(reading) == b"a"
    with pytest.raises(type(error), match=str(error).split(" hint")[0]):
        await anext(reading)


async def test_a_failed_answer_is_an_answer_and_a_refusal_is_not() -> None:
    failed = CallFailedError("no", response=HttpResponse(400, {"x-b": ("1",)}, b"why", 0.0))
    answer = await forwarded(Pipe(failed)).head()
    assert (answer.status, answer.headers, answer.error) == (400, [("x-b", "1")], failed)
    assert [chunk async for chunk in answer] == [b"why"]
    for error in (CallFailedError("no answer"), LimitExceededError("full")):
        with pytest.raises(type(error)):
            await forwarded(Pipe(error)).head()


async def test_closed_or_cancelled_reader_returns_its_place() -> None:
    pipe = Pipe(Chunks(b"a", b"b"))
    answer = await forwarded(pipe).head()
    await answer.aclose()
    assert not pipe.inside
    pipe = Pipe(Chunks(b"a"))
    pipe.go_on.clear()
    waiting = asyncio.create_task(forwarded(pipe).head())
    while not pipe.inside:
        await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert not pipe.inside


async def test_reader_of_a_closed_stream_gets_an_error() -> None:
    answer = await forwarded(Pipe(Chunks(b"a", b"b"))).head()
    reading = aiter(answer)
    await anext(reading)
    await answer.aclose()
    with pytest.raises(CallFailedError, match="closed"):
        _ = [chunk async for chunk in reading]


@pytest.mark.parametrize(("told_s", "connection_s"), [(-0.99, 60.0), (None, -0.99)])
async def test_an_answer_that_nobody_reads_does_not_hold_its_place_for_ever(
    told_s: float | None, connection_s: float
) -> None:
    pipe = Pipe(Chunks(b"a", b"b"))
    answer = await forwarded(pipe, Call(KEY, "GET", CALL.url, deadline_s=told_s), connection_s).head()
    async with asyncio.timeout(10):
        while pipe.inside:
            await asyncio.sleep(0)
    with pytest.raises(CallFailedError, match="not read within"):
        _ = [chunk async for chunk in answer]


async def test_the_deadline_of_its_connection_ends_one_that_names_none() -> None:
    pipe: Any = Pipe(Chunks(b"a", b"b"))
    pipe.config_for = lambda _connection: SimpleNamespace(settings=SimpleNamespace(deadline_s=-0.99))
    connection = Connection(UUID(int=1), KEY, None, None, "client", {}, {})

    async def read(_key: ConnectionKey, *_times_s: float | None) -> Connection:
        return connection

    pipe.connection, pipe.now_mono = read, lambda: 0.0
    nothing: Any = None
    client = Client(KEY, pipe, lambda provider, _variant: PROFILES[provider], nothing)
    answer = await client.forward(ForwardedRequest("GET", CALL.url, [], None))
    async with asyncio.timeout(10):
        while pipe.inside:
            await asyncio.sleep(0)
    with pytest.raises(CallFailedError, match="not read within"):
        _ = [chunk async for chunk in answer]
