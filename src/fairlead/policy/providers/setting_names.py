"""The names of a connection's settings, to find misspelt ones, which would have no effect. Spec: K2."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

from fairlead.errors import InvalidConfigError
from fairlead.policy.providers.call_settings import CallSettings
from fairlead.policy.providers.connection_limits import ConnectionLimits
from fairlead.policy.text.names import shown

_TOKEN_SETTINGS = frozenset({"scopes", "subject"})
SETTING_NAMES = frozenset({*ConnectionLimits.model_fields, *CallSettings.model_fields, *_TOKEN_SETTINGS})
"""The settings that fairlead uses. A connection may also have others, which fairlead only stores."""
_SIMILARITY = 0.75


def check_setting_names(names: Iterable[str], *, tenant: str, provider: str) -> None:
    """Raise InvalidConfigError if one of *names* is similar to the name of a setting, but not equal to it."""
    for name in sorted(set(names) - SETTING_NAMES):
        similar = get_close_matches(name.lower(), sorted(SETTING_NAMES), n=1, cutoff=_SIMILARITY)
        if similar:
            raise InvalidConfigError(
                f"there is no setting {shown(name)}",
                tenant=tenant,
                provider=provider,
                hint=f"did you mean {similar[0]}? A setting of your own needs a name that is less similar to it",
            )
