"""Just enough of both protocols to tell that a server answers; a driver would cost more than the start.

PostgreSQL: https://www.postgresql.org/docs/18/protocol-flow.html#PROTOCOL-FLOW-START-UP
Valkey: https://valkey.io/topics/protocol/ (inline commands)
"""

from __future__ import annotations

import socket
import struct
from typing import BinaryIO
from urllib.parse import parse_qs, urlsplit

__all__ = ["postgres_answers", "valkey_answers"]

ANSWER_TIMEOUT_S = 2.0
_PROTOCOL_3 = 196608
_TERMINATE = b"X\0\0\0\x04"
_CANNOT_CONNECT_NOW = b"C57P03\0"  # starting up, in recovery or shutting down


def postgres_answers(url: str) -> bool:
    """Whether the server of *url* (a Unix socket) takes connections to its database now."""
    parts = urlsplit(url)
    options = parse_qs(parts.query)
    path = f"{options['host'][0]}/.s.PGSQL.{options['port'][0]}"
    user, database = parts.username, parts.path.removeprefix("/")
    words = f"user\0{user}\0database\0{database}\0\0".encode()
    hello = struct.pack("!ii", 8 + len(words), _PROTOCOL_3) + words
    try:
        with _connected(path) as connection, connection.makefile("rb") as answers:
            connection.sendall(hello)
            ready = _read_until_ready(answers)
            connection.sendall(_TERMINATE)
            return ready
    except OSError:
        return False


def _read_until_ready(answers: BinaryIO) -> bool:
    while len(head := answers.read(5)) == 5:
        kind, length = struct.unpack("!ci", head)
        body = answers.read(length - 4)
        if kind == b"Z":
            return True
        if kind == b"E":  # "too many clients" and the like: it is up, and busy
            return _CANNOT_CONNECT_NOW not in body
    return False


def valkey_answers(url: str) -> bool:
    """Whether the server of *url* (a Unix socket) answers a ping (while it loads, it does not)."""
    try:
        with _connected(urlsplit(url).path) as connection:
            connection.sendall(b"PING\r\n")
            return connection.recv(64).startswith(b"+PONG")
    except OSError:
        return False


def _connected(path: str) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.settimeout(ANSWER_TIMEOUT_S)
        connection.connect(path)
    except OSError:
        connection.close()
        raise
    return connection
