"""Proof that a process of this host is dead (R7): same boot, same pid namespace, and pid or start time gone.

A pid alone proves nothing: it is used again. A missing /proc entry proves nothing either: it may be hidden.
Signal 0 shows whether the pid exists, and the start time whether it is still the same process. A process
whose state is unknown counts as alive: a wrong "dead" would give the work of a living process away.
"""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Protocol

from fairlead.engine.ports import ProcessIdentity


class _Host(Protocol):
    """The identities of boots, namespaces and processes on one kind of system; None and "" mean unknown."""

    def boot_id(self) -> str: ...
    def pid_namespace(self) -> str: ...
    def start_time(self, pid: int) -> str | None: ...
    def is_zombie(self, pid: int) -> bool: ...


class LocalProcesses:
    """The port ProcessProbe. *host*: default by the platform."""

    def __init__(self, host: _Host | None = None) -> None:
        self._host = host or (LinuxHost() if sys.platform == "linux" else PsHost())
        pid = os.getpid()
        self._identity = ProcessIdentity(
            host=socket.gethostname(),
            boot_id=self._host.boot_id(),
            pid_namespace=self._host.pid_namespace(),
            pid=pid,
            process_started=self._host.start_time(pid) or "",
        )

    def identity(self) -> ProcessIdentity:
        """Return the identity of this process."""
        return self._identity

    def is_dead(self, identity: ProcessIdentity) -> bool:
        """Return whether the process has certainly ended; False for one of another host."""
        if not self._is_same_host(identity):
            return False
        try:
            os.kill(identity.pid, 0)
        except ProcessLookupError:
            return True
        except OSError:  # a process of another user: it exists
            pass
        started = self._host.start_time(identity.pid)
        if started is None:
            return False
        return started != identity.process_started or self._host.is_zombie(identity.pid)

    def _is_same_host(self, identity: ProcessIdentity) -> bool:
        this = self._identity
        is_known = this.boot_id and this.pid_namespace and identity.process_started and identity.pid > 0
        is_same = (this.boot_id, this.pid_namespace) == (identity.boot_id, identity.pid_namespace)
        return bool(is_known and is_same)


class LinuxHost:
    """Linux: /proc. *proc* is where it is mounted (default ``/proc``)."""

    def __init__(self, proc: Path = Path("/proc")) -> None:
        self._proc = proc

    def boot_id(self) -> str:
        return _text(self._proc / "sys/kernel/random/boot_id")

    def pid_namespace(self) -> str:
        try:
            return os.readlink(self._proc / "self/ns/pid")
        except OSError:
            return ""

    def start_time(self, pid: int) -> str | None:
        """Return the clock ticks from boot to the start of *pid*."""
        fields = self._stat(pid)
        return fields[19] if fields else None

    def is_zombie(self, pid: int) -> bool:
        """Return whether *pid* is dead and not yet waited for; a leader with live threads is not dead."""
        fields = self._stat(pid)
        return bool(fields) and fields[0] in ("Z", "X") and int(fields[17]) <= 1

    def _stat(self, pid: int) -> list[str]:
        """Return the fields after the name, which may be any text: state 0, num_threads 17, starttime 19."""
        fields = _text(self._proc / str(pid) / "stat").rpartition(")")[2].split()
        return fields if len(fields) > 19 else []


class PsHost:
    """macOS and other systems with ``ps``: start times to the second."""

    def boot_id(self) -> str:
        return _output("sysctl", "-n", "kern.bootsessionuuid")

    def pid_namespace(self) -> str:
        return "host"

    def start_time(self, pid: int) -> str | None:
        text = _output("ps", "-o", "lstart=", "-p", str(pid))
        return re.sub(r"\s+", " ", text) or None

    def is_zombie(self, pid: int) -> bool:
        return _output("ps", "-o", "stat=", "-p", str(pid)).startswith("Z")


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return ""


def _output(*command: str) -> str:
    env = {**os.environ, "LC_ALL": "C", "TZ": "UTC"}  # dates are compared as text, so they need one form
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=5, check=False, env=env)
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def has_spare_descriptors(count: int = 16) -> bool:
    """Return whether this process can open *count* more file descriptors, default 16."""
    with ExitStack() as opened:
        try:
            for _ in range(count):
                opened.enter_context(socket.socket())
        except OSError:
            return False
    return True
