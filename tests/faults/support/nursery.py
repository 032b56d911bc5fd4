"""A process that has loaded everything and forks: a child is there in milliseconds, not in a second.

It has one thread and no event loop, so forking it is safe. A child gets one end of a socket pair and its
order (support/worker.py, or support/command.py); with its life ends the connection, whatever ended it.
"""

from __future__ import annotations

import ctypes
import importlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[3]
_PR_SET_PDEATHSIG = 1
_REAPED_S = 10.0


class Nursery:
    """The test's side. Use it as a context manager; what still lives at the end is killed."""

    def __enter__(self) -> Nursery:
        self._control, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.faults.support.nursery", str(theirs.fileno())],
                cwd=ROOT,
                env={name: text for name, text in os.environ.items() if not name.startswith("FAIRLEAD_")},
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
            )
        self._control.settimeout(60.0)
        return self

    def __exit__(self, *_exc_info: object) -> None:
        self._control.close()  # it ends, and its children with it
        self._process.wait(timeout=20.0)

    def fork(self, order: dict[str, Any]) -> tuple[int, socket.socket]:
        """A child that carries out *order*: its pid, and our end of its socket."""
        ours, theirs = socket.socketpair()
        with theirs:
            answer = self._ask({"order": order}, theirs)
        return int(answer["pid"]), ours

    def reaped(self, pid: int) -> int | None:
        """The exit code of the dead *pid*, once the kernel has forgotten it; negative: a signal's number."""
        until_s = time.monotonic() + _REAPED_S
        while not (answer := self._ask({"reaped": pid}))["reaped"]:
            assert time.monotonic() < until_s, f"process {pid} is not dead"
            time.sleep(0.002)
        return answer["code"]

    def _ask(self, question: dict[str, Any], passed: socket.socket | None = None) -> dict[str, Any]:
        data = json.dumps(question).encode() + b"\n"
        if passed is None:
            self._control.sendall(data)
        else:
            sent = socket.send_fds(self._control, [data], [passed.fileno()])
            self._control.sendall(data[sent:])
        answer = _line(self._control, b"")
        if not answer:
            raise RuntimeError("the nursery is gone; see its words on stderr")
        return json.loads(answer)


def _line(control: socket.socket, line: bytes) -> bytes:
    while not line.endswith(b"\n"):
        more = control.recv(1 << 16)
        if not more:
            return b""
        line += more
    return line


# ---- the process


class _Home:
    """Forks, reaps, and kills what is left when its parent goes."""

    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._living: set[int] = set()
        self._codes: dict[int, int] = {}
        signal.signal(signal.SIGCHLD, lambda *_: self._reap())

    def _reap(self) -> None:
        for pid in list(self._living):
            try:
                found_pid, status = os.waitpid(pid, os.WNOHANG)
            except ChildProcessError:  # reaped by the signal handler while we were at it
                continue
            if found_pid:
                self._codes[pid] = os.waitstatus_to_exitcode(status)
                self._living.discard(pid)

    def run(self) -> None:
        while True:
            data, descriptors, _, _ = socket.recv_fds(self._control, 1 << 16, 1)
            question = _line(self._control, data) if data else b""
            if not question:
                break
            self._answer(json.loads(question), descriptors)
        for pid in list(self._living):
            os.kill(pid, signal.SIGKILL)

    def _answer(self, question: dict[str, Any], descriptors: list[int]) -> None:
        if "reaped" in question:
            self._reap()
            pid = question["reaped"]
            answer: dict[str, Any] = {"reaped": pid not in self._living, "code": self._codes.get(pid)}
        else:
            answer = {"pid": self._fork(question["order"], descriptors[0])}
        self._control.sendall(json.dumps(answer).encode() + b"\n")

    def _fork(self, order: dict[str, Any], descriptor: int) -> int:
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
        pid = os.fork()
        if pid == 0:
            self._control.close()
            _be_born(order, descriptor)
        self._living.add(pid)
        os.close(descriptor)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})
        return pid


def _be_born(order: dict[str, Any], descriptor: int) -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})
    if sys.platform == "linux":  # a frozen child would not notice that its parent went
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    log = os.open(order["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(log, 1)
    os.dup2(log, 2)
    code = 1
    try:
        child = importlib.import_module(f"tests.faults.support.{order.get('child', 'worker')}")
        child.main(socket.socket(fileno=descriptor), order)
        code = 0
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    import tests.faults.support.caller
    import tests.faults.support.client
    import tests.faults.support.command  # noqa: F401 (all is loaded before the first fork)

    _Home(socket.socket(fileno=int(sys.argv[1]))).run()
