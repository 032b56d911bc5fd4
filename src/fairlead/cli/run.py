"""``fairlead run``: a process of the fleet, from start to the end of its drain.

SIGTERM or SIGINT: claim no more, let jobs end, hand the rest back, exit 0. A second one: at once, exit 143 or
130. SIGUSR1 tells on stderr where every task stands. Under systemd (Type=notify) it says when it is ready.
"""

from __future__ import annotations

import asyncio
import importlib
import os
import pkgutil
import select
import signal
import socket
import sys
import threading
import traceback
from collections.abc import Iterator
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fairlead._version import __version__
from fairlead.cli.kit.exits import Exit
from fairlead.cli.kit.invocation import Invocation, command, single
from fairlead.errors import FairleadError, InvalidConfigError, InvalidInputError
from fairlead.policy.text.safe import safe_text

if TYPE_CHECKING:
    from fairlead.app import Fairlead
    from fairlead.assembly.logs import Logs
    from fairlead.assembly.runtime import Roles

app = single()

ROLES = ("worker", "scheduler")
AT_ONCE_S = 5.0
"""After a second signal: time to hand jobs back. What a killed process leaves is recovered by the others."""
LEAVE_S = 0.5
"""When all is closed: time for handlers that ignore their cancellation, and for threads that they left."""
STDERR = 2
SIGNALS = (signal.SIGTERM, signal.SIGINT)


@command(app, "run")
def run(
    call: Invocation,
    role: Annotated[
        str,
        typer.Option(
            "--role", help="What this process does: worker, scheduler, or both by comma. Rescue always runs."
        ),
    ] = ",".join(ROLES),
    app_path: Annotated[
        str | None,
        typer.Option(
            "--app", metavar="MODULE:OBJECT", help="A Fairlead of yours, with your jobs and events."
        ),
    ] = None,
    concurrency: Annotated[
        int | None,
        typer.Option("--concurrency", min=1, max=10_000, help="Jobs at once. Default: the settings'."),
    ] = None,
) -> Exit | None:
    """Work: refresh tokens, run jobs, keep schedules, rescue the work of processes that died.

    Start as many as you like, on as many hosts as you like. SIGTERM ends one without a loss.
    """
    from fairlead.assembly.stores import disable_core_dumps

    disable_core_dumps()
    roles = _roles(role)
    if concurrency is not None:
        call = call.with_flags({("worker", "concurrency"): concurrency})
    fairlead = _own(call, app_path) if app_path else _plain(call)
    process = _Process(call, fairlead, roles)
    try:
        return asyncio.run(process.work())
    finally:
        process.has_left()


def _roles(text: str) -> Roles:
    from fairlead.assembly.runtime import Roles

    named = [part.strip() for part in text.split(",") if part.strip()]
    unknown = sorted(set(named) - set(ROLES))
    if unknown or not named:
        raise InvalidInputError(f"{text!r} names no role of a process", hint=f"--role {','.join(ROLES)}")
    return Roles(worker="worker" in named, scheduler="scheduler" in named)


def _plain(call: Invocation) -> Fairlead:
    from fairlead.app import Fairlead

    return Fairlead(call.config())


def _own(call: Invocation, path: str) -> Fairlead:
    """The user's object. It reads its own settings, so what stands here reaches it by the environment."""
    from fairlead.app import Fairlead

    if call.manner.config_file is not None:
        os.environ["FAIRLEAD_CONFIG"] = str(call.manner.config_file)
    for setting, value in call.flags.items():
        os.environ[f"FAIRLEAD_{'__'.join(setting).upper()}"] = str(value)
    sys.path.insert(0, os.getcwd())
    try:
        found = pkgutil.resolve_name(path)
    except FairleadError:  # its settings: they say themselves what is wrong
        raise
    except Exception as error:  # a module of the user's may raise anything
        raise InvalidConfigError(
            f"--app {path} cannot be loaded ({type(error).__name__}: {safe_text(str(error))}{_place(error)})",
            hint="give module:object; the module is looked for here first",
        ) from error
    if not isinstance(found, Fairlead):
        inside = getattr(found, "__dict__", {})
        name = next((name for name, value in inside.items() if isinstance(value, Fairlead)), "fl")
        hint = f"name your Fairlead object, as in {path.partition(':')[0]}:{name}"
        raise InvalidConfigError(f"--app {path} is a {type(found).__name__}, no Fairlead", hint=hint)
    return found


def _place(error: Exception) -> str:
    """Where in the user's own files it was raised, if it was there."""
    frames = traceback.extract_tb(error.__traceback__)
    loading = ("<", os.path.dirname(importlib.__file__), pkgutil.__file__, __file__)
    own = [frame for frame in frames if not frame.filename.startswith(loading)]
    last = own[-1] if own else None
    return f", in {last.filename} line {last.lineno}" if last else ""


