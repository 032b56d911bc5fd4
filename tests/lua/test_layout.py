"""What lies on a server is read by the next version too, or not at all (R38)."""

from __future__ import annotations

import re
from importlib import resources

from fairlead.policy.limits.key import LAYOUT

LAID_OUT = (4, ["<ddddddddd", "<dIddBd", "<dd", "<dddddddddddddddddddddd", "<ddd"])
"""The layout, and how it packs a bucket, a pool, a quota, a breaker, the marker."""


def test_another_form_is_another_layout() -> None:
    """Who changes a form here raises LAYOUT: then old and new keys have different names."""
    folder = resources.files("fairlead.adapters.redis").joinpath("lua/include")
    forms, clock = (folder.joinpath(name).read_text() for name in ("record_formats.lua", "clock.lua"))
    kept = re.findall(r"'(<[dIB]+)'", forms)
    kept += re.findall(r"struct.pack\('(<d+)', marker", clock)
    assert (LAYOUT, kept) == LAID_OUT
