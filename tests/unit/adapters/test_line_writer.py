"""Lines go out in order; a reader who stops, a full disk and a lost reader cost lines, never time (E50)."""

from __future__ import annotations

import fcntl
import os
import threading
import time
from collections.abc import Iterator
from statistics import median

import pytest

from fairlead.adapters.local.line_writer import LineWriter

PATIENCE_S = 10.0


def notice(count: int) -> bytes:
    return b"dropped %d\n" % count


class Pipe:
    """A pipe whose reader a test may stop, start and close."""

    def __init__(self) -> None:
        self.read_fd, self.write_fd = os.pipe()
        self.got = b""

    def read_until(self, expected: bytes) -> bytes:
        while expected not in self.got:
            chunk = os.read(self.read_fd, 1 << 16)
            assert chunk, f"the end came before {expected!r}"
            self.got += chunk
        return self.got

    def fill(self) -> None:
        """Until nothing more fits."""
        flags = fcntl.fcntl(self.write_fd, fcntl.F_GETFL)
        fcntl.fcntl(self.write_fd, fcntl.F_SETFL, flags | os.O_NONBLOCK)
        try:
            while True:
                os.write(self.write_fd, b"." * 4095 + b"\n")
        except BlockingIOError:
            pass
        finally:
            fcntl.fcntl(self.write_fd, fcntl.F_SETFL, flags)

    def close_reader(self) -> None:
        os.close(self.read_fd)
        self.read_fd = -1

    def close(self) -> None:
        for fd in (self.read_fd, self.write_fd):
            if fd >= 0:
                os.close(fd)


@pytest.fixture
def pipe() -> Iterator[Pipe]:
    pipe = Pipe()
    yield pipe
    pipe.close()


def test_lines_come_out_in_order_and_close_writes_the_rest(pipe: Pipe) -> None:
    writer = LineWriter(pipe.write_fd, notice)
    for number in range(1000):
        assert writer.put(b"%d\n" % number)
    assert writer.flush(PATIENCE_S)
    assert writer.put(b"last\n")
    assert writer.close(PATIENCE_S)
    assert pipe.read_until(b"last\n").splitlines() == [b"%d" % number for number in range(1000)] + [b"last"]
    assert not writer.put(b"too late\n")
    assert writer.dropped == 1


def test_a_reader_who_stops_costs_lines_and_no_time(pipe: Pipe) -> None:
    writer = LineWriter(pipe.write_fd, notice, max_bytes=10_000)
    pipe.fill()
    line = b"x" * 99 + b"\n"
    accepted_count, took_s = 0, []
    for _ in range(2000):
        began_s = time.perf_counter()
        accepted_count += writer.put(line)
        took_s.append(time.perf_counter() - began_s)
    assert median(took_s) < 0.001
    assert writer.dropped == 2000 - accepted_count > 0
    assert not writer.flush(0.01)
    assert not writer.close(0.01), "closing gives up on a stuck reader"
    output = pipe.read_until(b"dropped %d\n" % writer.dropped)
    assert output.count(line) == accepted_count


def test_dropped_lines_are_reported_before_the_next_line(pipe: Pipe) -> None:
    writer = LineWriter(pipe.write_fd, notice, max_bytes=10)
    assert not writer.put(b"much too long\n")
    pipe.read_until(b"dropped 1\n")
    assert writer.put(b"next\n")
    assert pipe.read_until(b"next\n") == b"dropped 1\nnext\n"
    assert writer.close(PATIENCE_S)


def test_a_reader_who_is_gone_is_no_error(pipe: Pipe) -> None:
    pipe.close_reader()
    writer = LineWriter(pipe.write_fd, notice)
    for number in range(3):
        writer.put(b"%d\n" % number)
        assert writer.flush(PATIENCE_S)
    assert writer.close(PATIENCE_S)
    assert writer.dropped == 3


def test_a_full_disk_loses_lines_until_there_is_room(pipe: Pipe) -> None:
    """The same descriptor is a full disk first and a working pipe then."""
    full = os.open("/dev/full", os.O_WRONLY) if os.path.exists("/dev/full") else os.open("/", os.O_RDONLY)
    writer = LineWriter(full, notice)
    writer.put(b"lost\n")
    writer.put(b"lost too\n")
    assert writer.flush(PATIENCE_S)
    os.dup2(pipe.write_fd, full)
    writer.put(b"kept\n")
    assert pipe.read_until(b"kept\n") == b"dropped 2\nkept\n"
    assert writer.close(PATIENCE_S)
    os.close(full)


def test_a_descriptor_that_somebody_made_non_blocking_loses_nothing(pipe: Pipe) -> None:
    os.set_blocking(pipe.write_fd, False)
    writer = LineWriter(pipe.write_fd, notice)
    line = b"y" * 999 + b"\n"
    reader = threading.Thread(target=pipe.read_until, args=(b"end\n",))
    for _ in range(1000):
        assert writer.put(line)
    writer.put(b"end\n")
    reader.start()
    assert writer.close(PATIENCE_S)
    reader.join(PATIENCE_S)
    assert pipe.got.count(line) == 1000
    assert writer.dropped == 0
