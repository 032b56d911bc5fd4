"""Which addresses may be called, decided on the address itself and not on its name (S02, F9).

A name is resolved once; every address it leads to is checked, and one refused address refuses the name, so
that a rebinding name gains nothing. The connector then connects to exactly these addresses. `is_global` of
the standard library is not used: it calls NAT64, 6to4 and multicast global.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections import OrderedDict
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from aiohttp.abc import AbstractResolver, ResolveResult

Network = ipaddress.IPv4Network | ipaddress.IPv6Network
Address = ipaddress.IPv4Address | ipaddress.IPv6Address

# Never called, whatever is allowed: metadata services first, as some lie inside private ranges.
_NEVER: dict[str, tuple[str, ...]] = {
    "a metadata service": ("169.254.169.254", "169.254.170.2", "168.63.129.16", "100.100.100.200",
                           "192.0.0.192", "fd00:ec2::254", "fd20:ce::254"),
    "a link-local address": ("169.254.0.0/16", "fe80::/10"),
    "a multicast or broadcast address": ("224.0.0.0/4", "255.255.255.255", "ff00::/8"),
    "an unspecified address": ("0.0.0.0/8", "::"),
    "an address that embeds another": ("::ffff:0:0/96", "::/96", "64:ff9b::/96", "64:ff9b:1::/48",
                                       "2002::/16", "2001::/32", "192.88.99.0/24"),
    "a reserved address": ("192.0.0.0/24", "192.0.2.0/24", "198.18.0.0/15", "198.51.100.0/24",
                           "203.0.113.0/24", "240.0.0.0/4", "2001::/23", "2001:db8::/32", "3fff::/20"),
}  # fmt: skip
_PRIVATE: dict[str, tuple[str, ...]] = {
    "a loopback address": ("127.0.0.0/8", "::1"),
    "a private address": ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "fc00::/7"),
}
_HTTPS_PORT = 443
_GLOBAL_V6 = ipaddress.ip_network("2000::/3")  # all that was ever given out


def _table(kinds: dict[str, tuple[str, ...]]) -> list[tuple[Network, str]]:
    return [(ipaddress.ip_network(text), kind) for kind, texts in kinds.items() for text in texts]


_LOOPBACK_V6 = ipaddress.ip_address("::1")
_NEVER_TABLE, _PRIVATE_TABLE = _table(_NEVER), _table(_PRIVATE)


ANSWER_S, OPINION_S = 4.0, 0.9
"""How long a name may take, and then others to show whether the name servers answer at all: together less
than a connection may take."""
_OPINIONS = 3
_MOST_FOUND = 4096
NO_SUCH_NAME = frozenset({socket.EAI_NONAME, getattr(socket, "EAI_NODATA", socket.EAI_NONAME)})
"""Numbers of a gaierror that is an answer: there is no such name."""


class ProxyNotResolvedError(OSError):
    """The name of the configured proxy does not resolve."""


class AddressNotAllowedError(OSError):
    """The address policy refuses the host. The text says what kind of address it is, and no address."""


@dataclass(frozen=True, slots=True)
class AddressPolicy:
    """The addresses that may be called: public ones, by https at port 443 or one of *extra_ports*.

    Loopback and private addresses may be called for all hosts with *allow_private* (for development and
    tests), and for the hosts in *private_hosts*. Spec: S03.
    """

    allow_private: bool = False
    private_hosts: frozenset[str] = frozenset()
    extra_ports: frozenset[int] = frozenset()

    def check(self, host: str, address: str) -> None:
        """Raise AddressNotAllowedError unless *address*, to which *host* resolves, may be called."""
        kind, is_private = kind_of(address)
        if kind is not None and not (is_private and self.may_be_private(host)):
            raise AddressNotAllowedError(f"the host leads to {kind}")

    def check_literal(self, host: str) -> None:
        """Do the same for a host that is itself an address, in any form, and so is not resolved."""
        address = _literal(host)
        if address is not None:
            self.check(host, address)

    def scheme_refusal(self, scheme: str, host: str) -> str | None:
        """Return why nothing may be sent to *host* by *scheme*; only private hosts may be called in clear."""
        return None if scheme == "https" or self.may_be_private(host) else "it is not https"

    def origin_refusal(self, scheme: str, host: str, port: int | None) -> str | None:
        """Return why an origin may not be called, whatever its host resolves to; None if it may."""
        if (refusal := self.scheme_refusal(scheme, host)) is not None:
            return refusal
        if port != _HTTPS_PORT and port not in self.extra_ports and not self.may_be_private(host):
            return "its port is neither 443 nor one of http.extra_ports"
        try:
            self.check_literal(host)
        except AddressNotAllowedError as refused:
            return str(refused)
        return None

    def may_be_private(self, host: str) -> bool:
        """Return whether *host* may resolve to a private address."""
        return self.allow_private or host in self.private_hosts


@lru_cache(maxsize=4096)
def kind_of(text: str) -> tuple[str | None, bool]:
    """Return the kind of the address *text* if it is restricted, and whether it is private.

    A private address may be called if the caller allows it; the other kinds never. The result is cached,
    because every request checks, mostly the same few addresses.
    """
    address = ipaddress.ip_address(text)
    private = _kind(_PRIVATE_TABLE, address)
    never = None if address == _LOOPBACK_V6 else _kind(_NEVER_TABLE, address)  # that lies in ::/96
    if never is not None or private is not None:
        return never or private, never is None
    return ("a reserved address" if address.version == 6 and address not in _GLOBAL_V6 else None), False


@lru_cache(maxsize=4096)
def _literal(host: str) -> str | None:
    """Return *host* as an address in canonical form, or None if it is a name."""
    try:
        return str(ipaddress.ip_address(host))
    except ValueError:
        try:  # 127.1, 0x7f000001, 2130706433: an HTTP client may accept what C accepts as an address
            return socket.inet_ntoa(socket.inet_aton(host))
        except (OSError, ValueError):
            return None


def _kind(table: list[tuple[Network, str]], address: Address) -> str | None:
    return next((kind for network, kind in table if address in network), None)


class CheckedResolver(AbstractResolver):
    """The system's resolver, followed by the address policy. *exempt* hosts (our own proxy) are not checked.

    Look-ups run on threads of their own. Names that resolved the last time have other threads than the rest,
    so that names without a responding server, which a tenant may choose, do not delay them. If a look-up gets
    no response, the name servers of this host are at fault only if names that resolved before do not resolve
    either.
    """

    def __init__(self, policy: AddressPolicy, exempt: Iterable[str] = (), threads: int = 8) -> None:
        self._policy = policy
        self._exempt = frozenset(exempt)
        self._resolved: OrderedDict[str, bool] = OrderedDict()  # latest last: whether public
        self._of_found, self._of_others = (
            ThreadPoolExecutor(max_workers=threads, thread_name_prefix=f"fairlead-dns-{lane}")
            for lane in ("found", "others")
        )

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        """Return all addresses of *host*; raise AddressNotAllowedError if the policy refuses one of them."""
        try:
            addresses = await self._look_up(host, port, family, ANSWER_S)
        except socket.gaierror as error:
            # Without a descriptor the resolver may report "no such name". This raises EMFILE instead.
            socket.socket().close()
            if host in self._exempt:
                raise ProxyNotResolvedError(None, "no name") from error
            if error.errno not in NO_SUCH_NAME and await self._resolves_others(host):
                raise OSError(None, "no answer for this name") from error
            raise
        except UnicodeError:  # a label that is empty or too long: no name of anything
            raise OSError(None, "no name") from None
        results: list[ResolveResult] = []
        for address_family, _, protocol, _, address in addresses:
            if host not in self._exempt:
                self._policy.check(host, str(address[0]))
            results.append(
                ResolveResult(
                    hostname=host,
                    host=str(address[0]),
                    port=port,
                    family=address_family,
                    proto=protocol,
                    flags=socket.AI_NUMERICHOST,
                )
            )
        if not results:
            raise OSError(None, "no address")
        return results

    async def _look_up(
        self, host: str, port: int, family: socket.AddressFamily, within_s: float
    ) -> list[tuple[Any, ...]]:
        """Query the system; raise its gaierror, or EAI_AGAIN without a response in *within_s*."""
        threads = self._of_found if host in self._resolved else self._of_others
        try:
            async with asyncio.timeout(within_s):
                addresses = await asyncio.get_running_loop().run_in_executor(
                    threads, lambda: socket.getaddrinfo(host, port, family, socket.SOCK_STREAM)
                )
        except OSError as error:  # a TimeoutError is one
            self._resolved.pop(host, None)
            if isinstance(error, TimeoutError):
                raise socket.gaierror(socket.EAI_AGAIN, "no answer in time") from None
            raise
        self._resolved[host] = all(kind_of(str(address[4][0]))[0] is None for address in addresses)
        self._resolved.move_to_end(host)
        if len(self._resolved) > _MOST_FOUND:
            self._resolved.popitem(last=False)
        return addresses

    async def _resolves_others(self, host: str) -> bool:
        """Return whether a public name that resolved before still does.

        Old and new names are tried, because one tenant may have chosen all of the newest. Private names may
        be in a file of this host, so that they need no name server.
        """
        others = [name for name, is_public in self._resolved.items() if is_public and name != host]
        names = {others[len(others) * part // _OPINIONS] for part in range(_OPINIONS)} if others else ()
        looks = [self._look_up(name, 0, socket.AF_UNSPEC, OPINION_S) for name in names]
        results = await asyncio.gather(*looks, return_exceptions=True)
        return any(isinstance(result, list) for result in results)

    async def close(self) -> None:
        """Accept no more look-ups; those in flight end by themselves."""
        for threads in (self._of_found, self._of_others):
            threads.shutdown(wait=False, cancel_futures=True)
