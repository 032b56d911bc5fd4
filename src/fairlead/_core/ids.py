"""Identifiers are made by us, where rows are made: no store has to be asked for one (R34)."""

from __future__ import annotations

from typing import Protocol
from uuid import UUID


class Ids(Protocol):
    """Source of identifiers; random in production, counted in tests."""

    def uuid7(self) -> UUID:
        """A time-ordered UUID (RFC 9562, version 7)."""
        ...

    def lease_id(self) -> int:
        """A random positive 63-bit number: the fence of one claim (R1). Compared by equality only."""
        ...

    def nonce(self) -> str:
        """256 unguessable bits as 43 URL-safe characters: OAuth state and PKCE verifier (RFC 7636 §4.1)."""
        ...


def uuid7_from(unix_ms: int, random_bits: int) -> UUID:
    """RFC 9562 version 7 from a millisecond time and 74 random bits."""
    rand_a = (random_bits >> 62) & 0xFFF
    rand_b = random_bits & ((1 << 62) - 1)
    value = (unix_ms & ((1 << 48) - 1)) << 80 | 0x7 << 76 | rand_a << 64 | 0b10 << 62 | rand_b
    return UUID(int=value)
