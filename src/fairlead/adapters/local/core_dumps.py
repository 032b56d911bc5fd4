"""Keep the memory of this process private, because it holds keys and tokens in clear. Spec: S34."""

from __future__ import annotations

import ctypes
import os
import resource
import sys

from fairlead.errors import InvalidConfigError

_PR_SET_DUMPABLE = 4


def disable_core_dumps() -> None:
    """Disable core files of this process and its children.

    On Linux this process is also made not dumpable: a kernel that pipes core dumps to a program ignores the
    limit, and other processes of the same user could read the memory (ptrace). Only root can debug it then.

    Raises:
        InvalidConfigError: The system does not allow it.
    """
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if sys.platform == "linux" and ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0) != 0:
        reason = os.strerror(ctypes.get_errno())
        raise InvalidConfigError(
            f"the memory of this process cannot be made private: prctl says {reason}",
            hint="allow the sandbox of this process to call prctl(PR_SET_DUMPABLE)",
        )
