"""Which calls are made at all, and that nothing shown tells a secret (S01-S04, V8, V9)."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from typing import Any

import pytest
import uvloop

from fairlead._core.secret import Secret
from fairlead.adapters.http import AddressPolicy, AiohttpTransport
from fairlead.engine.ports import TRANSPORT_HEADERS, HttpResponse, NoResponse
from fairlead.errors import InvalidInputError
from tests.contract.calls import PRIVATE, SECRET, request_of
from tests.contract.raw_server import OK, RawServer, send_once


@pytest.fixture
async def public() -> AsyncIterator[AiohttpTransport]:
    """Calls public addresses only, as in production."""
    async with AiohttpTransport() as transport:
        yield transport


@pytest.fixture
async def private() -> AsyncIterator[AiohttpTransport]:
    async with AiohttpTransport(policy=PRIVATE) as transport:
        yield transport


@pytest.fixture
def dialled(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Every address that the loop was asked to connect to; none is reached."""
    hosts: list[object] = []

    async def connect(_loop: object, _sock: object, address: object) -> None:
        hosts.append(address)
        raise ConnectionRefusedError(111, "refused by the test")

    monkeypatch.setattr(asyncio.SelectorEventLoop, "sock_connect", connect)
    return hosts


# ---- addresses (V9)

THIS_HOST = [
    "127.0.0.1", "localhost", "LOCALHOST", "localhost.", "127.1", "0", "0x7f000001", "2130706433",
    "0177.0.0.1", "127.0.0.1.", "127\u30020\u30020\u30021", "127%2e0%2e0%2e1", "\uff11\uff12\uff17.0.0.1",
    "[::1]", "[::ffff:127.0.0.1]", "[0:0:0:0:0:0:0:1]", "10.0.0.1", "192.168.0.1", "169.254.169.254",
    "[fd00:ec2::254]", "[64:ff9b::169.254.169.254]", "[2002:7f00:1::]", "192.0.0.8", "224.0.0.1", "[::]",
    "0.0.0.0",
]  # fmt: skip


@pytest.mark.parametrize("host", THIS_HOST)
async def test_no_spelling_of_an_inner_address_is_dialled(
    public: AiohttpTransport, dialled: list[object], host: str
) -> None:
    try:
        answer = await public.send(request_of(f"https://{host}/items"))
    except InvalidInputError:
        pass  # no address at all, to begin with
    else:
        assert isinstance(answer, NoResponse)
        assert not answer.sent
        assert answer.kind in ("refused_address", "dns")  # a name that nobody knows leads nowhere
        assert host not in answer.why
    assert dialled == []


@pytest.mark.parametrize("shop", ["evil.com/#", "evil.com#", "evil.com?", "evil.com:443/", "evil.com\\"])
async def test_the_host_is_that_which_the_policy_saw(
    public: AiohttpTransport, monkeypatch: pytest.MonkeyPatch, dialled: list[object], shop: str
) -> None:
    """A template that was filled badly goes where it says; the address policy judges that host, no other."""
    hosts: list[str] = []

    def getaddrinfo(host: str, port: int, *_args: object) -> list[tuple[Any, ...]]:
        hosts.append(host)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("10.0.0.1", port))]

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    try:
        answer = await public.send(request_of(f"https://{shop}.myshopify.com/admin"))
    except InvalidInputError:
        hosts.append("none")
    else:
        inner = "address refused: the host leads to a private address"
        assert answer == NoResponse(sent=False, kind="refused_address", why=inner)
    assert len(hosts) == 1
    assert dialled == []


@pytest.mark.parametrize(
    "url",
    ["http://api.example.com/", "https://api.example.com:22/", "https://api.example.com:8443/",
     "http://api.example.com:443/"],
)  # fmt: skip
async def test_public_hosts_are_called_by_https_at_its_port(
    public: AiohttpTransport, dialled: list[object], url: str
) -> None:
    answer = await public.send(request_of(url))
    assert isinstance(answer, NoResponse)
    assert (answer.sent, answer.kind) == (False, "refused_address")
    assert dialled == []


