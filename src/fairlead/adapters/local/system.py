"""Time, chance and ids from the operating system: the real ends of the ports that tests replace (D9)."""

from __future__ import annotations

import asyncio
import random
import secrets
import time
from collections.abc import Callable
from uuid import UUID

from fairlead.ids import uuid7_from

_system = random.SystemRandom()  # the kernel's: no state to copy in a fork, nothing to guess

draw = random.random
"""The source of jitter: a number in [0, 1). Not for secrets."""


class SystemClock:
    """Monotonic time of this process; see ``fairlead.clock.Clock``."""

    def monotonic(self) -> float:
        """Seconds since an arbitrary start; never goes back."""
        return time.monotonic()

    async def sleep(self, delay_s: float) -> None:
        """Return after *delay_s* seconds."""
        await asyncio.sleep(delay_s)

    def call_later(self, delay_s: float, act: Callable[[], None]) -> Callable[[], None]:
        """Call *act* in the running loop after *delay_s* seconds; what is given back prevents it."""
        return asyncio.get_running_loop().call_later(delay_s, act).cancel


class SystemIds:
    """Random identifiers; see ``fairlead.ids.Ids``."""

    def uuid7(self) -> UUID:
        """A version 7 UUID of this millisecond. The wall clock orders it roughly; nothing rests on that."""
        return uuid7_from(time.time_ns() // 1_000_000, _system.getrandbits(74))

    def lease_id(self) -> int:
        """Random, 1 to 2^63 - 1."""
        return _system.getrandbits(63) or 1

    def nonce(self) -> str:
        """From the kernel's generator."""
        return secrets.token_urlsafe(32)
