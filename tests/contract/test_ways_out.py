"""How requests leave a network with a proxy, a certificate authority and ports of its own."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from fairlead.adapters.http import AiohttpTransport
from fairlead.adapters.local.system import SystemClock, draw
from fairlead.assembly.calls import HttpClients
from fairlead.assembly.config import load
from fairlead.engine.ports import HttpResponse, NoResponse, Webhook
from fairlead.errors import InvalidConfigError
from tests.contract.calls import request_of
from tests.contract.raw_server import OK, RawConnection, RawServer, tls_contexts
from tests.contract.token_calls import call_of, let_it_go

NOTICES = {
    "FAIRLEAD_NOTIFICATIONS__WEBHOOK_URL": "http://hooks.example/hooks",
    "FAIRLEAD_NOTIFICATIONS__WEBHOOK_SECRET": "whsec_" + "QUJD" * 8,
    "FAIRLEAD_HTTP__ALLOW_PRIVATE_ADDRESSES": "true",
}
NOTICE = Webhook("0192f0c1-2b3c-7def-8abc-0123456789ab", "acme", "xero", b"{}")


@asynccontextmanager
async def wires(**settings: str) -> AsyncIterator[HttpClients]:
    """All ways out of a process with these settings of `[http]`."""
    environ = {f"FAIRLEAD_HTTP__{name.upper()}": value for name, value in settings.items()}
    clients = HttpClients(
        load({**NOTICES, **environ}).settings, None, clock=SystemClock(), draw=draw, emit=lambda event: None
    )
    try:
        yield clients
    finally:
        await clients.close()


async def test_the_setting_has_all_that_leaves_go_through_the_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    async def answer(connection: RawConnection) -> None:
        while await connection.request() is not None:
            await connection.send(OK)

    async with RawServer(answer) as proxy:
        monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{proxy.port}")
        monkeypatch.delenv("no_proxy", raising=False)
        async with wires(trust_env="true") as clients:
            assert clients.webhook is not None
            assert isinstance(await clients.calls.send(request_of("http://api.example/t")), HttpResponse)
            answered = await clients.tokens.send(call_of("http://token.example/t"), let_it_go)
            assert isinstance(answered, HttpResponse)
            await clients.webhook.send(NOTICE)
        targets = [arrival.split(b" ", 2)[1] for arrival in proxy.arrivals]
        assert targets == [b"http://api.example/t", b"http://token.example/t", b"http://hooks.example/hooks"]


async def test_without_it_none_goes_there(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(*_args: object) -> None:
        raise socket.gaierror("no such name")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    async with RawServer() as proxy:
        monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{proxy.port}")
        async with wires() as clients:
            assert isinstance(await clients.calls.send(request_of("http://api.example/t")), NoResponse)
        assert proxy.connections == []


@asynccontextmanager
async def tunnels(port: int) -> AsyncIterator[tuple[int, list[bytes]]]:
    """A proxy that connects whoever asks with *port* of this host: its own port, and what it read."""
    requests: list[bytes] = []
    tasks: set[asyncio.Task[None]] = set()

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            while data := await reader.read(1 << 16):
                writer.write(data)
                await writer.drain()
        writer.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        requests.append(await reader.readuntil(b"\r\n\r\n"))
        there = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        tasks.update(map(asyncio.create_task, (pump(reader, there[1]), pump(there[0], writer))))

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1], requests
    finally:
        server.close()
        await asyncio.wait(tasks)


async def test_https_goes_through_a_tunnel_of_the_proxy(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The proxy sees the host and no token; public addresses only, and the proxy is none."""
    theirs, trusted = tls_contexts(tmp_path, "api.example.com")
    async with RawServer(tls=theirs) as server, tunnels(server.port) as (port, requests):
        monkeypatch.setenv("https_proxy", f"http://user:proxy-password@127.0.0.1:{port}")
        monkeypatch.delenv("no_proxy", raising=False)
        async with AiohttpTransport(tls=trusted, trust_env=True) as transport:
            for _ in range(2):
                answer = await transport.send(request_of("https://api.example.com/t"))
                assert isinstance(answer, HttpResponse), answer
        assert len(server.arrivals) == 2
        (head,) = requests
        assert head.startswith(b"CONNECT api.example.com:443 HTTP/1.1\r\n")
        assert b"Proxy-Authorization: Basic " in head
        assert b"canary" not in head
        assert not any(b"proxy-authorization" in arrival.lower() for arrival in server.arrivals)


CALL = """
import asyncio, sys
from fairlead.adapters.http import AddressPolicy, AiohttpTransport
from fairlead.engine.ports import HttpResponse, HttpRequest

async def main():
    async with AiohttpTransport(policy=AddressPolicy(allow_private=True)) as transport:
        request = HttpRequest("GET", sys.argv[1], {}, None, 10.0, 1000)
        came = await transport.send(request)
        print(came.status if isinstance(came, HttpResponse) else came.kind)

asyncio.run(main())
"""


async def test_a_certificate_authority_of_ones_own_is_told_by_the_environment(tmp_path: Path) -> None:
    theirs, _ = tls_contexts(tmp_path)

    async def answer_of(url: str, **environ: str) -> str:
        clean_environ = {name: value for name, value in os.environ.items() if not name.startswith("SSL_")}
        child = await asyncio.create_subprocess_exec(
            sys.executable, "-c", CALL, url, env={**clean_environ, **environ}, stdout=asyncio.subprocess.PIPE
        )
        return (await child.communicate())[0].decode().strip()

    async with RawServer(tls=theirs) as server:
        url = f"https://localhost:{server.port}/t"
        assert await answer_of(url) == "tls"
        assert await answer_of(url, SSL_CERT_FILE=str(tmp_path / "server.pem")) == "200"


@pytest.mark.parametrize(("ports", "kind"), [("", "refused_address"), ("8443, 9443", "connect")])
async def test_a_port_besides_443_has_to_be_in_the_settings(
    monkeypatch: pytest.MonkeyPatch, ports: str, kind: str
) -> None:
    async def refused(*_args: object) -> None:
        raise ConnectionRefusedError(111, "refused by the test")

    addresses = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("8.8.8.8", 8443))]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_args: addresses)
    monkeypatch.setattr(asyncio.SelectorEventLoop, "sock_connect", refused)
    settings = {"allow_private_addresses": "false", "extra_ports": ports}
    monkeypatch.setitem(NOTICES, "FAIRLEAD_NOTIFICATIONS__WEBHOOK_URL", "https://hooks.example/hooks")
    async with wires(**settings) as clients:
        response = await clients.calls.send(request_of("https://files.example.com:8443/t"))
    assert isinstance(response, NoResponse)
    assert (response.sent, response.kind) == (False, kind)
    assert ("http.extra_ports" in response.why) is (kind == "refused_address")


@pytest.mark.parametrize("ports", ["0", "65536", "https"])
def test_invalid_extra_port_is_refused(ports: str) -> None:
    with pytest.raises(InvalidConfigError):
        load({"FAIRLEAD_HTTP__EXTRA_PORTS": ports})
