"""Cuts a forked child loose from its parent: signals, event loop, and whatever is open.

A handler may run `multiprocessing`, which forks where that is the system's way. The child has the parent's
signal handlers and its event loop's wake-up descriptor: a signal to the child would be read, and obeyed, by
the parent. It has the loop's selector too, in which a destructor of the child would unregister the parent's
sockets. Nothing that was open in the parent may be used or closed in the child: it is kept, and forgotten.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import threading
from typing import Any, Protocol
from weakref import WeakKeyDictionary

_LOOPS = ("asyncio", "uvloop")
"""Modules whose signal handlers only wake an event loop."""
_left_behind: list[object] = []


class Forgets(Protocol):
    """Something that is open, on an event loop."""

    def forked(self) -> object:
        """Forget what is open; return it, so that no destructor closes what belongs to the parent."""
        ...


_open: WeakKeyDictionary[Forgets, asyncio.AbstractEventLoop] = WeakKeyDictionary()


def forget_in_children(opened: Forgets) -> None:
    """Have a forked child forget *opened*, which is open on the running loop, and its signal handlers."""
    _open[opened] = asyncio.get_running_loop()


def closed(opened: Forgets) -> None:
    """Say that *opened* is closed: its children have nothing to forget."""
    _open.pop(opened, None)


_masks = threading.local()


def _hold_signals() -> None:
    """Let no signal reach the child before it has handlers of its own."""
    _masks.before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals()) if _open else None


def _let_signals() -> None:
    if (before := getattr(_masks, "before", None)) is not None:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _forked() -> None:
    if _open:
        _forget()
    _let_signals()


def _forget() -> None:
    _forget_signals()
    for opened, loop in list(_open.items()):
        _left_behind.extend((loop, opened.forked()))
        _cut_selector(loop)
    _open.clear()


def _forget_signals() -> None:
    signal.set_wakeup_fd(-1)
    for number in signal.valid_signals():
        handler: Any = signal.getsignal(number)
        handler = getattr(handler, "func", handler)
        if (getattr(handler, "__module__", None) or "").partition(".")[0] in _LOOPS:
            default = signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL
            signal.signal(number, default)


def _cut_selector(loop: asyncio.AbstractEventLoop) -> None:
    """Put another file in the place of the selector that parent and child share."""
    descriptor = getattr(getattr(loop, "_selector", None), "fileno", lambda: -1)()
    if descriptor < 0:
        return
    with socket.socket() as nothing:
        os.dup2(nothing.fileno(), descriptor, inheritable=False)


os.register_at_fork(before=_hold_signals, after_in_parent=_let_signals, after_in_child=_forked)
