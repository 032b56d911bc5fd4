"""The address policy against the addresses of F9 and V9, and a name that rebinds (S02)."""

from __future__ import annotations

import ipaddress
import socket
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.adapters.http.resolver import AddressNotAllowedError, AddressPolicy, CheckedResolver

PUBLIC = AddressPolicy()
DEVELOPMENT = AddressPolicy(allow_private=True)

PRIVATE_ADDRESSES = ["127.0.0.1", "127.255.0.9", "10.1.2.3", "172.16.0.1", "172.31.255.255", "192.168.1.1",
                     "100.64.0.1", "::1", "fc00::1", "fd12:3456::1"]  # fmt: skip
NEVER_ADDRESSES = [
    "169.254.169.254", "169.254.170.2", "168.63.129.16", "100.100.100.200", "192.0.0.192", "fd00:ec2::254",
    "0.0.0.0", "0.1.2.3", "::", "169.254.0.1", "fe80::1", "fe80::1%eth0", "224.0.0.1", "239.255.255.255",
    "255.255.255.255", "ff02::1", "240.0.0.1", "192.0.0.8", "192.0.2.1", "198.18.0.1", "198.51.100.1",
    "203.0.113.1", "192.88.99.1", "::ffff:127.0.0.1", "::ffff:8.8.8.8", "::7f00:1",
    "64:ff9b::169.254.169.254", "64:ff9b:1::1", "2002:7f00:1::", "2001:0:4136:e378:8000:63bf:3fff:fdd2",
    "2001:db8::1", "3fff::1", "4000::1", "5f00::1", "fec0::1",
]  # fmt: skip
PUBLIC_ADDRESSES = ["8.8.8.8", "1.1.1.1", "172.15.255.255", "172.32.0.0", "192.0.1.1", "100.63.255.255",
                    "223.255.255.255", "2606:4700::1111", "2a00:1450::1", "2001:4860:4860::8888"]  # fmt: skip


@pytest.mark.parametrize("address", PUBLIC_ADDRESSES)
def test_public_addresses_pass(address: str) -> None:
    PUBLIC.check("host", address)
    DEVELOPMENT.check("host", address)


@pytest.mark.parametrize("address", PRIVATE_ADDRESSES)
def test_private_addresses_pass_only_where_allowed(address: str) -> None:
    DEVELOPMENT.check("host", address)
    AddressPolicy(private_hosts=frozenset({"host"})).check("host", address)
    for policy in (PUBLIC, AddressPolicy(private_hosts=frozenset({"other"}))):
        with pytest.raises(AddressNotAllowedError):
            policy.check("host", address)


@pytest.mark.parametrize("address", NEVER_ADDRESSES)
def test_some_addresses_never_pass(address: str) -> None:
    for policy in (PUBLIC, DEVELOPMENT):
        with pytest.raises(AddressNotAllowedError) as refused:
            policy.check("host", address)
        assert address not in str(refused.value)


@given(st.ip_addresses())
def test_accepted_address_is_global_for_ipaddress_too(
    address: ipaddress.IPv4Address | ipaddress.IPv6Address,
) -> None:
    try:
        PUBLIC.check("host", str(address))
    except AddressNotAllowedError:
        return
    assert address.is_global
    assert not address.is_multicast


def resolving_to(*addresses: str) -> Any:
    def getaddrinfo(_host: str, port: int, *_args: object) -> list[tuple[Any, ...]]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in addresses]

    return getaddrinfo


async def test_name_with_a_refused_address_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    resolver = CheckedResolver(PUBLIC)
    monkeypatch.setattr(socket, "getaddrinfo", resolving_to("8.8.8.8", "8.8.4.4"))
    assert [address["host"] for address in await resolver.resolve("name", 443)] == ["8.8.8.8", "8.8.4.4"]
    monkeypatch.setattr(socket, "getaddrinfo", resolving_to("8.8.8.8", "127.0.0.1"))
    with pytest.raises(AddressNotAllowedError):
        await resolver.resolve("name", 443)
    assert len(await CheckedResolver(PUBLIC, exempt={"name"}).resolve("name", 443)) == 2
    monkeypatch.setattr(socket, "getaddrinfo", resolving_to())
    with pytest.raises(OSError, match="no address"):
        await resolver.resolve("name", 443)
    await resolver.close()
