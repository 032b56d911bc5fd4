"""Distinguishes settings in the environment from other variables with the prefix ``FAIRLEAD_``.

Kubernetes adds variables to each container for every Service of its namespace, so a Service named
``fairlead`` or ``fairlead-web`` adds names with this prefix, and a platform may add others, such as
``FAIRLEAD_IMAGE_TAG``. These must not stop a process, but a misspelt setting must.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from difflib import SequenceMatcher

PREFIX = "FAIRLEAD_"
_ALIKE = 0.87
_SERVICE = re.compile(r"SERVICE_(?:HOST|PORT\w*)|(?:[A-Z0-9]+_)+SERVICE_\w+")
_PORT = re.compile(r"PORT(?:_\w+)?|(?:[A-Z0-9]+_)+PORT_\d+_(?:TCP|UDP|SCTP)_(?:PROTO|PORT|ADDR)")
_PORT_OF_NAME = re.compile(r"(?:[A-Z0-9]+_)+PORT(?:_\w+)?")
_ADDRESS = re.compile(r"(?:tcp|udp|sctp)://")
_PROVIDER = re.compile(r"PROVIDERS_([A-Z0-9_]+)_(CLIENT_ID|CLIENT_SECRET|PRIVATE_KEY|KEY_ID|HOSTS)(_FILE)?")


def is_kubernetes(name: str, value: str) -> bool:
    """Return whether Kubernetes sets *name* to *value* for a Service."""
    rest = name.removeprefix(PREFIX)
    if "__" in rest:
        return False
    if _SERVICE.fullmatch(rest) or _PORT.fullmatch(rest):
        return True
    return _PORT_OF_NAME.fullmatch(rest) is not None and _ADDRESS.match(value) is not None


def nearest_variable(name: str, settings: Iterable[str]) -> str | None:
    """Return the one of *settings* that *name* nearly equals, whatever separators it uses.

    Settings of a provider are recognised by their ending, because *settings* cannot list all providers.
    """
    if provider := _PROVIDER.fullmatch(name.removeprefix(PREFIX).upper()):
        return f"{PREFIX}PROVIDERS__{provider[1].strip('_')}__{provider[2]}{provider[3] or ''}"
    bare = _bare(name)
    scored = [
        (SequenceMatcher(None, bare, _bare(other), autojunk=False).ratio(), other) for other in settings
    ]
    ratio, best = max(scored, default=(0.0, None))
    return best if ratio >= _ALIKE else None


def _bare(name: str) -> str:
    """Return *name* without the prefix and without separators."""
    return re.sub(r"[^A-Z0-9]", "", name.upper().removeprefix(PREFIX))
