"""A PostgreSQL of the experiment's own: nobody else is on it, so it may be stopped, crashed and killed.

It runs as the product's embedded one does, with fsync and synchronous_commit on.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Literal

from fairlead.adapters.embedded import EmbeddedPostgres
from tests.support.databases import migrated_database
from tests.support.servers import database_name, fresh_database, temporary_root

End = Literal["fast", "immediate", "killed"]
LOOK_S = 0.005


class OwnServer:
    """Made by `own_server`."""

    def __init__(self, postgres: EmbeddedPostgres, template: str) -> None:
        self._postgres = postgres
        self._template = template

    async def fresh_database(self) -> str:
        """The URL of a migrated database."""
        return await fresh_database(self._postgres.url, template=self._template)

    async def end(self, how: End) -> None:
        """Stop it (``-m fast``, ``-m immediate``) or kill its postmaster; return when all of it is gone."""
        pid = self._postgres.pid()
        assert pid is not None
        signals = {"fast": signal.SIGINT, "immediate": signal.SIGQUIT, "killed": signal.SIGKILL}
        os.kill(pid, signals[how])
        while self._postgres.alive():
            await asyncio.sleep(LOOK_S)

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """Within the block it stands still: whoever is connected, or wants to be, hears nothing."""
        pid = self._postgres.pid()
        assert pid is not None
        _signal_all(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            _signal_all(pid, signal.SIGCONT)

    async def start(self) -> None:
        """Return when it answers."""
        await asyncio.to_thread(self._postgres.start)


def _signal_all(postmaster: int, number: signal.Signals) -> None:
    """To the postmaster first: what is stopped then begins no more processes."""
    os.kill(postmaster, number)
    listed = subprocess.run(["ps", "-A", "-o", "pid=,ppid="], capture_output=True, text=True, check=True)
    for line in listed.stdout.splitlines():
        pid, parent = map(int, line.split())
        if parent == postmaster:
            with suppress(ProcessLookupError):
                os.kill(pid, number)


@contextmanager
def own_server(settings: Mapping[str, str] | None = None) -> Iterator[OwnServer]:
    """One for several experiments, each has its own database on it; *settings* win over the product's."""
    with temporary_root() as root:
        postgres = EmbeddedPostgres(root, settings=settings)
        url = postgres.start()
        try:
            yield OwnServer(postgres, database_name(asyncio.run(migrated_database(url))))
        finally:
            postgres.stop()
