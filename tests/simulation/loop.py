"""The loop of the simulation: which ready callback runs next is a draw, and time jumps to what is due next.

All chance comes from one `Random`; the hash over (time, pick, whose, what) of each step tells whether two
runs of a seed were the same. What asks the machine for anything (sockets, threads, signals) is an error.
"""

from __future__ import annotations

import asyncio
import functools
import hashlib
import heapq
from collections.abc import Callable, Coroutine, Sequence
from contextvars import Context, copy_context
from random import Random
from typing import Any, NoReturn, TypeVar

from tests.simulation.process import SimProcess, current, of_context

T = TypeVar("T")

AT_ONCE_S = 1e-9
"""Timers so close together are due together."""
TICK_S = 1e-6
"""A timer takes at least so long: where time moves by timers alone, shorter ones might never move it."""
MOST_AT_ONCE = 100_000
"""Steps without any time going by, after which somebody is spinning."""
HASHED = 1000
"""Steps that go into the hash together: one by one they would take a tenth of the time."""
LAST = 40
"""How many of the latest steps are kept to be shown."""


class Deadlock(RuntimeError):
    """Nothing is ready, nothing is due, and somebody waits."""


class Spinning(RuntimeError):
    """Steps follow each other for ever, at one moment."""


class Stopped(RuntimeError):
    """`SimLoop.after_step` has ended the run."""


class SimHandle(asyncio.Handle):
    """A callback and whose it is; *process* None: the world's."""

    __slots__ = ("process",)
    process: SimProcess | None


class SimTimer(asyncio.TimerHandle):
    """The same for later."""

    __slots__ = ("process",)
    process: SimProcess | None


class SimTask(asyncio.Task[T]):
    """A task that is the same in every run: its hash, which orders sets, is no address."""

    def __init__(
        self, coro: Coroutine[Any, Any, T], *, loop: SimLoop, name: str | None, context: Context | None
    ) -> None:
        self.number = loop.count_task()
        self.process = current() if context is None else of_context(context)
        self.what = coro.__qualname__
        super().__init__(coro, loop=loop, name=name or f"task-{self.number}", context=context)

    def __hash__(self) -> int:
        return self.number


