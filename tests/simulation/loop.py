"""The loop of the simulation: which ready callback runs next is a draw, and time jumps to what is due next.

All chance comes from one `Random`; the hash over (time, pick, whose, what) of each step tells whether two
runs of a seed were the same. What asks the machine for anything (sockets, threads, signals) is an error.
"""

from __future__ import annotations

import asyncio
import functools
import hashlib
from array import array
from collections.abc import Callable, Coroutine, Sequence
from contextvars import Context, copy_context
from heapq import heappop, heappush
from random import Random
from typing import Any, NoReturn, TypeVar
from weakref import ref

from tests.simulation.process import CURRENT, SimProcess, current, of_context

T = TypeVar("T")

AT_ONCE_S = 1e-9
"""Timers so close together are due together."""
TICK_S = 1e-6
"""A timer takes at least so long: where time moves by timers alone, shorter ones might never move it."""
MOST_AT_ONCE = 100_000
"""About so many steps without any time going by, and somebody is spinning."""
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


class SimHandle(asyncio.TimerHandle):
    """A callback and whose it is, for now or for later; *process* None: the world's.

    There is one for each step, so it is made, run and called off without asyncio's care for its debug mode.
    """

    __slots__ = ("process",)
    process: SimProcess | None

    def __init__(self, when: float, callback: Any, args: tuple[Any, ...], context: Context) -> None:
        self._when = when
        self._callback = callback
        self._args = args
        self._context = context
        self._cancelled = False
        self.process = context.get(CURRENT)

    def __repr__(self) -> str:
        label = "called off" if self._cancelled else _label_of(self._callback)
        return f"<{type(self).__name__} {label} at {self._when:.6f} s>"

    def cancel(self) -> None:
        """As in asyncio."""
        self._cancelled = True
        self._callback = self._args = None

    def _run(self) -> None:
        try:
            self._context.run(self._callback, *self._args)
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException as error:
            context = {"message": f"Exception in callback {_label_of(self._callback)}", "exception": error}
            asyncio.get_running_loop().call_exception_handler(context)


class SimTask(asyncio.Task[T]):
    """A task that is the same in every run: its hash, which orders sets, is no address."""

    def __init__(
        self, coro: Coroutine[Any, Any, T], *, loop: SimLoop, name: str | None, context: Context | None
    ) -> None:
        self.number = loop.count_task()
        self.process = current() if context is None else of_context(context)
        self.what = coro.__qualname__
        if self.process is not None:
            self.process.tasks.append(ref(self))
        super().__init__(coro, loop=loop, name=name or f"task-{self.number}", context=context)

    def __hash__(self) -> int:
        return self.number


