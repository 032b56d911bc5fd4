"""fairlead: every tenant's credentials fresh, every call within its limits, nothing lost."""

from __future__ import annotations

__version__ = "0.1.0"
