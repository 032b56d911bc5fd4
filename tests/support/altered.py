"""A port whose methods a test replaces one by one: a store that loses a result, a transport that stops.

    deps = RefreshDeps(store=Altered(PostgresCredentialStore(database)), ...)
    alter(deps.store, settle=lost)                    # until the end of the test
    with altered(deps.store, settle=lost): ...        # for the block

Only what was built as `Altered` can be altered, so the code under test is reached through its ports alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

__all__ = ["Altered", "alter", "altered"]


class Altered:
    """A port that passes everything on to *inner*, but for the methods that a test replaced."""

    def __init__(self, inner: object) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


def alter(port: object, **methods: Callable[..., Any]) -> None:
    """Replace *methods* of *port*. Raise TypeError where it is no `Altered`."""
    if not isinstance(port, Altered):
        raise TypeError(f"{port!r} is no Altered")
    for name, method in methods.items():
        getattr(port._inner, name)  # a method that the port has
        port.__dict__[name] = method


@contextmanager
def altered(port: object, **methods: Callable[..., Any]) -> Iterator[None]:
    """Replace *methods* of *port* for the block."""
    alter(port, **methods)
    try:
        yield
    finally:
        for name in methods:
            del port.__dict__[name]
