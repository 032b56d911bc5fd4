"""fairlead: every tenant's OAuth credentials fresh, every call within its limits, nothing lost on the way."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

__version__ = "0.1.0"
__all__ = ["Fairlead", "Roles", "__version__"]

if TYPE_CHECKING:
    from fairlead.app import Fairlead
    from fairlead.runtime import Roles


_HOMES = {"Fairlead": "fairlead.app", "Roles": "fairlead.runtime"}


def __getattr__(name: str) -> object:
    # Lazily, so that `fairlead --version` and the supervisor of embedded servers start at once.
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'fairlead' has no attribute {name!r}")
