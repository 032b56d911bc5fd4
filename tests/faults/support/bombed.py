"""A child that makes calls in a box of memory, and says what each cost it (support/membox.py).

``call`` makes one at *url*: what came of it, by how much its memory peaked meanwhile, how much of it was left
behind since the first, and for how long its loop stood still by its own doing; with *read* its caller reads
it as JSON, and that is of it. ``connect`` stores the connection of a *tenant*.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import os
import socket
from contextlib import suppress
from pathlib import Path
from typing import Any

from fairlead._core.secret import Secret
from fairlead.engine.ports import ConnectionKey
from fairlead.engine.tokens.connection_grant import Grant
from fairlead.errors import FairleadError
from tests.faults.support import worker
from tests.faults.support.calls import KEY, PROVIDER, TRIES_ONCE, watched

WATCHED_S = 0.005
"""In which the watch sees for how long the loop stood still just now."""


def main(channel: socket.socket, order: dict[str, Any]) -> None:
    """As support/worker.py, in the box that *order* names."""
    if "memory_group" in order:
        (Path(order["memory_group"]) / "cgroup.procs").write_text(str(os.getpid()))
    worker._Worker = _Caller  # type: ignore[misc]
    worker.main(channel, order)


class _Caller(worker._Worker):
    at_rest = 0
    """Bytes before the first call."""

    async def do_connect(self, tenant: str) -> dict[str, Any]:
        grant = Grant(api_key=Secret(KEY), settings=dict(TRIES_ONCE))
        await self.runtime.tokens.connections.upsert(ConnectionKey(tenant, PROVIDER), grant, actor="test")
        return {}

    async def do_call(self, tenant: str, url: str, read: bool = False, **options: Any) -> dict[str, Any]:
        """One call. Times in seconds, memory in bytes."""
        from fairlead.app.client import Client

        calls = self.runtime.calls
        key, profile = ConnectionKey(tenant, PROVIDER), self.runtime.profiles.profile
        client = Client(key, calls.pipeline, profile, calls.bulks)
        peak_before = _restart_peak()
        self.at_rest = self.at_rest or peak_before
        async with watched() as watch:
            try:
                response = await client.get(url, **options)
                outcome = f"{response.status_code}"
                if read:
                    response.json()
                    await asyncio.sleep(WATCHED_S)
                del response
            except FairleadError as error:
                outcome = str(error.reason)
        grew = _status("VmHWM") - peak_before
        return {
            "told": outcome,
            "grew": grew,
            "kept": _restart_peak() - self.at_rest,
            "stall_s": watch.stall_s,
        }


def _restart_peak() -> int:
    """Have the kernel measure the peak from here on; what is in use now.

    The C library keeps tens of MiB that nobody uses any more: an answer before would pay for those behind.
    """
    gc.collect()
    with suppress(AttributeError):  # not of glibc
        ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")
    return _status("VmRSS")


def _status(name: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith(f"{name}:"))
