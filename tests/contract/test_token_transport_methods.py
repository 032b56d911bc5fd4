"""Requests that are no token POST: the test endpoint's GET, a JSON body, a revocation by DELETE."""

from __future__ import annotations

import pytest

from fairlead._core.secret import Secret
from fairlead.adapters.http import AiohttpTokenTransport
from fairlead.engine.ports import HttpResponse, NoResponse, TokenCall
from tests.contract.raw_server import OK, RawConnection, RawServer, answer_all
from tests.contract.token_calls import PRIVATE, let_it_go


def a_call(url: str, **fields: object) -> TokenCall:
    options = {"headers": {"authorization": Secret("Bearer x")}, "form": {}, "deadline_s": 5.0}
    return TokenCall(url=url, **{**options, "reuse_connection": True, **fields})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("fields", "first_line", "kind", "body"),
    [
        ({"method": "GET"}, b"GET /oauth/token HTTP/1.1", None, b""),
        ({"method": "DELETE"}, b"DELETE /oauth/token HTTP/1.1", None, b""),
        (
            {"json_body": '{"query": "x"}'},
            b"POST /oauth/token HTTP/1.1",
            b"application/json",
            b'{"query": "x"}',
        ),
        (
            {"method": "DELETE", "form": {"token": Secret("a b")}},
            b"DELETE /oauth/token HTTP/1.1",
            b"form",
            b"token=a+b",
        ),
    ],
)
async def test_method_and_body_arrive_as_asked(
    fields: dict[str, object], first_line: bytes, kind: bytes | None, body: bytes
) -> None:
    async with RawServer(answer_all) as server, AiohttpTokenTransport(policy=PRIVATE) as transport:
        answer = await transport.send(a_call(server.url, **fields), let_it_go)
        assert isinstance(answer, HttpResponse)
        head, _, content = server.connections[0].arrivals[0].partition(b"\r\n\r\n")
        assert head.startswith(first_line)
        assert content == body
        types = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-type:")]
        assert bool(types) == (kind is not None)
        assert kind is None or kind in types[0]


async def test_a_delete_is_not_repeated_on_a_connection_that_died() -> None:
    """aiohttp repeats idempotent methods on a kept connection that turns out dead; nothing here may."""

    async def one_answer_then_silence(connection: RawConnection) -> None:
        await connection.request()
        if len(server.connections) == 1:
            await connection.send(OK)
            await connection.request()
        connection.hang_up()

    async with (
        RawServer(one_answer_then_silence) as server,
        AiohttpTokenTransport(policy=PRIVATE) as transport,
    ):
        first = await transport.send(a_call(server.url), let_it_go)
        assert isinstance(first, HttpResponse)
        second = await transport.send(a_call(server.url, method="DELETE"), let_it_go)
        assert isinstance(second, NoResponse)
        assert sum(len(connection.arrivals) for connection in server.connections) == 2
