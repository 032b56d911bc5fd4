"""Proof of death: only for what is dead, whatever pids do in the meantime (R7)."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from fairlead.adapters.local.process_identity import LinuxHost, LocalProcesses, PsHost
from fairlead.engine.ports import ProcessIdentity

LINUX = sys.platform == "linux"


class MixedHost(PsHost):
    """What ``ps`` tells, with a boot id that any system has."""

    def boot_id(self) -> str:
        return "boot"


@pytest.fixture(params=["linux", "ps"] if LINUX else ["ps"])
def processes(request: pytest.FixtureRequest) -> LocalProcesses:
    return LocalProcesses(LinuxHost() if request.param == "linux" else MixedHost())


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    """A process that lives until it is killed or its input ends."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        yield child
        child.kill()


def identity_of(processes: LocalProcesses, pid: int) -> ProcessIdentity:
    started = processes._host.start_time(pid)
    assert started
    return replace(processes.identity(), pid=pid, process_started=started)


def test_the_living_are_not_dead(processes: LocalProcesses, child: subprocess.Popen[bytes]) -> None:
    assert processes.identity().pid == os.getpid()
    assert not processes.is_dead(processes.identity())
    assert not processes.is_dead(identity_of(processes, child.pid))
    assert not processes.is_dead(identity_of(processes, 1))  # somebody else's, perhaps


def test_the_killed_are_dead_buried_or_not(processes: LocalProcesses, child: subprocess.Popen[bytes]) -> None:
    identity = identity_of(processes, child.pid)
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # dead, and still there as a zombie
    assert processes.is_dead(identity)
    child.wait()
    assert processes.is_dead(identity)


def test_a_pid_that_is_used_again_is_another_process(
    processes: LocalProcesses, child: subprocess.Popen[bytes]
) -> None:
    identity = identity_of(processes, child.pid)
    assert processes.is_dead(replace(identity, process_started="before that"))


@pytest.mark.parametrize(
    "elsewhere",
    [
        {"boot_id": "another boot"},
        {"boot_id": ""},
        {"pid_namespace": "pid:[1]"},
        {"process_started": ""},
        {"pid": 0},
        {"pid": -1},
    ],
)
def test_of_what_is_not_here_nothing_is_known(
    processes: LocalProcesses, elsewhere: dict[str, object]
) -> None:
    dead_identity = replace(processes.identity(), pid=2**22 - 3)
    assert processes.is_dead(dead_identity)
    assert not processes.is_dead(replace(dead_identity, **elsewhere))  # type: ignore[arg-type]


@pytest.mark.skipif(not LINUX, reason="/proc is Linux's")
def test_a_hidden_process_is_not_dead(tmp_path: Path, child: subprocess.Popen[bytes]) -> None:
    """/proc may hide other people's processes: a missing entry is no proof while the kernel knows the pid."""
    observer = LocalProcesses(LinuxHost())
    hiding = LocalProcesses(LinuxHost(tmp_path))
    hiding._identity = observer.identity()
    assert not hiding.is_dead(identity_of(observer, child.pid))


@pytest.mark.skipif(not LINUX, reason="/proc is Linux's")
def test_a_name_may_hold_anything(tmp_path: Path) -> None:
    fields = ["S", *("0" for _ in range(16)), "1", "0", "4711", "0"]
    (tmp_path / "7").mkdir()
    (tmp_path / "7/stat").write_text(f"7 (a) b) R 1 2) {' '.join(fields)}\n")
    host = LinuxHost(tmp_path)
    assert host.start_time(7) == "4711"
    assert not host.is_zombie(7)
    (tmp_path / "7/stat").write_text(f"7 (x) {' '.join(['Z', *fields[1:17], '2', *fields[18:]])}\n")
    assert not host.is_zombie(7)  # its leader ended, a thread of it lives
    assert host.start_time(8) is None


def test_a_host_that_tells_nothing_proves_nothing(child: subprocess.Popen[bytes]) -> None:
    class Mute(PsHost):
        def boot_id(self) -> str:
            return ""

    dead_identity = replace(LocalProcesses(Mute()).identity(), pid=2**22 - 3)
    assert not LocalProcesses(Mute()).is_dead(dead_identity)
