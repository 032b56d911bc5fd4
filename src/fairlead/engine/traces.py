"""The origin of a handler's exception: a traceback that can be stored and logged, and its innermost place.

It has files, lines, functions and source lines, and no values of variables. Known secrets, and text that
looks like one, are masked, as in every stored text.
"""

from __future__ import annotations

import traceback
from contextlib import suppress
from pathlib import Path
from types import TracebackType

import fairlead
from fairlead.policy.safe import safe_end, safe_text

MAX_BYTES = 4096
MAX_FRAMES = 20
"""The innermost of each exception of a chain."""
_OURS = str(Path(fairlead.__file__).parent)
_LIBRARIES = ("site-packages", "dist-packages", "lib/python")


def traceback_text(error: BaseException) -> str:
    """Return the traceback of *error* from its handler on, with the exceptions that caused it."""
    with suppress(Exception):  # any method of a hostile exception may raise
        trace = _from_handler(error.__traceback__)
        lines = "".join(traceback.format_exception(type(error), error, trace, limit=-MAX_FRAMES))
        return safe_end(lines, MAX_BYTES)
    return type(error).__name__


def place_of(error: BaseException) -> str | None:
    """Return file, line and function of the innermost frame outside libraries; None if there is none."""
    with suppress(Exception):
        frames = list(traceback.walk_tb(_from_handler(error.__traceback__)))
        outside = [at for at in frames if not any(word in at[0].f_code.co_filename for word in _LIBRARIES)]
        frame, line = (outside or frames)[-1]
        path = Path(frame.f_code.co_filename)
        return safe_text(f"{path.parent.name}/{path.name}:{line} in {frame.f_code.co_name}", 300)
    return None


def _from_handler(trace: TracebackType | None) -> TracebackType | None:
    """Return *trace* without fairlead's own frames before the handler."""
    first = trace
    while first is not None and first.tb_frame.f_code.co_filename.startswith(_OURS):
        first = first.tb_next
    return first or trace
