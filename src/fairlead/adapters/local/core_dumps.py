"""Keeps the memory of this process to itself: it holds keys and tokens in clear (S34)."""

from __future__ import annotations

import ctypes
import os
import resource
import sys

from fairlead.errors import InvalidConfigError

_PR_SET_DUMPABLE = 4


def disable_core_dumps() -> None:
    """No core file from now on, here and in what is started from here.

    On Linux this process is not dumpable either: a kernel that pipes core dumps to a program does not ask for
    the limit, and another process of the same user could read the memory (ptrace). Whoever debugs it is root.
    Raises InvalidConfigError where the system does not let it.
    """
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if sys.platform == "linux" and ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0) != 0:
        said = os.strerror(ctypes.get_errno())
        raise InvalidConfigError(
            f"the memory of this process cannot be kept to itself: prctl says {said}",
            hint="let the sandbox that it runs in allow prctl(PR_SET_DUMPABLE)",
        )