class _Process:
    """One life: signals, logs, and the drain."""

    def __init__(self, call: Invocation, fairlead: Fairlead, roles: Roles) -> None:
        self._call = call
        self._fairlead = fairlead
        self._roles = roles
        self._signals: list[int] = []
        self._is_open = False
        self._logs: Logs | None = None
        self._leaving: threading.Timer | None = None

    async def work(self) -> Exit:
        """Until stopped; how it ended."""
        from fairlead.assembly.stores import tune_collector

        loop = asyncio.get_running_loop()
        for number in SIGNALS:
            loop.add_signal_handler(number, self._asked, number)
        loop.add_signal_handler(signal.SIGUSR1, lambda: self._say(_tasks_told()))
        async with self._fairlead:
            logs = self._logs = self._open_logs()
            try:
                self._is_open = True
                if not self._signals:  # somebody may have thought better of it while we started
                    tune_collector()
                    self._announce()
                    await self._fairlead.run(self._roles)
            finally:
                self._is_open = False
                if logs.close():  # else it takes no more words, and nobody cuts into its last line
                    self._logs = None
        self._leave()
        return self._exit

    def _leave(self) -> None:
        """Nothing can be lost any more, so nobody waits long for what does not end (E05)."""
        self._leaving = threading.Timer(LEAVE_S, os._exit, (int(self._exit),))
        self._leaving.daemon = True
        self._leaving.start()

    def has_left(self) -> None:
        """The loop has ended: whatever called us goes on."""
        if self._leaving is not None:
            self._leaving.cancel()

    @property
    def _exit(self) -> Exit:
        if len(self._signals) < 2:
            return Exit.OK
        return Exit.TERMINATED if self._signals[1] == signal.SIGTERM else Exit.INTERRUPTED

    def _asked(self, number: int) -> None:
        self._signals.append(number)
        if self._is_open:
            self._fairlead.stop()
        if len(self._signals) == 1:
            _notify_supervisor("STOPPING=1")
            if not self._call.out.quiet:
                self._say("draining; a second signal stops at once")
        else:
            loop = asyncio.get_running_loop()
            loop.call_later(AT_ONCE_S, os._exit, int(self._exit))
            for each in SIGNALS:  # a third one ends the process by the system's own hand
                loop.remove_signal_handler(each)

    def _say(self, words: str) -> None:
        """On stderr, in line with the logs: the loop waits for no reader, who may have stopped (E50)."""
        if self._logs is not None:
            self._logs.say(words)
        else:
            _write_if_read(words)

    def _open_logs(self) -> Logs:
        from fairlead.assembly.logs import configure, log_event

        runtime = self._fairlead.runtime
        runtime.bus.subscribe(log_event)
        given = runtime.settings.log
        manner = self._call.manner
        level = "debug" if manner.verbose else "error" if manner.quiet else given.level
        return configure(level, "json" if manner.as_json else given.format)

    def _announce(self) -> None:
        """The one line that says that it works."""
        runtime = self._fairlead.runtime
        settings = runtime.settings.worker
        roles = [name for name in ROLES if getattr(self._roles, name)]
        if self._call.out.as_json:
            self._call.out.record(
                {
                    "event": "ready",
                    "version": __version__,
                    "pid": os.getpid(),
                    "session_id": runtime.heartbeat.session_id,
                    "roles": roles,
                    "concurrency": settings.concurrency,
                }
            )
        elif not self._call.out.quiet:
            told = f"{' and '.join(roles)}, {settings.concurrency} jobs at once, pid {os.getpid()}"
            self._say(f"fairlead {__version__} is ready: {told}")
        _notify_supervisor("READY=1")


def _write_if_read(words: str) -> None:
    """*words* on stderr, line by line, as far as that takes them at once; the rest is lost."""
    for line in words.removesuffix("\n").split("\n"):
        data = line.encode()[: select.PIPE_BUF - 1] + b"\n"  # few enough for an atomic write
        try:
            if not select.select([], [STDERR], [], 0)[1]:
                return
            os.write(STDERR, data)
        except OSError:  # its reader is gone, or its disk is full
            return


def _notify_supervisor(state: str) -> None:
    """Tell systemd (sd_notify(3)), if it asked to be told."""
    place = os.environ.get("NOTIFY_SOCKET")
    if not place:
        return
    address = f"\0{place[1:]}" if place.startswith("@") else place
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sock:
            sock.sendto(state.encode(), address)
    except OSError:
        pass  # a supervisor that does not listen is no reason to stop


def _tasks_told() -> str:
    """Where every task stands, outermost call first: files and lines, no values."""
    lines = []
    for task in sorted(asyncio.all_tasks(), key=lambda each: each.get_name()):
        lines.append(f"task {task.get_name()}:")
        lines += [
            f"  {frame.f_code.co_filename}:{frame.f_lineno} {frame.f_code.co_name}" for frame in _frames(task)
        ]
    return "\n".join(lines)


def _frames(task: asyncio.Task[Any]) -> Iterator[FrameType]:
    waiting: Any = task.get_coro()
    while waiting is not None:
        frame = getattr(waiting, "cr_frame", None) or getattr(waiting, "gi_frame", None)
        if frame is not None:
            yield frame
        waiting = getattr(waiting, "cr_await", None) or getattr(waiting, "gi_yieldfrom", None)
