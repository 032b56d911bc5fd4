"""Ports for servers of the tests (tests/support/ports.py)."""

from __future__ import annotations

import socket

import pytest

from tests.support import ports


def test_free_port_and_its_neighbour_have_no_listener(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        port_numbers = [ports.free_port(), ports.free_port()]
        drawn = iter([port, port_numbers[0], port - 1, port_numbers[1]])
        monkeypatch.setattr(ports, "randbelow", lambda _most: next(drawn) - ports.LOWEST)
        assert ports.free_port() == port_numbers[0]
        assert ports.free_port(1) == port_numbers[1]


def test_ports_are_below_the_systems_range() -> None:
    assert all(ports.LOWEST <= ports.free_port(10_000) < ports.BEYOND - 10_000 for _ in range(20))
