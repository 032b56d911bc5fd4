"""A child that may be taken for dead: what the ablations of rescue run. Else as support/worker.py.

Among what is ``unsafe``:
no_heartbeat   its session is never renewed, and it believes that it is
no_gap_rule    it rescues as soon as somebody looks dead, also right after a gap in database time
"""

from __future__ import annotations

import socket
from typing import Any

from fairlead.adapters.postgres import worker_sessions as sessions_module
from tests.faults.support import worker
from tests.faults.support.unsafe import _alter

_SURE = "pass.uninterrupted_since <= now() - w.lease AS is_certain"


def main(channel: socket.socket, order: dict[str, Any]) -> None:
    """As support/worker.py."""
    unsafe = order.get("unsafe", ())
    if "no_heartbeat" in unsafe:
        sessions_module.PostgresSessionStore.heartbeat = _believed  # type: ignore[method-assign]
    if "no_gap_rule" in unsafe:
        _alter(sessions_module, "session_rescue", _SURE, "true AS is_certain")
    worker.main(channel, order)


async def _believed(_store: object, _session_id: object) -> bool:
    return True
