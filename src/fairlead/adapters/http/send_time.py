"""Measures how late a token request was sent by a process that was suspended just before it.

A process can be suspended after it has read the clock for the last time and before it writes the request.
Meanwhile other processes count the request as sent at its SENT mark, and may send the same token again. What
the process writes after it resumes is then the later of the two sends. Only the kernel knows when that was.

Spec: R7.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Callable

from fairlead.adapters.http.response_deadline import FROZEN_S

_TCP_INFO = getattr(socket, "TCP_INFO", None)
_INFO = struct.Struct("=44xI4xI44xI16xQ")
"""The fields of struct tcp_info in linux/tcp.h that are read here.

They are the milliseconds since data was last sent (tcpi_last_data_sent) and received (tcpi_last_data_recv), the
number of retransmissions (tcpi_total_retrans), and the number of acknowledged bytes (tcpi_bytes_acked).
"""
_TICK_S = 0.01
"""The longest tick of the kernel's clock."""
_MAX_READINGS = 5
"""After so many interrupted readings the process counts as too slow to measure."""


def late_s(transport: asyncio.BaseTransport, written_mono: float, monotonic: Callable[[], float]) -> float:
    """Return how many seconds after *written_mono* the kernel sent the request; 0.0 below FROZEN_S.

    It is also 0.0 if that is not known: on systems other than Linux, after a retransmission, and if data was
    sent after the response had arrived (the end of TLS).
    """
    connection: socket.socket | None = transport.get_extra_info("socket")
    if connection is None or transport.is_closing():
        return 0.0
    for _ in range(_MAX_READINGS):
        read_mono, ago_s = monotonic(), _last_sent_ago_s(connection)
        if ago_s is None:
            return 0.0
        if monotonic() - read_mono < _TICK_S:  # else the process was interrupted between both readings
            delay_s = read_mono - ago_s - written_mono
            return delay_s if delay_s >= FROZEN_S else 0.0
    return 0.0


def _last_sent_ago_s(connection: socket.socket) -> float | None:
    """Return the seconds since the kernel last sent data; None if that may not have been the request."""
    if _TCP_INFO is None:
        return None
    try:
        tcp_info = connection.getsockopt(socket.IPPROTO_TCP, _TCP_INFO, _INFO.size)
        sent_ago_ms, received_ago_ms, retransmits, acknowledged = _INFO.unpack(tcp_info)
    except (OSError, struct.error):
        return None
    is_of_the_request = sent_ago_ms >= received_ago_ms and acknowledged and not retransmits
    return float(sent_ago_ms) / 1000 if is_of_the_request else None
