"""Webhooks against a real local server: signature, verdicts, deadlines, redirects, addresses."""

from __future__ import annotations

import asyncio
import socket
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from fairlead._core.secret import Secret
from fairlead.adapters.http.resolver import AddressPolicy
from fairlead.adapters.http.webhook import AiohttpWebhookSender
from fairlead.assembly.config import load
from fairlead.assembly.settings_mapping import webhook_transport
from fairlead.engine.ports import Webhook
from fairlead.errors import (
    FairleadError,
    InvalidConfigError,
    NotSentError,
    RequestRejectedError,
    TransientFailureError,
)
from fairlead.policy.failures.category import classify_exception
from fairlead.testing.webhook import verify

SECRET = "whsec_" + "QUJD" * 8
LOCAL = AddressPolicy(allow_private=True)
EVENT = Webhook("0192f0c1-2b3c-7def-8abc-0123456789ab", "acme", "xero", b'{"type":"needs_reauth"}')

Answer = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class Receiver:
    """A server that keeps what it is sent and answers what a test says, byte for byte."""

    def __init__(self, answer: Answer) -> None:
        self.requests: list[tuple[str, dict[str, str], bytes]] = []
        self._answer = answer
        self.url = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
            headers = dict(line.split(": ", 1) for line in head[1:] if line)
            length = next(int(value) for name, value in headers.items() if name.lower() == "content-length")
            self.requests.append((head[0], headers, await reader.readexactly(length)))
            await self._answer(reader, writer)
        except ConnectionError:
            pass
        finally:
            writer.close()


@asynccontextmanager
async def receiver(answer: Answer) -> AsyncIterator[Receiver]:
    receiver = Receiver(answer)
    server = await asyncio.start_server(receiver.serve, "127.0.0.1", 0)
    receiver.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/hooks"
    try:
        yield receiver
    finally:
        server.close()


def answering(text: str) -> Answer:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(text.encode().replace(b"\n", b"\r\n"))
        await writer.drain()

    return answer


def status(line: str, *headers: str) -> Answer:
    return answering("\n".join((f"HTTP/1.1 {line}", *headers, "Content-Length: 0", "", "")))


async def send(url: str, **options: Any) -> None:
    sender = AiohttpWebhookSender(url, Secret(SECRET), **({"policy": LOCAL} | options))
    try:
        await sender.send(EVENT)
    finally:
        await sender.close()


async def test_webhook_post_has_a_signature_that_the_receiver_checks() -> None:
    async with receiver(status("204 No Content")) as to:
        await send(to.url)
    ((line, headers, body),) = to.requests
    assert line == "POST /hooks HTTP/1.1"
    assert body == EVENT.body
    assert headers["webhook-id"] == EVENT.event_id
    assert headers["Content-Type"] == "application/json"
    assert verify(SECRET, headers, body) == {"type": "needs_reauth"}


async def test_each_try_has_its_own_timestamp_and_the_same_id() -> None:
    now = [1_700_000_000.9]
    async with receiver(status("500 Oops")) as to:
        sender = AiohttpWebhookSender(to.url, Secret(SECRET), policy=LOCAL, now=lambda: now[0])
        for _ in range(2):
            with pytest.raises(TransientFailureError):
                await sender.send(EVENT)
            now[0] += 600
        await sender.close()
    first, second = (headers for _, headers, _ in to.requests)
    assert (first["webhook-timestamp"], second["webhook-timestamp"]) == ("1700000000", "1700000600")
    assert first["webhook-signature"] != second["webhook-signature"]
    assert first["webhook-id"] == second["webhook-id"]


async def failure(answer: Answer, **options: Any) -> tuple[FairleadError, Receiver]:
    async with receiver(answer) as to:
        with pytest.raises(FairleadError) as raised:
            await send(to.url, **options)
    assert (raised.value.tenant, raised.value.provider) == ("acme", "xero")
    return raised.value, to


@pytest.mark.parametrize(
    ("line", "kind", "category"),
    [
        ("400 Bad", RequestRejectedError, "permanent_request"),
        ("401 Who", RequestRejectedError, "permanent_request"),
        ("410 Gone", RequestRejectedError, "permanent_request"),
        ("429 Slow", TransientFailureError, "transient_rate_limit"),
        ("500 Oops", TransientFailureError, "transient_server"),
        ("503 Away", TransientFailureError, "transient_server"),
    ],
)
async def test_the_status_decides(line: str, kind: type[FairleadError], category: str) -> None:
    error, to = await failure(status(line))
    assert type(error) is kind
    assert classify_exception(error).category == category
    assert len(to.requests) == 1


