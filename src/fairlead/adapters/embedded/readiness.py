"""The part of both protocols that shows whether a server answers. Importing a driver takes longer than a start.

PostgreSQL: https://www.postgresql.org/docs/18/protocol-flow.html#PROTOCOL-FLOW-START-UP
Valkey: https://valkey.io/topics/protocol/ (inline commands)
"""

from __future__ import annotations

import socket
import struct
from typing import BinaryIO
from urllib.parse import parse_qs, urlsplit

__all__ = ["postgres_answers", "valkey_answers"]

RESPONSE_TIMEOUT_S = 2.0
_PROTOCOL_3 = 196608
_TERMINATE = b"X\0\0\0\x04"
_CANNOT_CONNECT_NOW = b"C57P03\0"  # starting up, in recovery or shutting down


def postgres_answers(url: str) -> bool:
    """Return whether the server of *url*, a Unix socket, accepts connections to its database now."""
    parts = urlsplit(url)
    options = parse_qs(parts.query)
    path = f"{options['host'][0]}/.s.PGSQL.{options['port'][0]}"
    user, database = parts.username, parts.path.removeprefix("/")
    parameters = f"user\0{user}\0database\0{database}\0\0".encode()
    startup_message = struct.pack("!ii", 8 + len(parameters), _PROTOCOL_3) + parameters
    try:
        with _connect(path) as connection, connection.makefile("rb") as messages:
            connection.sendall(startup_message)
            ready = _read_until_ready(messages)
            connection.sendall(_TERMINATE)
            return ready
    except OSError:
        return False


def _read_until_ready(messages: BinaryIO) -> bool:
    while len(header := messages.read(5)) == 5:
        kind, length = struct.unpack("!ci", header)
        body = messages.read(length - 4)
        if kind == b"Z":  # ReadyForQuery
            return True
        if kind == b"E":  # an error such as "too many clients" shows that it runs
            return _CANNOT_CONNECT_NOW not in body
    return False


def valkey_answers(url: str) -> bool:
    """Return whether the server of *url*, a Unix socket, answers a ping. It does not while it loads its data."""
    try:
        with _connect(urlsplit(url).path) as connection:
            connection.sendall(b"PING\r\n")
            return connection.recv(64).startswith(b"+PONG")
    except OSError:
        return False


def _connect(path: str) -> socket.socket:
    """Return a connection to the Unix socket at *path*."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.settimeout(RESPONSE_TIMEOUT_S)
        connection.connect(path)
    except OSError:
        connection.close()
        raise
    return connection
