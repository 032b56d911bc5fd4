"""How late a request left that had been let go: only the kernel knows what a process missed that stood still.

Between the last look at the clock and the write no code can keep a process from being stopped. Others judge
its request as one under way since the mark, and may send the token again; what it writes on waking is then
the later send of the two (R7).
"""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Callable

from fairlead.adapters.http.deadline import FROZEN_S

_TCP_INFO = getattr(socket, "TCP_INFO", None)
_UNTIL_RETRANSMITS = struct.Struct("=44xI52xI")
"""struct tcp_info of linux/tcp.h: tcpi_last_data_sent in ms, and tcpi_total_retrans."""
_GRAIN_S = 0.01
"""The kernel counts in ticks of at most so much."""
_LOOKS = 5


def late_s(transport: asyncio.BaseTransport, let_go_s: float, now_s: Callable[[], float]) -> float:
    """How long after *let_go_s* the last data left by *transport*; 0.0 where nothing held it up.

    0.0, too, where that cannot be told: by a system other than Linux, and once data had to be sent twice.
    """
    found: socket.socket | None = transport.get_extra_info("socket")
    if found is None:
        return 0.0
    for _ in range(_LOOKS):
        looked_s, ago_s = now_s(), _last_sent_s(found)
        if ago_s is None:
            return 0.0
        if now_s() - looked_s < _GRAIN_S:  # else it stood still between clock and kernel
            held_up_s = looked_s - ago_s - let_go_s
            return held_up_s if held_up_s >= FROZEN_S else 0.0
    return 0.0


def _last_sent_s(connection: socket.socket) -> float | None:
    if _TCP_INFO is None:
        return None
    try:
        told = connection.getsockopt(socket.IPPROTO_TCP, _TCP_INFO, _UNTIL_RETRANSMITS.size)
        last_sent_ms, retransmits = _UNTIL_RETRANSMITS.unpack(told)
    except (OSError, struct.error):
        return None
    return None if retransmits else float(last_sent_ms) / 1000
