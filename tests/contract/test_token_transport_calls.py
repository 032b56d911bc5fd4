"""Which calls are made at all, and that no verdict tells a secret (S02, S29)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
import uvloop

from fairlead.adapters.http import AddressPolicy, AiohttpTokenTransport
from fairlead.engine.ports import HttpResponse, NoResponse
from fairlead.errors import InvalidInputError
from tests.contract.raw_server import OK, RawConnection, RawServer, answer_all, send_once
from tests.contract.token_calls import PRIVATE, SECRET, call_of, let_it_go


@pytest.fixture
async def transport() -> AsyncIterator[AiohttpTokenTransport]:
    async with AiohttpTokenTransport(policy=PRIVATE) as transport:
        yield transport


# ---- addresses, calls that cannot be made, and what is told


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::ffff:127.0.0.1]", "2130706433", "0x7f000001"])
async def test_private_addresses_are_refused_unless_asked_for(host: str) -> None:
    async with RawServer() as server, AiohttpTokenTransport() as transport:
        answer = await transport.send(call_of(f"http://{host}:{server.port}/t"), let_it_go)
        assert isinstance(answer, NoResponse)
        assert not answer.sent
        assert answer.why.startswith("address refused")
        assert server.connections == []


async def test_a_private_host_can_be_allowed_by_name() -> None:
    policy = AddressPolicy(private_hosts=frozenset({"localhost"}))
    async with RawServer() as server, AiohttpTokenTransport(policy=policy) as transport:
        by_name = await transport.send(call_of(f"http://localhost:{server.port}/t"), let_it_go)
        by_address = await transport.send(call_of(server.url), let_it_go)
        assert isinstance(by_name, HttpResponse)
        assert by_address == NoResponse(
            sent=False, kind="refused_address", why="address refused: the host leads to a loopback address"
        )


@pytest.mark.parametrize(
    ("url", "headers"),
    [
        ("https://user:password@example.com/t", {}),
        ("ftp://example.com/t", {}),
        ("example.com/t", {}),
        ("https://[::1/t", {}),
        ("http://127.0.0.1/t", {"Authorization": "Basic x\r\nHost: evil"}),
        ("http://127.0.0.1/t", {"Bad header": "x"}),
    ],
)
async def test_call_that_http_cannot_express_is_refused(
    transport: AiohttpTokenTransport, url: str, headers: dict[str, str]
) -> None:
    async def before_sent() -> None:
        raise AssertionError("asked for a call that cannot be made")

    with pytest.raises(InvalidInputError) as raised:
        await transport.send(call_of(url, **headers), before_sent)
    assert "password" not in str(raised.value).replace("user and password", "")


async def test_headers_of_the_call_stand_over_ours(transport: AiohttpTokenTransport) -> None:
    async with RawServer() as server:
        await transport.send(call_of(server.url, accept="text/plain", authorization="Basic x"), let_it_go)
        lines = server.arrivals[0].split(b"\r\n\r\n")[0].split(b"\r\n")
        assert [line for line in lines if line.lower().startswith(b"accept:")] == [b"Accept: text/plain"]
        assert b"Authorization: Basic x" in lines
        assert lines[0] == b"POST /oauth/token HTTP/1.1"


async def test_no_verdict_tells_a_secret_or_an_address() -> None:
    scripts: list[Callable[[RawConnection], Awaitable[None]]] = [
        send_once(b"garbage that repeats " + SECRET.encode() + b"\r\n\r\n"),
        send_once(b""),
        send_once(OK[:60]),
    ]
    async with AiohttpTokenTransport(policy=PRIVATE) as transport:
        for script in scripts:
            async with RawServer(script) as server:
                answer = await transport.send(call_of(server.url), let_it_go)
                assert isinstance(answer, NoResponse)
                assert SECRET not in answer.why
                assert "127.0.0.1" not in answer.why


async def test_a_proxy_is_used_only_when_asked_for(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    netrc = tmp_path / "netrc"
    netrc.write_text("machine token.example login a password netrc-canary\n")
    monkeypatch.setenv("NETRC", str(netrc))
    async with RawServer() as proxy, RawServer() as server:
        monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{proxy.port}")
        monkeypatch.setenv("no_proxy", "127.0.0.1")
        async with AiohttpTokenTransport(policy=PRIVATE) as plain:
            assert isinstance(await plain.send(call_of(server.url), let_it_go), HttpResponse)
            assert proxy.connections == []
        async with AiohttpTokenTransport(policy=PRIVATE, trust_env=True) as proxied:
            assert isinstance(await proxied.send(call_of("http://token.example/t"), let_it_go), HttpResponse)
        assert proxy.arrivals[0].startswith(b"POST http://token.example/t HTTP/1.1")
        assert b"authorization" not in proxy.arrivals[0].lower()


def test_token_transport_works_on_uvloop() -> None:
    async def run() -> None:
        async with RawServer(answer_all) as server, AiohttpTokenTransport(policy=PRIVATE) as transport:
            for _ in range(3):
                assert isinstance(await transport.send(call_of(server.url), let_it_go), HttpResponse)
            assert len(server.connections) == 1

            async def before_sent() -> None:
                raise LookupError

            with pytest.raises(LookupError):
                await transport.send(call_of(server.url), before_sent)
            assert len(server.arrivals) == 3

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(run())
