"""Types that several ports share."""

from __future__ import annotations

from typing import Any

Json = Any
"""A value that JSON can carry: dict, list, str, int, float, bool or None."""
