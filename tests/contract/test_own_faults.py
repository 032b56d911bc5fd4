"""Faults of this process and its host are told apart from those of a destination, in every client."""

from __future__ import annotations

import errno
import os
import resource
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from fairlead._core.secret import Secret
from fairlead.adapters.http import AiohttpTransport, http_failures
from fairlead.adapters.http import connector as connecting
from fairlead.adapters.http.resolver import AddressPolicy, CheckedResolver
from fairlead.adapters.http.webhook import AiohttpWebhookSender
from fairlead.adapters.local.process_identity import has_spare_descriptors
from fairlead.adapters.redis.connection import connection_to
from fairlead.assembly.calls import HttpClients
from fairlead.assembly.config import load
from fairlead.engine.ports import NoResponse, Webhook
from fairlead.errors import LimiterUnavailableError, NotSentError
from fairlead.policy.failures.process_health import HINTS, is_own_fault
from fairlead.policy.jobs.job import Snooze, outcome_of_exception
from fairlead.testing import ManualClock
from fairlead.testing.api.raw import RawConnection, RawServer
from tests.contract.calls import request_of

PRIVATE = AddressPolicy(allow_private=True)


class Dials:
    """What is told of new connections."""

    def __init__(self) -> None:
        self.told: list[tuple[str, str]] = []

    def reached(self, url: str) -> None:
        self.told.append((url, "reached"))

    def failed(self, url: str, kind: str) -> None:
        self.told.append((url, kind))


@contextmanager
def no_descriptor_left() -> Iterator[None]:
    limit_before = resource.getrlimit(resource.RLIMIT_NOFILE)
    lowest_free = os.dup(2)
    os.close(lowest_free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest_free, limit_before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limit_before)


async def failure_of(url: str, dials: Dials) -> NoResponse:
    async with AiohttpTransport(policy=PRIVATE, dials=dials) as transport:
        transport._open_context()
        with no_descriptor_left():
            answer = await transport.send(request_of(url, deadline_s=5.0))
    assert isinstance(answer, NoResponse)
    return answer


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "no-such-name.invalid"])
async def test_want_of_descriptors_is_no_fault_of_the_destination(host: str) -> None:
    dials = Dials()
    answer = await failure_of(f"http://{host}:9/", dials)
    assert (answer.sent, answer.kind) == (False, "descriptors"), answer
    assert dials.told == [(f"http://{host}:9", "descriptors")]


FAULTS = pytest.mark.parametrize(
    ("error", "kind"),
    [
        (OSError(errno.ENFILE, "full"), "descriptors"),
        (OSError(errno.ENOMEM, "no memory"), "resources"),
        (OSError(errno.ENOBUFS, "no buffers"), "resources"),
        (OSError(errno.EADDRNOTAVAIL, "no address of IPv6"), "connect"),
        (socket.gaierror(socket.EAI_AGAIN, "try again"), "resolver"),
        (socket.gaierror(socket.EAI_FAIL, "failed"), "resolver"),
        (socket.gaierror(socket.EAI_NONAME, "no such name"), "dns"),
        (ConnectionRefusedError(errno.ECONNREFUSED, "refused"), "connect"),
    ],
)


def plant(monkeypatch: pytest.MonkeyPatch, error: OSError) -> None:
    """Let every new connection fail by *error*."""

    async def fails(*_args: Any, **_options: Any) -> Any:
        raise error

    if isinstance(error, socket.gaierror):
        monkeypatch.setattr(CheckedResolver, "resolve", fails)
    else:
        monkeypatch.setattr("aiohappyeyeballs.start_connection", fails)


@FAULTS
async def test_each_fault_has_its_kind(monkeypatch: pytest.MonkeyPatch, error: OSError, kind: str) -> None:
    plant(monkeypatch, error)
    dials = Dials()
    async with AiohttpTransport(policy=PRIVATE, dials=dials) as transport:
        answer = await transport.send(request_of("http://localhost:9/", deadline_s=5.0))
        assert isinstance(answer, NoResponse)
        assert (answer.sent, answer.kind) == (False, kind), answer
        assert dials.told == [("http://localhost:9", kind)]
        assert not await transport.reaches("http://localhost:9")
        assert connecting.current_request.get(None) is None


