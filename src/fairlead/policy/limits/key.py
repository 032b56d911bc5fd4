"""The keys of the gate in Redis, without collisions whatever the names of tenants are. Spec: G9, R22.

    fairlead4:{u3FbJ0w...}:b:kQ9...        prefix, domain as hash tag, kind, name within the domain

Names are hashed with their lengths in front, so that no two combinations of names are equal and none is too
long for a key. The number in the prefix is the version of the format of values. Different versions coexist
without sharing state.
"""

from __future__ import annotations

import re
from base64 import urlsafe_b64encode
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from hashlib import blake2b

from fairlead.errors import InvalidConfigError
from fairlead.policy.limits.limit import Domain

LAYOUT = 4
"""Version of what the values look like. It goes up with every change of it."""
LONGEST_PREFIX = 64


class KeyKind(StrEnum):
    """What a key holds: the registry of all that fairlead writes to Redis. Each has a time to live."""

    MARKER = "m"
    """Since when nothing was lost: birth, first grant of a slot, no reaping before, run id of the server.

    One for a server that stands alone; in a cluster one a domain and one a server.
    """
    WITNESS = "s"
    """When the server's clock was last found right, by a process that had known it for long; one beside each marker."""
    CELL = "c"
    """All numbers of a domain, in one hash: a field for each bucket, breaker, pool and quota."""
    BUCKET = "b"
    """Of a bucket, what does not fit into the cell: see Part."""
    POOL = "p"
    """The same of a pool."""
    BREAKER = "k"
    """Of a breaker, what does not fit into the cell."""


class Part(StrEnum):
    """What belongs to a bucket or a pool and has a key of its own: the ending of that key."""

    BOOKINGS = ":t"
    """Turns promised in a bucket, sorted by the end of their redemption."""
    LEASES = ":l"
    """The holders of slots of a pool, sorted by the end of the lease."""
    LINE = ":w"
    """The waiters of a class of a pool, sorted by their start. The number of the class follows."""
    ALIVE = ":a"
    """Until when waiters are known to be alive."""
    EVENTS = ":e"
    """What happened in a pool or bucket: a stream of bounded length."""
    FAILURES = ":f"
    """The latest failures that a breaker counted: a stream of bounded length."""


NAMES: Mapping[tuple[str, str], str] = {
    (KeyKind.MARKER, ""): "marker",
    (KeyKind.WITNESS, ""): "witness",
    (KeyKind.CELL, ""): "cells",
    (KeyKind.BUCKET, Part.BOOKINGS): "turns",
    (KeyKind.BUCKET, Part.EVENTS): "spends",
    (KeyKind.POOL, Part.LEASES): "leases",
    (KeyKind.POOL, Part.LINE): "lines",
    (KeyKind.POOL, Part.ALIVE): "waiters",
    (KeyKind.POOL, Part.EVENTS): "events",
    (KeyKind.BREAKER, Part.FAILURES): "failures",
}
"""Every kind of key that there is, and what people call it."""
_SHAPE = re.compile(r"(\{[\w-]{22}\}:)?([a-z])(?::[\w-]{22}(?:(:[a-z])\d?)?)?", re.ASCII)
_SERVER = re.compile(r"\{\d+\}:m", re.ASCII)
"""The marker of a cluster's server: the number is one that makes it lie there."""


@dataclass(frozen=True, slots=True)
class Keyspace:
    """All keys of one installation on a server that others may use as well. *name* distinguishes them."""

    name: str = "fairlead"

    def __post_init__(self) -> None:
        plain = self.name.isascii() and self.name.replace("-", "").replace("_", "").isalnum()
        if not plain or len(self.name) > LONGEST_PREFIX:
            raise InvalidConfigError(
                "the key prefix is not plain", hint=f"use 1 to {LONGEST_PREFIX} of a-z, A-Z, 0-9, '-', '_'"
            )

    @property
    def prefix(self) -> str:
        """The prefix of all keys."""
        return f"{self.name}{LAYOUT}:"

    def key(self, kind: KeyKind, domain: Domain, *names: str) -> str:
        """Return the key of *kind* for *names* in *domain*."""
        tail = f":{digest(names)}" if names else ""
        return f"{self.prefix}{{{digest(domain.parts)}}}:{kind}{tail}"

    @staticmethod
    def field(letter: str, key: str) -> str:
        """Return the field of a cell for *key*: 23 characters."""
        return letter + digest([key])

    def named(self, key: str) -> str | None:
        """Return the kind of *key* in words; None: it has our prefix, and no kind of ours.

        >>> keys, domain = Keyspace(), Domain(("tenant", "acme"))
        >>> keys.named(keys.key(KeyKind.POOL, domain, "bulk") + Part.LINE + "2")
        'lines'
        """
        tail = key.removeprefix(self.prefix)
        if _SERVER.fullmatch(tail):
            return NAMES[KeyKind.MARKER, ""]
        shape = _SHAPE.fullmatch(tail)
        return NAMES.get((shape[2], shape[3] or "")) if shape else None

    @property
    def marker(self) -> str:
        """The only marker of a server that is no cluster."""
        return f"{self.prefix}{KeyKind.MARKER}"

    def marker_of(self, key: str) -> str | None:
        """Return the marker for *key* in a cluster: the marker of its domain; None: it is of no domain.

        >>> keys, domain = Keyspace(), Domain(("tenant", "acme"))
        >>> keys.marker_of(keys.key(KeyKind.CELL, domain)) == keys.key(KeyKind.MARKER, domain)
        True
        """
        shape = _SHAPE.fullmatch(key.removeprefix(self.prefix))
        return f"{self.prefix}{shape[1]}{KeyKind.MARKER}" if shape and shape[1] else None

    def breaker_at(self, failures: str) -> tuple[str, str]:
        """Return the cell and the field of the breaker with its latest failures at the key *failures*.

        >>> keys, domain = Keyspace(), Domain(("tenant", "acme"))
        >>> failures = keys.key(KeyKind.BREAKER, domain, "host") + Part.FAILURES
        >>> keys.breaker_at(failures) == (keys.key(KeyKind.CELL, domain), Keyspace.field("k", "host"))
        True
        """
        domain, _, digested = failures.removesuffix(Part.FAILURES).rpartition(f":{KeyKind.BREAKER}:")
        return f"{domain}:{KeyKind.CELL}", f"k{digested}"

    def channel(self, process: str) -> str:
        """Return the channel for the grants of *process*."""
        return f"{self.prefix}g:{process}"


def digest(names: Iterable[str]) -> str:
    """Return 22 URL-safe characters that stand for *names*, each counted with its length.

    >>> digest(["a:b", "c"]) == digest(["a", "b:c"])
    False
    """
    digest = blake2b(digest_size=16)
    for name in names:
        raw = name.encode("utf-8", "surrogatepass")
        digest.update(len(raw).to_bytes(4, "big") + raw)
    return urlsafe_b64encode(digest.digest())[:22].decode()