async def test_another_port_has_to_be_named(monkeypatch: pytest.MonkeyPatch, dialled: list[object]) -> None:
    addresses = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("8.8.8.8", 44300))]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_args: addresses)
    async with AiohttpTransport(policy=AddressPolicy(extra_ports=frozenset({44300}))) as transport:
        answer = await transport.send(request_of("https://erp.example.com:44300/"))
        assert isinstance(answer, NoResponse)
        assert (answer.sent, answer.kind) == (False, "connect")
        assert dialled == [("8.8.8.8", 44300)]


async def test_a_name_that_rebinds_gains_nothing(
    public: AiohttpTransport, monkeypatch: pytest.MonkeyPatch, dialled: list[object]
) -> None:
    """Public when it is checked, 127.0.0.1 when it is asked for again: it is asked for once."""
    answers = ["8.8.8.8", "127.0.0.1"]

    def getaddrinfo(_host: str, port: int, *_args: object) -> list[tuple[Any, ...]]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (answers.pop(0), port))]

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    first = await public.send(request_of("https://rebind.example.com/"))
    assert isinstance(first, NoResponse)
    assert first.kind == "connect"
    assert dialled == [("8.8.8.8", 443)]
    assert answers == ["127.0.0.1"]


async def test_a_private_host_can_be_allowed_by_name() -> None:
    policy = AddressPolicy(private_hosts=frozenset({"localhost"}))
    async with RawServer() as server, AiohttpTransport(policy=policy) as transport:
        by_name = await transport.send(request_of(f"http://localhost:{server.port}/t"))
        by_address = await transport.send(request_of(server.url))
        assert isinstance(by_name, HttpResponse)
        assert by_address == NoResponse(
            sent=False, kind="refused_address", why="address refused: it is not https"
        )


# ---- requests that cannot be made


@pytest.mark.parametrize(
    "url",
    ["https://user:password@example.com/t", "https://a@evil.com/", "ftp://example.com/t", "example.com/t",
     "https://[::1/t", "https:///t", "", "https://example.com:99999/"],
)  # fmt: skip
async def test_an_address_that_is_none_is_a_wrong_call(private: AiohttpTransport, url: str) -> None:
    with pytest.raises(InvalidInputError) as raised:
        await private.send(request_of(url))
    assert "password@" not in str(raised.value)


@pytest.mark.parametrize(
    "headers",
    [
        {"Authorization": Secret("Bearer x\r\nHost: evil")},
        {"Authorization": "Bearer x\0"},
        {"X-Name": "line\n"},
        {"X-Name": "\u2028"},
        {"X-Name": "x" * (1 << 20)},
        {"Bad name": "x"},
        {"Bad:name": "x"},
        {"Bad\r\nname": "x"},
        {"": "x"},
        *({name.title(): "1"} for name in sorted(TRANSPORT_HEADERS)),
    ],
)
async def test_a_header_that_would_break_the_request_is_a_wrong_call(
    private: AiohttpTransport, headers: dict[str, str | Secret]
) -> None:
    async with RawServer() as server:
        with pytest.raises(InvalidInputError):
            await private.send(request_of(server.url, headers=headers))
        assert server.connections == []


@pytest.mark.parametrize("method", ["", "G ET", "GET\r\nX: y", "CONNECT", "connect", "TRACE", "G\0"])
async def test_a_method_that_cannot_be_sent_is_a_wrong_call(private: AiohttpTransport, method: str) -> None:
    async with RawServer() as server:
        with pytest.raises(InvalidInputError):
            await private.send(request_of(server.url, method))
        assert server.connections == []


@pytest.mark.parametrize("fields", [{"deadline_s": float("nan")}, {"deadline_s": float("inf")},
                                    {"max_body_bytes": -1}])  # fmt: skip
async def test_a_call_without_a_bound_is_a_wrong_call(
    private: AiohttpTransport, fields: dict[str, float]
) -> None:
    with pytest.raises(InvalidInputError):
        await private.send(request_of("http://127.0.0.1/", **fields))