async def test_want_of_local_ports_is_no_fault_of_the_destination(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_failures, "_has_local_port", lambda: False)
    assert http_failures.not_sent_kind(OSError(errno.EADDRNOTAVAIL, "no port")) == "resources"


@pytest.mark.parametrize(
    ("status", "kind"), [(403, "connect"), (407, "proxy"), (502, "connect"), (503, "connect")]
)
async def test_proxy_that_does_not_reach_a_destination_is_not_at_fault(
    monkeypatch: pytest.MonkeyPatch, status: int, kind: str
) -> None:
    """Any tenant may name a host that no proxy finds."""

    async def script(connection: RawConnection) -> None:
        await connection.request()
        await connection.send(b"HTTP/1.1 %d No\r\nContent-Length: 0\r\n\r\n" % status)

    dials = Dials()
    async with RawServer(script) as proxy:
        monkeypatch.setenv("https_proxy", f"http://127.0.0.1:{proxy.port}")
        async with AiohttpTransport(policy=PRIVATE, trust_env=True, dials=dials) as transport:
            answer = await transport.send(request_of("https://nobody.example/", deadline_s=5.0))
    assert isinstance(answer, NoResponse)
    assert (answer.sent, answer.kind) == (False, kind), answer
    assert dials.told == [("https://nobody.example", kind)]


async def not_delivered(wires: HttpClients) -> NotSentError:
    assert wires.webhook is not None
    with pytest.raises(NotSentError) as raised:
        await wires.webhook.send(Webhook("1", "acme", "xero", b"{}"))
    return raised.value


@pytest.fixture
async def wires() -> AsyncIterator[HttpClients]:
    """All that leaves a process by HTTP, with a webhook at a port where nobody listens."""
    webhook = {"URL": "http://localhost:9/hooks", "SECRET": "0123456789abcdef"}
    environ = {f"FAIRLEAD_NOTIFICATIONS__WEBHOOK_{name}": value for name, value in webhook.items()}
    settings = load({**environ, "FAIRLEAD_HTTP__ALLOW_PRIVATE_ADDRESSES": "true"}).settings
    clients = HttpClients(settings, None, clock=ManualClock(), draw=lambda: 0.5, emit=lambda _event: None)
    yield clients
    await clients.close()


@FAULTS
async def test_webhook_that_cannot_leave_counts_as_any_call(
    monkeypatch: pytest.MonkeyPatch, wires: HttpClients, error: OSError, kind: str
) -> None:
    """A fault of the process spends no attempt of the delivery; one of the receiver does."""
    plant(monkeypatch, error)
    refused = await not_delivered(wires)
    assert refused.reason == kind, refused
    is_own = is_own_fault(kind)
    assert isinstance(outcome_of_exception(refused, draw=0.5), Snooze) is is_own
    assert HINTS.get(kind, "notifications.webhook_url") in str(refused)
    assert list(wires.watch._health.faults) == (["http://localhost:9"] if is_own else [])
    assert (wires.watch.trouble() or "").startswith("descriptors") is (kind == "descriptors")


async def test_webhook_behind_a_proxy_that_is_away_is_a_fault_of_the_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    sender = AiohttpWebhookSender(
        "http://example.com/hooks", Secret("0123456789abcdef"), policy=PRIVATE, trust_env=True
    )
    with pytest.raises(NotSentError) as raised:
        await sender.send(Webhook("1", "acme", "xero", b"{}"))
    await sender.close()
    assert raised.value.reason == "proxy"


async def test_place_is_reached_by_a_connection_of_its_own() -> None:
    listening = socket.create_server(("127.0.0.1", 0))
    url = f"http://127.0.0.1:{listening.getsockname()[1]}"
    dials = Dials()
    with listening:
        async with AiohttpTransport(policy=PRIVATE, dials=dials) as transport:
            assert await transport.reaches(url)
    assert dials.told == [(url, "reached")]


def test_redis_connection_that_cannot_be_made_is_an_error_of_ours() -> None:
    url = Secret("redis://localhost:6379/0")
    connection_to(url)
    with no_descriptor_left(), pytest.raises(LimiterUnavailableError, match="Too many open files"):
        connection_to(url)


def test_spare_descriptors_are_counted() -> None:
    assert has_spare_descriptors()
    with no_descriptor_left():
        assert not has_spare_descriptors(1)
