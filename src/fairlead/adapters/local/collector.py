"""The garbage collector of a process that only works: fewer and shorter stops of its event loop.

Reference counts free almost all that fairlead makes (`tests/counts` guards it), so a collection mostly walks
what is in flight, and finds nothing. A full one walks everything that was ever loaded: 60 ms with fairlead
alone, and ten times as long beside a large application.
"""

from __future__ import annotations

import gc

YOUNG_OBJECTS = 10_000
"""Objects made and not yet freed after which the collector looks at them. Python's default is 700."""


def tune_collector() -> None:
    """Take what is loaded by now out of the collector's view, and have it look less often.

    Call it once, at the end of the start. Other programs in which fairlead is a library keep their collector
    as it is.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG_OBJECTS, *gc.get_threshold()[1:])