NAMES = ["a/b", "a\0b", "a\r\nX: y\r\n\r\nGET /other HTTP/1.1", "\u202e", "{t}", "x" * 10_000, " ", "%2e%2e",
         "a b", "\ud7ff", '"; --']  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
async def test_a_name_in_the_path_is_one_request(private: AiohttpTransport, name: str) -> None:
    async with RawServer() as server:
        answer = await private.send(request_of(f"http://127.0.0.1:{server.port}/items/{name}"))
        assert isinstance(answer, HttpResponse)
        (arrival,) = server.arrivals
        assert arrival.startswith(b"GET /items/")
        assert arrival.count(b"HTTP/1.1\r\n") == 1
        assert arrival.isascii()


async def test_an_address_that_is_well_formed_is_not_changed(private: AiohttpTransport) -> None:
    """Signatures are made over it."""
    path = "/a%2Fb/../%2e%2e/%7Bx%7D/'(*)?q=a+b%20c&r=%2B&s=a%2fb"
    async with RawServer() as server:
        await private.send(request_of(f"http://127.0.0.1:{server.port}{path}"))
        assert server.arrivals[0].startswith(f"GET {path} HTTP/1.1\r\n".encode())


# ---- what is shown


async def test_neither_a_request_nor_a_verdict_shows_what_it_holds(private: AiohttpTransport) -> None:
    url_secret, body_secret = "key-in-the-url", b"body-canary"
    for script in (send_once(b"echo " + SECRET.encode() + b"\r\n\r\n"), send_once(b""), send_once(OK[:60])):
        async with RawServer(script) as server:
            request = request_of(f"{server.url}?key={url_secret}", "POST", body_secret)
            shown = repr(request) + repr(await private.send(request))
            assert SECRET not in shown
            assert url_secret not in shown
            assert "canary" not in shown
            assert "127.0.0.1" not in shown


async def test_a_proxy_is_used_only_when_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    async with RawServer() as proxy, RawServer() as server:
        monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{proxy.port}")
        monkeypatch.setenv("no_proxy", "127.0.0.1")
        for trust_env in (False, True):  # the second is on no_proxy's list
            async with AiohttpTransport(policy=PRIVATE, trust_env=trust_env) as plain:
                assert isinstance(await plain.send(request_of(server.url)), HttpResponse)
        assert proxy.connections == []
        async with AiohttpTransport(policy=PRIVATE, trust_env=True) as proxied:
            assert isinstance(await proxied.send(request_of("http://api.example/t")), HttpResponse)
        assert proxy.arrivals[0].startswith(b"GET http://api.example/t HTTP/1.1")


async def test_the_host_of_a_proxy_is_not_called_directly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its address is exempt from the policy, and an inner one."""
    monkeypatch.setenv("http_proxy", "http://proxy.example:3128")
    async with AiohttpTransport(policy=AddressPolicy(), trust_env=True) as transport:
        response = await transport.send(request_of("https://proxy.example/"))
    assert isinstance(response, NoResponse)
    assert (response.kind, response.sent) == ("refused_address", False)


def test_transport_works_on_uvloop() -> None:
    async def run() -> None:
        async with RawServer() as server, AiohttpTransport(policy=PRIVATE) as transport:
            for body in (None, b"x", bytes(1 << 20)):
                assert isinstance(await transport.send(request_of(server.url, "POST", body)), HttpResponse)
                async with transport.stream(request_of(server.url)) as stream:
                    assert not isinstance(stream, NoResponse)
                    assert [chunk async for chunk in stream] == [b'{"ok":true}']
            assert len(server.connections) == 1

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(run())


async def test_ten_thousand_hosts_are_found_out_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each customer's shop is a host of its own."""
    urls: list[str] = []

    def note(_policy: AddressPolicy, _scheme: str, host: str, _port: int | None) -> str:
        urls.append(host)
        return "by the test"

    monkeypatch.setattr(AddressPolicy, "origin_refusal", note)
    requests = [request_of(f"https://shop-{number}.example.com/t") for number in range(10_000)]
    async with AiohttpTransport() as transport:
        for request in (*requests, *requests):
            await transport.send(request)
    assert len(urls) == len(requests)
