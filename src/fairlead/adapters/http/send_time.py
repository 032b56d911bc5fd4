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
"""The longest tick in which the kernel counts."""
_LOOKS = 5
"""After so many interrupted readings the process is too slow to measure."""


def late_s(transport: asyncio.BaseTransport, written_mono: float, monotonic: Callable[[], float]) -> float:
    """Return how long after *written_mono* the kernel sent the last data; 0.0 without a delay.

    Also 0.0 if that is not known: on a system without such numbers (only Linux has them), after a
    retransmission, and if data was sent after the response had arrived (the end of TLS).
    """
    connection: socket.socket | None = transport.get_extra_info("socket")
    if connection is None or transport.is_closing():
        return 0.0
    for _ in range(_LOOKS):
        read_mono, ago_s = monotonic(), _last_sent_s(connection)
        if ago_s is None:
            return 0.0
        if monotonic() - read_mono < _GRAIN_S:  # else the process was interrupted between both readings
            delay_s = read_mono - ago_s - written_mono
            return delay_s if delay_s >= FROZEN_S else 0.0
    return 0.0


def _last_sent_s(connection: socket.socket) -> float | None:
    if _TCP_INFO is None:
        return None
    try:
        tcp_info = connection.getsockopt(socket.IPPROTO_TCP, _TCP_INFO, _INFO.size)
        sent_ms, received_ms, retransmits, acknowledged = _INFO.unpack(tcp_info)
    except (OSError, struct.error):
        return None
    is_of_the_request = sent_ms >= received_ms and acknowledged and not retransmits
    return float(sent_ms) / 1000 if is_of_the_request else None
