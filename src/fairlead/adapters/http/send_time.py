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

from fairlead.adapters.http.response_deadline import FROZEN_S

_TCP_INFO = getattr(socket, "TCP_INFO", None)
_INFO = struct.Struct("=44xI4xI44xI16xQ")
"""Of struct tcp_info in linux/tcp.h: how long ago, in ms, data was last sent (tcpi_last_data_sent) and got
(tcpi_last_data_recv), what was sent again (tcpi_total_retrans), and what has arrived (tcpi_bytes_acked)."""
_GRAIN_S = 0.01
"""The kernel counts in ticks of at most so much."""
_LOOKS = 5
"""Whoever is held up at each of so many is so slow that nothing can be told."""


def late_s(transport: asyncio.BaseTransport, let_go_s: float, now_s: Callable[[], float]) -> float:
    """How long after *let_go_s* the last data left by *transport*; 0.0 where nothing held it up.

    0.0, too, where that cannot be told: by a system other than Linux or one that keeps no such numbers, once
    data had to be sent twice, and where something left after the answer had come (the farewell of TLS).
    """
    found: socket.socket | None = transport.get_extra_info("socket")
    if found is None or transport.is_closing():
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
        told = connection.getsockopt(socket.IPPROTO_TCP, _TCP_INFO, _INFO.size)
        sent_ms, received_ms, retransmits, acknowledged = _INFO.unpack(told)
    except (OSError, struct.error):
        return None
    is_of_the_request = sent_ms >= received_ms and acknowledged and not retransmits
    return float(sent_ms) / 1000 if is_of_the_request else None
