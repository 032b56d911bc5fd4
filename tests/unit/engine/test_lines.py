"""The lines of a file that comes in pieces, or stops coming."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from fairlead.engine.calls.line_splitter import with_idle_timeout
from fairlead.testing import ManualClock


async def test_a_file_that_stalls_is_given_up_after_a_while() -> None:
    clock = ManualClock(autojump_s=0.0)

    async def stalls() -> AsyncIterator[bytes]:
        yield b"1\n"
        await clock.sleep(3600.0)

    with pytest.raises(TimeoutError):
        async for _ in with_idle_timeout(stalls(), clock, 60.0):
            pass
    assert clock.monotonic() == 60.0
