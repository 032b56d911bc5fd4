"""The transport's verdict against the server's ledger: what left, what did not, and nothing twice.

These tests pin behaviour of aiohttp that the refresh of single-use tokens rests on (D7, R6, E39, E43).
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import aiohttp
import pytest
import uvloop

from fairlead.adapters.http import AddressPolicy, AiohttpTokenTransport
from fairlead.adapters.http.token_transport import TransportSettings
from fairlead.engine.ports import Answered, NoAnswer, TokenCall
from fairlead.errors import InputInvalid
from fairlead.secret import Secret
from tests.contract.raw_server import BODY, OK, RawConnection, RawServer, answer_all, say_once, tls_contexts

PRIVATE = AddressPolicy(allow_private=True)
SECRET = "refresh-token-canary"


def call_of(url: str, *, deadline_s: float = 5.0, reuse: bool = True, **headers: str) -> TokenCall:
    return TokenCall(
        url=url,
        headers={name.replace("_", "-"): Secret(value) for name, value in headers.items()},
        form={"grant_type": Secret("refresh_token"), "refresh_token": Secret(SECRET)},
        deadline_s=deadline_s,
        reuse_connection=reuse,
    )


async def let_it_go() -> None:
    """A hook that has no objection."""


@pytest.fixture
async def transport() -> AsyncIterator[AiohttpTokenTransport]:
    async with AiohttpTokenTransport(policy=PRIVATE) as made:
        yield made


# ---- the hook


async def test_the_hook_runs_after_connect_and_before_the_first_byte(
    transport: AiohttpTokenTransport,
) -> None:
    async with RawServer() as server:
        seen: list[int] = []

        async def before_sent() -> None:
            await server.connected.wait()
            await asyncio.sleep(0.02)  # time for any byte that were on its way
            seen.append(server.received)

        answer = await transport.send(call_of(server.url), before_sent)
        assert isinstance(answer, Answered)
        assert (answer.status, answer.body) == (200, BODY)
        assert answer.headers["content-type"] == ("application/json",)
        assert seen == [0]
        assert server.arrivals[0].endswith(f"grant_type=refresh_token&refresh_token={SECRET}".encode())


@pytest.mark.parametrize(
    "error",
    [
        LookupError("not ours any more"),
        ConnectionRefusedError(111, "the database is away"),
        TimeoutError("the database is slow"),
        aiohttp.ServerDisconnectedError(),
    ],
    ids=lambda error: type(error).__name__,
)
async def test_what_the_hook_raises_comes_out_and_nothing_is_sent(error: Exception) -> None:
    async with RawServer() as server, AiohttpTokenTransport(policy=PRIVATE) as transport:

        async def before_sent() -> None:
            await server.connected.wait()
            raise error

        for reuse in (True, False):
            with pytest.raises(type(error)) as raised:
                await transport.send(call_of(server.url, reuse=reuse), before_sent)
            assert raised.value is error
        assert await transport.send(call_of(server.url), let_it_go) != NoAnswer  # the pool is sound
        await transport.close()
        await server.quiet()
        assert len(server.arrivals) == 1
        assert server.received == len(server.arrivals[0])


async def test_a_deadline_within_the_hook_is_not_sent(transport: AiohttpTokenTransport) -> None:
    async with RawServer() as server:
        answer = await transport.send(call_of(server.url, deadline_s=0.1), asyncio.Event().wait)  # type: ignore[arg-type]
        assert answer == NoAnswer(sent=False, why="not connected before the deadline")
        await transport.close()
        await server.quiet()
        assert server.received == 0


async def test_a_cancelled_hook_sends_nothing(transport: AiohttpTokenTransport) -> None:
    async with RawServer() as server:
        asked = asyncio.Event()

        async def before_sent() -> None:
            asked.set()
            await asyncio.Event().wait()

        task = asyncio.create_task(transport.send(call_of(server.url), before_sent))
        await asked.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await transport.close()
        await server.quiet()
        assert server.received == 0


async def test_a_server_that_hangs_up_during_the_hook_got_nothing(transport: AiohttpTokenTransport) -> None:
    hung_up = asyncio.Event()

    async def script(connection: RawConnection) -> None:
        connection.hang_up()
        hung_up.set()

    async with RawServer(script) as server:

        async def before_sent() -> None:
            await hung_up.wait()
            await asyncio.sleep(0.05)

        answer = await transport.send(call_of(server.url), before_sent)
        assert answer == NoAnswer(sent=False, why="connection lost before the request was written")
        await server.quiet()
        assert server.received == 0


async def test_an_answer_that_comes_before_the_request_is_not_taken(transport: AiohttpTokenTransport) -> None:
    async def script(connection: RawConnection) -> None:
        await connection.say(OK)

    async with RawServer(script) as server:
        answer = await transport.send(call_of(server.url), lambda: asyncio.sleep(0.05))
        assert answer == NoAnswer(sent=False, why="connection lost before the request was written")
        await server.quiet()
        assert server.received == 0


# ---- what never left


async def test_refused_connections_and_unknown_names_are_not_sent(transport: AiohttpTokenTransport) -> None:
    async with RawServer() as server:
        closed_port = server.port
    asked: list[str] = []

    async def before_sent() -> None:
        asked.append("asked")

    refused = await transport.send(call_of(f"http://127.0.0.1:{closed_port}/t"), before_sent)
    unknown = await transport.send(call_of("http://nowhere.invalid/t"), before_sent)
    assert refused == NoAnswer(sent=False, why="connect failed (ECONNREFUSED)")
    assert isinstance(unknown, NoAnswer)
    assert (unknown.sent, unknown.why.split(" (")[0]) == (False, "name not resolved")
    assert asked == []


async def test_a_certificate_that_is_not_trusted_stops_before_the_hook(tmp_path: Path) -> None:
    server_tls, _ = tls_contexts(tmp_path)
    async with RawServer(tls=server_tls) as server, AiohttpTokenTransport(policy=PRIVATE) as transport:

        async def before_sent() -> None:
            raise AssertionError("asked before the handshake was done")

        answer = await transport.send(call_of(server.url), before_sent)
        assert isinstance(answer, NoAnswer)
        assert (answer.sent, answer.why) == (False, "TLS certificate not accepted")


async def test_tls_is_done_when_the_hook_is_asked(tmp_path: Path) -> None:
    server_tls, client_tls = tls_contexts(tmp_path)
    async with (
        RawServer(tls=server_tls) as server,
        AiohttpTokenTransport(policy=PRIVATE, tls=client_tls) as transport,
    ):

        async def before_sent() -> None:
            await server.connected.wait()  # asyncio reports a TLS connection once its handshake is done
            assert server.received == sum(map(len, server.arrivals))

        for _ in range(3):  # the second and third on the kept connection, session tickets and all
            assert isinstance(await transport.send(call_of(server.url), before_sent), Answered)
        assert len(server.connections) == 1
        assert client_tls.verify_mode is ssl.CERT_REQUIRED


async def test_a_full_pool_is_not_sent() -> None:
    settings = TransportSettings(max_connections=1, connect_timeout_s=0.1)
    release = asyncio.Event()

    async def script(connection: RawConnection) -> None:
        await connection.request()
        await release.wait()
        await connection.say(OK)

    async with RawServer(script) as server, AiohttpTokenTransport(settings, policy=PRIVATE) as transport:
        first = asyncio.create_task(transport.send(call_of(server.url), let_it_go))
        await server.connected.wait()
        second = await transport.send(call_of(server.url), let_it_go)
        assert second == NoAnswer(sent=False, why="connect timed out")
        release.set()
        assert isinstance(await first, Answered)
        assert len(server.arrivals) == 1


# ---- cut after it left


@pytest.mark.slow
async def test_an_answer_cut_at_each_byte_is_unknown(transport: AiohttpTokenTransport) -> None:
    for length in range(len(OK)):
        async with RawServer(say_once(OK[:length])) as server:
            answer = await transport.send(call_of(server.url, reuse=False), let_it_go)
            assert isinstance(answer, NoAnswer), f"{length} of {len(OK)} bytes were taken for an answer"
            assert answer.sent
            assert len(server.arrivals) == 1


@pytest.mark.parametrize("bytes_read", [0, 1, 60])
async def test_a_request_cut_by_the_server_is_unknown(
    transport: AiohttpTokenTransport, bytes_read: int
) -> None:
    async def script(connection: RawConnection) -> None:
        while len(connection.received) < bytes_read:
            await connection.more()
        if bytes_read == 0:
            await asyncio.sleep(0.05)
        connection.hang_up(reset=True)

    async with RawServer(script) as server:
        answer = await transport.send(call_of(server.url), let_it_go)
        assert isinstance(answer, NoAnswer)
        assert answer.sent


async def test_an_error_is_an_answer_and_a_redirect_is_not_followed(transport: AiohttpTokenTransport) -> None:
    async with RawServer() as elsewhere:
        moved = f"HTTP/1.1 307 Moved\r\nLocation: {elsewhere.url}\r\nContent-Length: 0\r\n\r\n".encode()
        for data, status in ((moved, 307), (b"HTTP/1.1 503 No\r\nContent-Length: 0\r\n\r\n", 503)):
            async with RawServer(say_once(data)) as server:
                answer = await transport.send(call_of(server.url), let_it_go)
                assert isinstance(answer, Answered)
                assert answer.status == status
        assert elsewhere.connections == []


# ---- kept connections


async def test_connections_are_kept_only_where_that_is_allowed(transport: AiohttpTokenTransport) -> None:
    async with RawServer() as server:
        for reuse in (True, True, False, False, True):
            assert isinstance(await transport.send(call_of(server.url, reuse=reuse), let_it_go), Answered)
        assert [len(connection.arrivals) for connection in server.connections] == [3, 1, 1]
        assert b"connection: close" in server.connections[1].arrivals[0].lower()


@pytest.mark.parametrize("pause_s", [0.0, 0.05], ids=["unnoticed", "noticed"])
async def test_a_connection_that_died_while_idle_is_not_used(
    transport: AiohttpTokenTransport, pause_s: float
) -> None:
    async def script(connection: RawConnection) -> None:
        await connection.request()
        await connection.say(OK)
        connection.hang_up()

    async with RawServer(script) as server:
        for _ in range(20):
            assert isinstance(await transport.send(call_of(server.url), let_it_go), Answered)
            if pause_s:
                await asyncio.sleep(pause_s)
        assert len(server.arrivals) == 20


async def test_a_post_is_never_sent_again_by_itself(transport: AiohttpTokenTransport) -> None:
    """The server takes the second request on a kept connection and hangs up: aiohttp must not repeat it."""

    async def script(connection: RawConnection) -> None:
        await connection.request()
        await connection.say(OK)
        await connection.request()
        connection.hang_up(reset=True)

    async with RawServer(script) as server:
        assert isinstance(await transport.send(call_of(server.url), let_it_go), Answered)
        asked: list[str] = []

        async def before_sent() -> None:
            asked.append("asked")

        answer = await transport.send(call_of(server.url), before_sent)
        assert isinstance(answer, NoAnswer)
        assert answer.sent
        assert len(asked) == 1
        assert [len(connection.arrivals) for connection in server.connections] == [2]


@pytest.mark.parametrize("pause_s", [0.0, 0.05], ids=["together", "later"])
async def test_bytes_left_over_are_no_answer_to_the_next_request(
    transport: AiohttpTokenTransport, pause_s: float
) -> None:
    stale = OK.replace(b"true", b"null")

    async def script(connection: RawConnection) -> None:
        while await connection.request() is not None:
            await connection.say(OK if pause_s else OK + stale)
            if pause_s:
                await asyncio.sleep(pause_s / 2)
                await connection.say(stale)

    async with RawServer(script) as server:
        for _ in range(3):
            answer = await transport.send(call_of(server.url), let_it_go)
            assert isinstance(answer, Answered)
            assert answer.body == BODY
            await asyncio.sleep(pause_s)
        assert len(server.connections) == 3


async def test_no_cookie_is_kept(transport: AiohttpTokenTransport) -> None:
    async def script(connection: RawConnection) -> None:
        while await connection.request() is not None:
            await connection.say(OK.replace(b"\r\n\r\n", b"\r\nSet-Cookie: session=1\r\n\r\n"))

    async with RawServer(script) as server:
        for _ in range(2):
            await transport.send(call_of(server.url.replace("127.0.0.1", "localhost")), let_it_go)
        assert len(server.arrivals) == 2
        assert not any(b"cookie" in request.lower() for request in server.arrivals)


# ---- deadlines and cancellation


@pytest.mark.parametrize("part", ["head", "body"])
async def test_a_slow_answer_ends_at_the_deadline(transport: AiohttpTokenTransport, part: str) -> None:
    async def script(connection: RawConnection) -> None:
        await connection.request()
        sent = (
            b"HTTP/1.1 200 OK\r\nX: " if part == "head" else b"HTTP/1.1 200 OK\r\nContent-Length: 900\r\n\r\n"
        )
        await connection.say(sent)
        while True:
            await connection.say(b"x")
            await asyncio.sleep(0.02)

    async with RawServer(script) as server:
        started = asyncio.get_running_loop().time()
        answer = await transport.send(call_of(server.url, deadline_s=0.2), let_it_go)
        assert answer == NoAnswer(sent=True, why="no complete answer before the deadline")
        assert asyncio.get_running_loop().time() - started < 0.7


@pytest.mark.slow
async def test_e39_the_pool_stays_sound_under_cancellation() -> None:
    """F1 in small: 20 tasks, 10 connections, thousands of cancels at random points."""

    async def script(connection: RawConnection) -> None:
        while await connection.request() is not None:
            await asyncio.sleep(0.001)
            await connection.say(OK)

    settings = TransportSettings(max_connections=10, max_per_host=10)
    async with RawServer(script) as server, AiohttpTokenTransport(settings, policy=PRIVATE) as transport:
        cancelled = 0

        async def churn(seed: int) -> None:
            nonlocal cancelled
            for step in range(100):
                task = asyncio.create_task(transport.send(call_of(server.url, reuse=step % 3 > 0), let_it_go))
                await asyncio.sleep((seed * 7 + step * 13) % 11 * 0.0004)
                cancelled += task.cancel()
                await asyncio.wait([task])

        await asyncio.gather(*(churn(seed) for seed in range(20)))
        assert cancelled > 500
        for reuse in (True, False):
            probes = [transport.send(call_of(server.url, reuse=reuse), let_it_go) for _ in range(20)]
            assert all(isinstance(answer, Answered) for answer in await asyncio.gather(*probes))


# ---- addresses, calls that cannot be made, and what is told


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::ffff:127.0.0.1]", "2130706433", "0x7f000001"])
async def test_private_addresses_are_refused_unless_asked_for(host: str) -> None:
    async with RawServer() as server, AiohttpTokenTransport() as transport:
        answer = await transport.send(call_of(f"http://{host}:{server.port}/t"), let_it_go)
        assert isinstance(answer, NoAnswer)
        assert not answer.sent
        assert answer.why.startswith("address refused")
        assert server.connections == []


async def test_a_private_host_can_be_allowed_by_name() -> None:
    policy = AddressPolicy(private_hosts=frozenset({"localhost"}))
    async with RawServer() as server, AiohttpTokenTransport(policy=policy) as transport:
        by_name = await transport.send(call_of(f"http://localhost:{server.port}/t"), let_it_go)
        by_address = await transport.send(call_of(server.url), let_it_go)
        assert isinstance(by_name, Answered)
        assert by_address == NoAnswer(sent=False, why="address refused: the host leads to a loopback address")


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
async def test_what_cannot_be_put_into_http_is_a_wrong_call(
    transport: AiohttpTokenTransport, url: str, headers: dict[str, str]
) -> None:
    async def before_sent() -> None:
        raise AssertionError("asked for a call that cannot be made")

    with pytest.raises(InputInvalid) as raised:
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
        say_once(b"garbage that repeats " + SECRET.encode() + b"\r\n\r\n"),
        say_once(b""),
        say_once(OK[:60]),
    ]
    async with AiohttpTokenTransport(policy=PRIVATE) as transport:
        for script in scripts:
            async with RawServer(script) as server:
                answer = await transport.send(call_of(server.url), let_it_go)
                assert isinstance(answer, NoAnswer)
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
            assert isinstance(await plain.send(call_of(server.url), let_it_go), Answered)
            assert proxy.connections == []
        async with AiohttpTokenTransport(trust_env=True) as proxied:
            assert isinstance(await proxied.send(call_of("http://token.example/t"), let_it_go), Answered)
        assert proxy.arrivals[0].startswith(b"POST http://token.example/t HTTP/1.1")
        assert b"authorization" not in proxy.arrivals[0].lower()


def test_it_works_on_uvloop() -> None:
    async def run() -> None:
        async with RawServer(answer_all) as server, AiohttpTokenTransport(policy=PRIVATE) as transport:
            for _ in range(3):
                assert isinstance(await transport.send(call_of(server.url), let_it_go), Answered)
            assert len(server.connections) == 1

            async def before_sent() -> None:
                raise LookupError

            with pytest.raises(LookupError):
                await transport.send(call_of(server.url), before_sent)
            assert len(server.arrivals) == 3

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(run())