class SimLoop(asyncio.BaseEventLoop):
    """See the module. *sched* picks; in steps of the ranges *fifo* (from, to) the oldest is taken."""

    def __init__(self, sched: Random, fifo: Sequence[tuple[int, int]] = ()) -> None:
        super().__init__()
        self.set_debug(False)
        self._ready: list[SimHandle] = []  # type: ignore[assignment]
        self._now = 0.0
        self._draw = self._draw_or_oldest if fifo else sched.random
        self._sched = sched
        self._fifo = tuple(fifo)
        self._tasks = self._timed = 0
        self._moment_began = 0
        self._timers: list[tuple[float, int, SimHandle]] = []
        self._hash = hashlib.blake2b(digest_size=8)
        self._noted: list[tuple[float, int, int, str, str]] = []
        self.steps = 0
        """How many callbacks have run."""
        self.after_step: Callable[[], bool] = _goes_on
        """Asked after each step, as it stands when the loop begins to run; True ends that with Stopped."""
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
        digest = self._hash.copy()
        _take_in(digest, self._noted)
        return digest.hexdigest()

    @property
    def last(self) -> list[str]:
        """The latest steps in words, the newest last."""
        notes = self._noted[-LAST:]
        return [
            f"step {step} at {now:.6f} s, {pick + 1} of {ready}: {label} {callback}"
            for step, (now, pick, ready, label, callback) in enumerate(notes, self.steps - len(notes))
        ]

    def count_task(self) -> int:
        """A number for one more task."""
        self._tasks += 1
        return self._tasks

    def take_back(self, handles: Sequence[SimHandle]) -> None:
        """Have *handles* run after all, which were held back."""
        self._ready.extend(handles)

    def remains_of(self, process: SimProcess) -> list[asyncio.Task[object]]:
        """Its tasks that have not ended, in the order in which they began."""
        tasks = (reference() for reference in process.tasks)
        return [task for task in tasks if task is not None and not task.done()]

    # ---- scheduling ----------------------------------------------------------------------------

    def call_soon(self, callback: Any, *args: Any, context: Context | None = None) -> SimHandle:
        """As in asyncio, but that what is called soon is called in any order."""
        handle = SimHandle(self._now, callback, args, copy_context() if context is None else context)
        self._ready.append(handle)
        return handle

    call_soon_threadsafe = call_soon  # there is one thread

    def call_later(
        self, delay: float, callback: Any, *args: Any, context: Context | None = None
    ) -> SimHandle:
        """As in asyncio, in virtual time."""
        return self.call_at(self._now + delay, callback, *args, context=context)

    def call_at(self, when: float, callback: Any, *args: Any, context: Context | None = None) -> SimHandle:
        """As in asyncio, in virtual time."""
        soonest = self._now + TICK_S
        if when < soonest:
            when = soonest
        timer = SimHandle(when, callback, args, copy_context() if context is None else context)
        self._timed += 1  # of two that are due together the first stands first: timers know no order
        heappush(self._timers, (when, self._timed, timer))
        return timer

    def run_in_executor(self, executor: Any, func: Any, *args: Any) -> asyncio.Future[Any]:  # type: ignore[override]
        """Run *func* in one step of its own: there are no threads."""
        done: asyncio.Future[Any] = self.create_future()
        self.call_soon(_run_inline, done, func, args)
        return done

    # ---- running -------------------------------------------------------------------------------

    def _run_once(self) -> None:
        """Every step until the loop is to stop: in one frame, as there are so many."""
        ready, timers, notes = self._ready, self._timers, self._noted
        draw, is_over = self._draw, self.after_step
        while not self._stopping:
            while timers and timers[0][2]._cancelled:
                heappop(timers)
            if not ready:
                self._jump()
            while timers and timers[0][0] <= self._now + AT_ONCE_S:
                ready.append(heappop(timers)[2])
            count = len(ready)
            pick = int(draw() * count) if count > 1 else 0
            handle = ready.pop(pick)
            process = handle.process
            if handle._cancelled or (process is not None and process.state != "running"):
                _keep_back(handle)
                continue
            label = "world" if process is None else process.label
            notes.append((self._now, pick, count, label, _label_of(handle._callback)))
            self.steps += 1
            handle._run()
            if is_over():
                raise Stopped
            if len(notes) >= HASHED:
                self._take_stock()

    def _jump(self) -> None:
        """Go on to what is due next."""
        if not self._timers:
            raise Deadlock(f"at {self._now:g} s nothing can run")
        self._now = max(self._now, self._timers[0][0])
        self._moment_began = self.steps

    def _draw_or_oldest(self) -> float:
        drawn = self._sched.random()
        return 0.0 if any(begin <= self.steps < end for begin, end in self._fifo) else drawn

    def _take_stock(self) -> None:
        _take_in(self._hash, self._noted[:-LAST])
        del self._noted[:-LAST]
        if self.steps - self._moment_began > MOST_AT_ONCE:
            raise Spinning(f"{MOST_AT_ONCE} steps at {self._now:g} s")

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


def _goes_on() -> bool:
    return False


def _keep_back(handle: SimHandle) -> None:
    """It is not to run: not now, if its process stands still, or not at all."""
    if handle.process is not None and handle.process.state == "frozen" and not handle._cancelled:
        handle.process.held.append(handle)


def _take_in(digest: Any, notes: Sequence[tuple[float, int, int, str, str]]) -> None:
    """Have the hash *whole* know these steps: by column, as a thousand numbers in words take their time."""
    if notes:
        now, pick, ready, labels, callbacks = zip(*notes, strict=True)
        digest.update(array("d", now))
        digest.update(array("L", (*pick, *ready)))
        digest.update("\n".join((*labels, *callbacks)).encode())


def _label_of(callback: Any) -> str:
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
