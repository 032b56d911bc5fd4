"""``fairlead run``: a process of the fleet, from start to the end of its drain.

SIGTERM or SIGINT: claim no more, let jobs end, release the rest, exit 0. A second one: stop at once, exit 143 or
130. SIGUSR1 prints on stderr where every task is. Under systemd (Type=notify) it reports when it is ready.
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
"""After a second signal: time to release jobs. Other processes recover the jobs of a killed one."""
LEAVE_S = 0.5
"""After everything is closed: time for handlers that ignore their cancellation, and for their threads."""
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
            "--app", metavar="MODULE:OBJECT", help="Your Fairlead object, with your jobs and events."
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
    from fairlead.app import Fairlead
    from fairlead.assembly.stores import disable_core_dumps

    disable_core_dumps()
    roles = _roles(role)
    if concurrency is not None:
        call = call.with_flags({("worker", "concurrency"): concurrency})
    fairlead = _load_app(call, app_path) if app_path else Fairlead(call.config())
    process = _Process(call, fairlead, roles)
    try:
        return asyncio.run(process.work())
    finally:
        process.cancel_exit()


def _roles(text: str) -> Roles:
    from fairlead.assembly.runtime import Roles

    named = [part.strip() for part in text.split(",") if part.strip()]
    unknown = sorted(set(named) - set(ROLES))
    if unknown or not named:
        raise InvalidInputError(f"{text!r} is not a role of a process", hint=f"--role {','.join(ROLES)}")
    return Roles(worker="worker" in named, scheduler="scheduler" in named)


def _load_app(call: Invocation, path: str) -> Fairlead:
    """Return your Fairlead object. It reads its own settings, so options reach it by the environment."""
    from fairlead.app import Fairlead

    if call.options.config_file is not None:
        os.environ["FAIRLEAD_CONFIG"] = str(call.options.config_file)
    for setting, value in call.flags.items():
        os.environ[f"FAIRLEAD_{'__'.join(setting).upper()}"] = str(value)
    sys.path.insert(0, os.getcwd())
    try:
        app_object = pkgutil.resolve_name(path)
    except FairleadError:  # from its settings; the error explains itself
        raise
    except Exception as error:  # your module may raise anything
        raise InvalidConfigError(
            f"--app {path} cannot be loaded ({type(error).__name__}: {safe_text(str(error))}{_location(error)})",
            hint="give module:object; the module is searched here first",
        ) from error
    if not isinstance(app_object, Fairlead):
        members = getattr(app_object, "__dict__", {})
        name = next((name for name, value in members.items() if isinstance(value, Fairlead)), "fl")
        hint = f"name your Fairlead object, as in {path.partition(':')[0]}:{name}"
        raise InvalidConfigError(f"--app {path} is a {type(app_object).__name__}, no Fairlead", hint=hint)
    return app_object


def _location(error: Exception) -> str:
    """Return where *error* was raised, past the frames that load a module, or an empty text."""
    frames = traceback.extract_tb(error.__traceback__)
    loading = ("<", os.path.dirname(importlib.__file__), pkgutil.__file__, __file__)
    past_loading = [frame for frame in frames if not frame.filename.startswith(loading)]
    last = past_loading[-1] if past_loading else None
    return f", in {last.filename} line {last.lineno}" if last else ""


class _Process:
    """One run of this process: signals, logs, and the drain."""

    def __init__(self, call: Invocation, fairlead: Fairlead, roles: Roles) -> None:
        self._call = call
        self._fairlead = fairlead
        self._roles = roles
        self._signals: list[int] = []
        self._is_open = False
        self._logs: Logs | None = None
        self._exit_timer: threading.Timer | None = None

    async def work(self) -> Exit:
        """Work until stopped, and return the exit code."""
        from fairlead.assembly.stores import tune_collector

        loop = asyncio.get_running_loop()
        for number in SIGNALS:
            loop.add_signal_handler(number, self._on_signal, number)
        loop.add_signal_handler(signal.SIGUSR1, lambda: self._say(_task_stacks()))
        async with self._fairlead:
            logs = self._logs = self._open_logs()
            try:
                self._is_open = True
                if not self._signals:  # a signal may have come during the start
                    tune_collector()
                    self._announce()
                    await self._fairlead.run(self._roles)
            finally:
                self._is_open = False
                if logs.close():  # else its last line may still be in progress
                    self._logs = None
        self._force_exit_soon()
        return self._exit_code

    def _force_exit_soon(self) -> None:
        """End the process soon, even if a job's handler ignores its cancellation or its thread does not end.

        All results are stored by now. `cancel_exit` takes it back once the loop has ended.
        """
        self._exit_timer = threading.Timer(LEAVE_S, os._exit, (int(self._exit_code),))
        self._exit_timer.daemon = True
        self._exit_timer.start()

    def cancel_exit(self) -> None:
        """Cancel the forced exit once the loop has ended, for a caller in this process."""
        if self._exit_timer is not None:
            self._exit_timer.cancel()

    @property
    def _exit_code(self) -> Exit:
        """The exit code: OK after a drain, or that of a second signal, which ends the process at once."""
        if len(self._signals) < 2:
            return Exit.OK
        return Exit.TERMINATED if self._signals[1] == signal.SIGTERM else Exit.INTERRUPTED

    def _on_signal(self, number: int) -> None:
        self._signals.append(number)
        if self._is_open:
            self._fairlead.stop()
        if len(self._signals) == 1:
            _notify_supervisor("STOPPING=1")
            if not self._call.out.quiet:
                self._say("draining; a second signal stops at once")
        else:
            loop = asyncio.get_running_loop()
            loop.call_later(AT_ONCE_S, os._exit, int(self._exit_code))
            for signal_number in SIGNALS:  # the system's default ends the process on a third one
                loop.remove_signal_handler(signal_number)

    def _say(self, words: str) -> None:
        """Print on stderr in order with the logs. The loop never waits for a stopped reader. Spec: E50."""
        if self._logs is not None:
            self._logs.say(words)
        else:
            _write_if_read(words)

    def _open_logs(self) -> Logs:
        from fairlead.assembly.logs import configure, log_event

        runtime = self._fairlead.runtime
        runtime.bus.subscribe(log_event)
        settings = runtime.settings.log
        options = self._call.options
        level = "debug" if options.verbose else "error" if options.quiet else settings.level
        return configure(level, "json" if options.as_json else settings.format)

    def _announce(self) -> None:
        """Print the one line that reports readiness."""
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
            summary = f"{' and '.join(roles)}, {settings.concurrency} jobs at once, pid {os.getpid()}"
            self._say(f"fairlead {__version__} is ready: {summary}")
        _notify_supervisor("READY=1")


def _write_if_read(words: str) -> None:
    """Write *words* to stderr line by line while it does not block; drop the rest.

    It replaces the log writer before logs are open and after they are closed.
    """
    for line in words.removesuffix("\n").split("\n"):
        data = line.encode()[: select.PIPE_BUF - 1] + b"\n"  # small enough for an atomic write
        try:
            if not select.select([], [STDERR], [], 0)[1]:
                return
            os.write(STDERR, data)
        except OSError:  # the reader is gone, or the disk is full
            return


def _notify_supervisor(state: str) -> None:
    """Report *state* to systemd (sd_notify(3)), if it started this process."""
    path = os.environ.get("NOTIFY_SOCKET")
    if not path:
        return
    address = f"\0{path[1:]}" if path.startswith("@") else path
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sock:
            sock.sendto(state.encode(), address)
    except OSError:
        pass  # work does not depend on the supervisor


def _task_stacks() -> str:
    """Return the stack of every task for SIGUSR1, outermost call first: files and lines, no values."""
    lines = []
    for task in sorted(asyncio.all_tasks(), key=lambda task: task.get_name()):
        lines.append(f"task {task.get_name()}:")
        lines += [
            f"  {frame.f_code.co_filename}:{frame.f_lineno} {frame.f_code.co_name}" for frame in _frames(task)
        ]
    return "\n".join(lines)


def _frames(task: asyncio.Task[Any]) -> Iterator[FrameType]:
    awaited: Any = task.get_coro()
    while awaited is not None:
        frame = getattr(awaited, "cr_frame", None) or getattr(awaited, "gi_frame", None)
        if frame is not None:
            yield frame
        awaited = getattr(awaited, "cr_await", None) or getattr(awaited, "gi_yieldfrom", None)
