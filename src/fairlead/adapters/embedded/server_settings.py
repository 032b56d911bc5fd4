"""Additional settings of both embedded servers in one mapping; names of Valkey's begin with ``valkey.``.

{"max_connections": "200", "valkey.enable-debug-command": "local"}
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from fairlead.errors import InvalidInputError

__all__ = ["VALKEY_PREFIX", "checked_settings"]

VALKEY_PREFIX = "valkey."
_NAME = re.compile(r"valkey\.[a-z][a-z0-9-]*|(?!valkey\.)[a-z][a-z0-9_.]*")


def checked_settings(settings: Mapping[str, str] | None) -> tuple[dict[str, str], dict[str, str]]:
    """Split *settings* into those of PostgreSQL and those of Valkey.

    Returns:
        The settings of PostgreSQL, and those of Valkey without the prefix.

    Raises:
        InvalidInputError: A name or value cannot be that of a server setting.
    """
    postgres: dict[str, str] = {}
    valkey: dict[str, str] = {}
    for name, value in (settings or {}).items():
        if not _NAME.fullmatch(name) or "\0" in value or "\n" in value:
            raise InvalidInputError(
                f"{name!r} = {value!r} cannot be a server setting",
                hint="use names like 'max_connections' or 'valkey.maxmemory' and one-line values",
            )
        if name.startswith(VALKEY_PREFIX):
            valkey[name.removeprefix(VALKEY_PREFIX)] = value
        else:
            postgres[name] = value
    return postgres, valkey
