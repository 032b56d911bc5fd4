"""What the tests of the embedded servers share: users that can be killed, and waits for events."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import psycopg
import redis

from fairlead.adapters.embedded import Endpoints

DEADLINE_S = 15.0

USER = """
import dataclasses, json, sys
from pathlib import Path
from fairlead.adapters.embedded import EmbeddedServers
servers = EmbeddedServers(Path(sys.argv[1]), settings={"fsync": "off"})
print(json.dumps(dataclasses.asdict(servers.start())), flush=True)
sys.stdin.read()
servers.release()
"""


class User:
    """Another process that uses the servers of *root*, until it is told to leave or killed."""

    def __init__(self, root: Path, **popen: Any) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", USER, str(root)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd="/",
            env={"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "PATH": os.environ["PATH"]},
            **popen,
        )

    def endpoints(self) -> Endpoints:
        """Wait until it has the servers."""
        assert self.process.stdout is not None
        return Endpoints(**json.loads(self.process.stdout.readline()))

    def leave(self) -> None:
        self.process.communicate(timeout=DEADLINE_S)
        assert self.process.returncode == 0

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate(timeout=DEADLINE_S)


def wait_until(happened: Callable[[], object], condition: str) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not happened():
        assert time.monotonic() < deadline, f"{condition}: not within {DEADLINE_S:g} s"
        time.sleep(0.02)


def sockets_of(endpoints: Endpoints) -> tuple[str, str]:
    options = parse_qs(urlsplit(endpoints.database_url).query)
    postgres = f"{options['host'][0]}/.s.PGSQL.{options['port'][0]}"
    return postgres, urlsplit(endpoints.redis_url).path


def listens(path: str) -> bool:
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(path)
        except OSError:
            return False
        return True


def any_listens(endpoints: Endpoints) -> bool:
    return any(listens(path) for path in sockets_of(endpoints))


def all_listen(endpoints: Endpoints) -> bool:
    return all(listens(path) for path in sockets_of(endpoints))


def wait_all_gone(root: Path, endpoints: Endpoints) -> None:
    """Until neither a server nor a supervisor is left."""
    wait_until(lambda: not any_listens(endpoints), "both servers gone")
    wait_until(lambda: not (root / "endpoints.json").exists(), "endpoints withdrawn")
    pids = [pid for pid in server_pids(root) if pid is not None]
    wait_until(lambda: not any(runs(pid) for pid in pids), f"processes {pids} gone")


def runs(pid: int) -> bool:
    """Whether the process lives; a dead one that init has not collected yet does not."""
    try:
        os.kill(pid, 0)
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except ProcessLookupError:
        return False
    except FileNotFoundError:  # no /proc here, or gone between the two lines: the next look tells
        return True


def supervisor_pid(root: Path) -> int:
    return int(json.loads((root / "endpoints.json").read_text())["supervisor_pid"])


def server_pids(root: Path) -> tuple[int | None, int | None]:
    """PostgreSQL's and Valkey's, from their own files."""
    files = (root / "servers/postgres/data/postmaster.pid", root / "servers/valkey/valkey.pid")
    return tuple(int(f.read_text().split()[0]) if f.exists() else None for f in files)  # type: ignore[return-value]


def kill(pid: int | None) -> None:
    assert pid is not None
    os.kill(pid, signal.SIGKILL)


def kill_and_wait(pid: int) -> None:
    kill(pid)
    wait_until(lambda: not runs(pid), f"process {pid} dead")


def query(url: str, statement: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(url, autocommit=True) as connection:
        cursor = connection.execute(statement)
        return cursor.fetchall() if cursor.description else []


def valkey(endpoints: Endpoints) -> redis.Redis:
    return redis.Redis.from_url(endpoints.redis_url, decode_responses=True)
