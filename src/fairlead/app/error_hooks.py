"""Check the functions that `fl.on_error` registers."""

from __future__ import annotations

import inspect

from fairlead.app.signature import CONTEXT_NAMES
from fairlead.errors import InvalidConfigError


def check_error_hook(hook: object) -> None:
    """Raise InvalidConfigError unless *hook* is a plain function of an exception and a context."""
    if inspect.iscoroutinefunction(hook) or inspect.iscoroutinefunction(type(hook).__call__):
        raise InvalidConfigError(
            "on_error takes a plain function", hint="start a task in it, or log the error"
        )
    hint = "declare it as def report(error, ctx)"
    if not callable(hook):
        raise InvalidConfigError("on_error takes a function", hint=hint)
    try:
        signature = inspect.signature(hook)
    except ValueError:  # a function in C may not say what it takes
        return
    try:
        signature.bind(None, None)
    except TypeError as error:
        raise InvalidConfigError(f"on_error passes an exception and a context: {error}", hint=hint) from None
    first = next(iter(signature.parameters))
    if first.lstrip("_") in CONTEXT_NAMES - {"c", "_"}:
        raise InvalidConfigError(f"on_error passes the exception first, not {first!r}", hint=hint)