class SimLoop(asyncio.BaseEventLoop):
    """See the module. *sched* picks; in steps of the ranges *fifo* (from, to) the oldest is taken."""

    def __init__(self, sched: Random, fifo: Sequence[tuple[int, int]] = ()) -> None:
        super().__init__()
        self.set_debug(False)
        self._ready: list[asyncio.Handle] = []  # type: ignore[assignment]
        self._now = 0.0
        self._draw = sched.random
        self._fifo = tuple(fifo)
        self._tasks = self._timed = 0
        self._moment_began = 0
        self._timers: list[tuple[float, int, SimTimer]] = []
        self._hash = hashlib.blake2b(digest_size=8)
        self._noted: list[tuple[int, float, int, int, str, str]] = []
        self.steps = 0
        """How many callbacks have run."""
        self.after_step: Callable[[], bool] | None = None
        """Asked after each step; True ends the run with Stopped."""
        self.complaints: list[str] = []
        """What nobody handled: errors in callbacks, failures that nobody looked at."""
        self.set_task_factory(_make_task)  # type: ignore[arg-type]
        self.set_exception_handler(self._complain)

    def time(self) -> float:
        """Virtual seconds since the loop was made."""
        return self._now

    @property
    def trace(self) -> str:
        """The hash over all steps so far."""
        whole = self._hash.copy()
        whole.update(repr(self._noted).encode())
        return whole.hexdigest()

    @property
    def last(self) -> list[str]:
        """The latest steps in words, the newest last."""
        return [
            f"step {step} at {now:.6f} s, {pick + 1} of {ready}: {whose} {what}"
            for step, now, pick, ready, whose, what in self._noted[-LAST:]
        ]

    def count_task(self) -> int:
        """A number for one more task."""
        self._tasks += 1
        return self._tasks

    def take_back(self, handles: Sequence[asyncio.Handle]) -> None:
        """Have *handles* run after all, which were held back."""
        self._ready.extend(handles)

    def remains_of(self, process: SimProcess) -> list[asyncio.Task[object]]:
        """Its tasks that have not ended, in the order in which they began."""
        tasks = [task for task in asyncio.all_tasks(self) if isinstance(task, SimTask)]
        return sorted((task for task in tasks if task.process is process), key=lambda task: task.number)

    # ---- scheduling ----------------------------------------------------------------------------

    def call_soon(self, callback: Any, *args: Any, context: Context | None = None) -> SimHandle:
        """As in asyncio, but that what is called soon is called in any order."""
        context = copy_context() if context is None else context
        handle = SimHandle(callback, args, self, context)
        handle.process = of_context(context)
        self._ready.append(handle)
        return handle

    call_soon_threadsafe = call_soon  # there is one thread

    def call_at(self, when: float, callback: Any, *args: Any, context: Context | None = None) -> SimTimer:
        """As in asyncio, in virtual time."""
        context = copy_context() if context is None else context
        when = max(when, self._now + TICK_S)
        timer = SimTimer(when, callback, args, self, context)
        timer.process = of_context(context)
        self._timed += 1  # of two that are due together the first stands first: timers know no order
        heapq.heappush(self._timers, (when, self._timed, timer))
        return timer

    def run_in_executor(self, executor: Any, func: Any, *args: Any) -> asyncio.Future[Any]:  # type: ignore[override]
        """Run *func* in one step of its own: there are no threads."""
        done: asyncio.Future[Any] = self.create_future()
        self.call_soon(_run_inline, done, func, args)
        return done

    # ---- running -------------------------------------------------------------------------------

    def _run_once(self) -> None:
        ready, timers = self._ready, self._timers
        while timers and timers[0][2]._cancelled:
            heapq.heappop(timers)
        if not ready and not self._jump():
            return
        due = self._now + AT_ONCE_S
        while timers and timers[0][0] <= due:
            ready.append(heapq.heappop(timers)[2])
        if ready:
            self._step(len(ready))

    def _jump(self) -> bool:
        """Go on to what is due next; False: the loop is to stop, and nothing is."""
        if not self._timers:
            if self._stopping:
                return False
            raise Deadlock(f"at {self._now:g} s nothing can run")
        self._now = max(self._now, self._timers[0][0])
        self._moment_began = self.steps
        return True

    def _step(self, count: int) -> None:
        pick = int(self._draw() * count) if count > 1 else 0
        if self._fifo and any(begin <= self.steps < end for begin, end in self._fifo):
            pick = 0
        handle = self._ready.pop(pick)
        if handle._cancelled:
            return
        process: SimProcess | None = handle.process  # type: ignore[attr-defined]
        if process is not None and process.state != "running":
            if process.state == "frozen":
                process.held.append(handle)
            return
        self._note(handle, process, pick, count)
        handle._run()
        if self.after_step is not None and self.after_step():
            raise Stopped
        if self.steps - self._moment_began > MOST_AT_ONCE:
            raise Spinning(f"{MOST_AT_ONCE} steps at {self._now:g} s")

    def _note(self, handle: asyncio.Handle, process: SimProcess | None, pick: int, count: int) -> None:
        whose = "world" if process is None else process.label
        self._noted.append((self.steps, self._now, pick, count, whose, _what(handle._callback)))
        self.steps += 1
        if len(self._noted) >= HASHED:
            self._hash.update(repr(self._noted[:-LAST]).encode())
            del self._noted[:-LAST]

    def _complain(self, _loop: object, context: dict[str, Any]) -> None:
        error = context.get("exception")
        self.complaints.append(f"{context.get('message')}: {error!r}")

    def _write_to_self(self) -> None:
        """Nobody sleeps in a system call."""

    def _process_events(self, _event_list: object) -> None:
        """There are no files."""


def _make_task(
    loop: SimLoop, coro: Any, context: Context | None = None, name: str | None = None
) -> SimTask[Any]:
    return SimTask(coro, loop=loop, name=name, context=context)


def _run_inline(done: asyncio.Future[Any], func: Callable[..., Any], args: tuple[Any, ...]) -> None:
    if done.cancelled():
        return
    try:
        done.set_result(func(*args))
    except Exception as error:  # told to whoever waits
        done.set_exception(error)


def _what(callback: Any) -> str:
    owner = getattr(callback, "__self__", None)
    if type(owner) is SimTask:
        return owner.what
    if isinstance(callback, functools.partial):
        callback = callback.func
    return getattr(callback, "__qualname__", type(callback).__name__)


def _refused(name: str) -> Callable[..., NoReturn]:
    def refuse(*_args: object, **_named: object) -> NoReturn:
        raise RuntimeError(f"{name} in a simulation: the machine is not there; use a port")

    return refuse


for _name in (
    "add_reader", "add_signal_handler", "add_writer", "connect_accepted_socket", "connect_read_pipe",
    "connect_write_pipe", "create_connection", "create_datagram_endpoint", "create_server",
    "create_unix_connection", "create_unix_server", "getaddrinfo", "getnameinfo", "sendfile", "sock_accept",
    "sock_connect", "sock_recv", "sock_sendall", "start_tls", "subprocess_exec", "subprocess_shell",
):  # fmt: skip
    setattr(SimLoop, _name, _refused(_name))
