"""What a forked child does is nothing to the event loop of its parent."""

from __future__ import annotations

import asyncio
import os
import socket
import warnings

from fairlead._core.forks import closed, forget_in_children


class Opened:
    """Something that is open on a loop."""

    def forked(self) -> object:
        return self


async def test_child_that_unregisters_a_socket_does_not_unregister_its_parents() -> None:
    """As a destructor of a connection does; both have the same selector in the kernel."""
    loop, opened, has_data = asyncio.get_running_loop(), Opened(), asyncio.Event()
    forget_in_children(opened)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        loop.add_reader(ours, has_data.set)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # the process may have threads
            child = os.fork()
        if child == 0:
            try:
                loop.remove_reader(ours)
            finally:
                os._exit(0)
        os.waitpid(child, 0)
        theirs.send(b"x")
        async with asyncio.timeout(5):
            await has_data.wait()
        loop.remove_reader(ours)
    closed(opened)