async def test_the_wait_asked_for_is_handed_on() -> None:
    error, _ = await failure(status("503 Away", "Retry-After: 120"))
    assert error.retry_after_s == 120
    error, _ = await failure(
        status(
            "429 Slow", "Date: Sun, 06 Nov 1994 08:49:37 GMT", "Retry-After: Sun, 06 Nov 1994 08:50:37 GMT"
        )
    )
    assert error.retry_after_s == 60


async def test_redirects_are_not_followed() -> None:
    async with receiver(status("204 No Content")) as elsewhere:
        error, to = await failure(status("307 There", f"Location: {elsewhere.url}"))
    assert isinstance(error, RequestRejectedError)
    assert "redirects are not followed" in str(error)
    assert (len(to.requests), elsewhere.requests) == (1, [])


async def test_a_slow_or_endless_body_is_not_waited_for() -> None:
    disconnected = asyncio.Event()

    async def endless(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nmore\r\n")
        await writer.drain()
        await reader.read()  # until the sender hangs up
        disconnected.set()

    async with receiver(endless) as to, asyncio.timeout(5):
        await send(to.url)
        await disconnected.wait()


async def test_a_receiver_that_does_not_answer_is_given_up_after_the_deadline() -> None:
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    error, _ = await failure(silent, deadline_s=0.05)
    assert isinstance(error, TransientFailureError)
    assert error.category == "transient_network"
    assert "0.05 s" in str(error)


@pytest.mark.parametrize(
    "text", ["", "HTTP/1.1 200", "SSH-2.0-OpenSSH_9\n", "HTTP/1.1 200 OK\nX: " + "y" * 20_000 + "\n\n"]
)
async def test_an_answer_that_is_none_is_a_failure_of_the_network(text: str) -> None:
    error, _ = await failure(answering(text))
    assert isinstance(error, TransientFailureError)
    assert error.category == "transient_network"


async def test_bound_of_a_header_is_that_of_the_settings() -> None:
    """A receiver that answers 204 with a long header would else be sent the event for hours."""
    settings = webhook_transport(load({"FAIRLEAD_HTTP__MAX_HEADER_BYTES": "32768"}).settings)
    async with receiver(status("204 No Content", "X: " + "y" * 20_000)) as to:
        await send(to.url, settings=settings)


async def test_a_closed_port_was_provably_not_reached() -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        with pytest.raises(NotSentError) as raised:
            await send(f"http://127.0.0.1:{closed.getsockname()[1]}/")
    failed = classify_exception(raised.value)
    assert (failed.category, failed.code) == ("transient_network", "not_sent_connect")


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]", "10.0.0.1", "169.254.169.254"])
async def test_private_addresses_are_refused(host: str) -> None:
    with pytest.raises(InvalidConfigError, match="may not be called"):
        await send(f"https://{host}:1/hooks", policy=AddressPolicy())


async def test_metadata_services_are_never_called() -> None:
    with pytest.raises(InvalidConfigError, match="may not be called"):
        await send("http://169.254.169.254/hooks")


@pytest.mark.parametrize(
    "url",
    ["http://example.com/hooks", "ftp://example.com/", "example.com", "https://", "https://a:b@example.com/",
     "https://[::1", "https://example.com:99999/", "https://example.com:x/", ""],
)  # fmt: skip
async def test_impossible_addresses_do_not_start(url: str) -> None:
    with pytest.raises(InvalidConfigError, match=r"notifications\.webhook_url"):
        AiohttpWebhookSender(url, Secret(SECRET))


async def test_a_secret_that_cannot_be_used_does_not_start() -> None:
    with pytest.raises(InvalidConfigError, match=r"notifications\.webhook_secret"):
        AiohttpWebhookSender("https://example.com/", Secret("short"))


async def test_nothing_that_goes_wrong_repeats_the_secret_or_the_address() -> None:
    for answer in (status("500 Oops"), answering("nonsense")):
        error, to = await failure(answer)
        text = "".join(traceback.format_exception(error))
        assert "QUJD" not in text
        assert to.url not in text
