"""A string that prints as ``***`` everywhere; only ``reveal()`` returns it."""

from __future__ import annotations

from typing import Any, NoReturn

from fairlead._core.known_secrets import KNOWN_SECRETS


class Secret:
    """A secret string, which only ``reveal()`` returns, so a search for that word finds every use.

    Equality compares values. ``repr``, ``str``, ``format`` and copies never show them, and pickling fails. Texts
    that are logged or stored later are searched for the value (`fairlead._core.known_secrets`).

    Args:
        remember: False for a value that contains a known secret, or may be a plain word. Default True.
        pinned: Remember it for the life of the process. Default False.
    """

    __slots__ = ("_value",)

    def __init__(self, value: str, *, remember: bool = True, pinned: bool = False) -> None:
        self._value = value
        if remember:
            KNOWN_SECRETS.add(value, pinned=pinned)

    def reveal(self) -> str:
        """Return the value."""
        return self._value

    def __repr__(self) -> str:
        return "Secret('***')"

    def __str__(self) -> str:
        return "***"

    def __format__(self, spec: str) -> str:
        return "***"

    def __bool__(self) -> bool:
        return bool(self._value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and other._value == self._value

    def __hash__(self) -> int:
        return hash((Secret, self._value))

    def __reduce__(self) -> NoReturn:
        raise TypeError("a Secret is not pickled: it would leave the process in clear")

    def __getstate__(self) -> None:
        """Return nothing to serialisers that ask for the state."""

    def __deepcopy__(self, memo: dict[int, Any]) -> Secret:
        return self
