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
from fairlead.policy.text.safe import safe_end, safe_text

MAX_BYTES = 4096
MAX_FRAMES = 20
"""The innermost of each exception of a chain."""
MOST_ERRORS = 100
"""Of a larger group only the first exception is shown."""
_OURS = str(Path(fairlead.__file__).parent)
_LIBRARIES = ("site-packages", "dist-packages", "lib/python")


def traceback_text(error: BaseException) -> str:
    """Return the traceback of *error* from its handler on, with the exceptions that caused it."""
    with suppress(Exception):  # any method of a hostile exception may raise
        shown, heading = error, ""
        if (first := _first_of_many(error)) is not None:
            shown, heading = first, f"The first of more than {MOST_ERRORS} in one {type(error).__name__}:\n"
        trace = _from_handler(shown.__traceback__)
        lines = traceback.format_exception(type(shown), shown, trace, limit=-MAX_FRAMES)
        return safe_end("".join((heading, *lines)), MAX_BYTES)
    return type(error).__name__


def _first_of_many(error: BaseException) -> BaseException | None:
    """Return the first exception of a group that has more than MOST_ERRORS; None for any other.

    The standard library formats each of them before it leaves most of them out: 10,000 take seconds.
    """
    leaves: list[BaseException] = []
    waiting = [error]
    while waiting and len(leaves) <= MOST_ERRORS:
        exception = waiting.pop()
        if isinstance(exception, BaseExceptionGroup):
            waiting += reversed(exception.exceptions)
        else:
            leaves.append(exception)
    return leaves[0] if len(leaves) > MOST_ERRORS else None


def place_of(error: BaseException) -> str | None:
    """Return file, line and function of the frame in which *error* was raised; None without a traceback.

    It is the innermost frame outside libraries, or the innermost of all if there is no such frame. Of a group
    it is where its first member was raised.
    """
    with suppress(Exception):
        trace = error.__traceback__
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
            trace = error.__traceback__ or trace
        frames = list(traceback.walk_tb(_from_handler(trace)))
        outside = [at for at in frames if not any(word in at[0].f_code.co_filename for word in _LIBRARIES)]
        frame, line = (outside or frames)[-1]
        path = Path(frame.f_code.co_filename)
        return safe_text(f"{path.parent.name}/{path.name}:{line} in {frame.f_code.co_name}", 300)
    return None


def _from_handler(trace: TracebackType | None) -> TracebackType | None:
    """Return *trace* from its first frame outside fairlead on: the job's handler. If there is none, return all."""
    first = trace
    while first is not None and first.tb_frame.f_code.co_filename.startswith(_OURS):
        first = first.tb_next
    return first or trace
