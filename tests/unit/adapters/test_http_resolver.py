"""A name that anybody may choose makes no process look sick, and holds up no look-up of other names."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from fairlead.adapters.http import resolver as looking
from fairlead.adapters.http.resolver import AddressPolicy, CheckedResolver

ADDRESS = (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("8.8.8.8", 443))
INNER = (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("10.1.2.3", 443))


class NameServers:
    """What the system's resolver says of each name; *lame*: of which they get no answer themselves."""

    def __init__(self) -> None:
        self.are_down = False
        self.lame = "lame"
        self.asked: list[str] = []
        self.release = threading.Event()

    def getaddrinfo(self, host: str, *_args: object) -> list[Any]:
        self.asked.append(host)
        if host.startswith("slow"):
            self.release.wait(30)
        if host == "of-hosts-file":
            return [INNER]
        if self.are_down or host.startswith((self.lame, "slow")):
            raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")
        return [ADDRESS]


@pytest.fixture
def servers(monkeypatch: pytest.MonkeyPatch) -> Iterator[NameServers]:
    name_servers = NameServers()
    monkeypatch.setattr(socket, "getaddrinfo", name_servers.getaddrinfo)
    yield name_servers
    name_servers.release.set()


async def failure(resolver: CheckedResolver, host: str) -> OSError:
    with pytest.raises(OSError) as raised:
        await resolver.resolve(host, 443)
    return raised.value


async def test_name_without_an_answer_is_at_fault_itself_while_others_are_found(servers: NameServers) -> None:
    resolver = CheckedResolver(AddressPolicy())
    await resolver.resolve("vendor.example", 443)
    for host in ("lame-1.example", "lame-2.example"):
        assert not isinstance(await failure(resolver, host), socket.gaierror)
    servers.are_down = True
    for host in ("vendor.example", "lame-1.example"):
        assert isinstance(await failure(resolver, host), socket.gaierror)
    await resolver.close()


async def test_the_names_of_one_tenant_are_not_all_that_is_asked_about(servers: NameServers) -> None:
    resolver = CheckedResolver(AddressPolicy())
    for host in ("vendor.example", *(f"theirs-{number}.example" for number in range(5))):
        await resolver.resolve(host, 443)
    servers.lame = "theirs"
    assert not isinstance(await failure(resolver, "theirs-0.example"), socket.gaierror)
    await resolver.close()


async def test_a_name_in_a_file_of_the_host_says_nothing_of_its_name_servers(servers: NameServers) -> None:
    resolver = CheckedResolver(AddressPolicy(allow_private=True))
    await resolver.resolve("of-hosts-file", 443)
    await resolver.resolve("vendor.example", 443)
    servers.are_down = True
    assert isinstance(await failure(resolver, "vendor.example"), socket.gaierror)
    await resolver.close()


async def test_names_without_an_answer_hold_up_no_other(
    servers: NameServers, monkeypatch: pytest.MonkeyPatch
) -> None:
    resolver = CheckedResolver(AddressPolicy(), threads=2)
    await resolver.resolve("vendor.example", 443)
    slow = [asyncio.create_task(failure(resolver, f"slow-{number}.example")) for number in range(4)]
    while len(servers.asked) < 3:  # both threads for names that were not found before are busy
        await asyncio.sleep(0)
    assert await resolver.resolve("vendor.example", 443)
    servers.release.set()
    await asyncio.gather(*slow)
    await resolver.close()


async def test_name_servers_that_say_nothing_are_a_fault_in_time(
    servers: NameServers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(looking, "ANSWER_S", 0.01)
    resolver = CheckedResolver(AddressPolicy())
    assert isinstance(await failure(resolver, "slow.example"), socket.gaierror)
    servers.release.set()
    await resolver.close()
