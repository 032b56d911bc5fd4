"""Keeps the memory of this process to itself: it holds keys and tokens in clear (S34)."""

from __future__ import annotations

import ctypes
import resource
import sys

_PR_SET_DUMPABLE = 4


def forbid_dumps() -> None:
    """No core file from now on, here and in what is started from here.

    On Linux this process is not dumpable either: a kernel that pipes core dumps to a program does not ask for
    the limit, and another process of the same user could read the memory (ptrace). Whoever debugs it is root.
    """
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
