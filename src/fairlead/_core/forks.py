"""Detaches a forked child from its parent's signals, event loop and open objects.

A handler may use `multiprocessing`, which forks on some systems. The child inherits the parent's signal
handlers and the wake-up descriptor of its event loop, so the parent would handle a signal to the child. It
also inherits the loop's selector, in which a destructor of the child would unregister the parent's sockets.
The child may neither use nor close objects that are open in the parent, so it holds references to them.
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
"""Modules with signal handlers that only wake an event loop."""
_left_behind: list[object] = []


class Forkable(Protocol):
    """An object that is open on an event loop."""

    def forked(self) -> object:
        """Drop the open objects and return them, so that no destructor closes the parent's."""
        ...


_open: WeakKeyDictionary[Forkable, asyncio.AbstractEventLoop] = WeakKeyDictionary()


def forget_in_children(opened: Forkable) -> None:
    """Detach forked children from *opened*, which is open on the running loop, and from signal handlers."""
    _open[opened] = asyncio.get_running_loop()


def closed(opened: Forkable) -> None:
    """Record that *opened* is closed."""
    _open.pop(opened, None)


_masks = threading.local()


def _hold_signals() -> None:
    """Block signals until the child has its own handlers."""
    _masks.parents = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals()) if _open else None


def _release_signals() -> None:
    if (mask := getattr(_masks, "parents", None)) is not None:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def _forked() -> None:
    if _open:
        _forget()
    _release_signals()


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
    """Replace the selector that the child shares with its parent."""
    descriptor = getattr(getattr(loop, "_selector", None), "fileno", lambda: -1)()
    if descriptor < 0:
        return
    with socket.socket() as unused_socket:
        os.dup2(unused_socket.fileno(), descriptor, inheritable=False)


os.register_at_fork(before=_hold_signals, after_in_parent=_release_signals, after_in_child=_forked)
