"""The names of a connection's settings: one that is nearly a known one is a slip that does nothing (K2)."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

from fairlead.errors import InvalidConfigError
from fairlead.policy.providers.call_settings import CallSettings
from fairlead.policy.providers.connection_limits import ConnectionLimits
from fairlead.policy.text.names import shown

OF_TOKENS = frozenset({"scopes", "subject"})
KNOWN = frozenset({*ConnectionLimits.model_fields, *CallSettings.model_fields, *OF_TOKENS})
"""All that fairlead heeds. Others are kept for who wrote them."""
_ALIKE = 0.75


def check_names(names: Iterable[str], *, tenant: str, provider: str) -> None:
    """InvalidConfigError for a name that looks like a known one and is none."""
    for name in sorted(set(names) - KNOWN):
        meant = get_close_matches(name.lower(), sorted(KNOWN), n=1, cutoff=_ALIKE)
        if meant:
            raise InvalidConfigError(
                f"there is no setting {shown(name)}",
                tenant=tenant,
                provider=provider,
                hint=f"{meant[0]} is one; a note of your own needs a name that is less like it",
            )
