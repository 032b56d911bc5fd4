"""The settings of a connection as people write them in words: ``concurrency_limit=5``.

A command line and a CSV cell know only text. What a setting is, its type in ConnectionLimits or
CallSettings says; what neither knows stays text, as it was written.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache

from fairlead.errors import InvalidInputError
from fairlead.policy.providers.call_settings import CallSettings
from fairlead.policy.providers.connection_limits import ConnectionLimits

SettingValue = str | int | float | bool | list[str] | list[object] | dict[str, object] | None
_LISTS = frozenset({"scopes"})
_FORMS: Mapping[str, tuple[tuple[type, ...], str]] = {
    "integer": ((int,), "a whole number: {}=5"),
    "number": ((int, float), "a number: {}=2.5"),
    "boolean": ((bool,), "true or false: {}=true"),
    "object": ((dict,), "JSON: {}='{{\"name\": ...}}'"),
    "array": ((list,), "JSON: {}='[...]'"),
}


def settings_of_text(written: Mapping[str, str]) -> dict[str, SettingValue]:
    """Each setting as the value that it stands for; InvalidInputError where it can be none.

    ``scopes`` are separated by blanks or commas. Errors repeat no value: it may be a secret by mistake.
    """
    return {name: _value(name, text.strip()) for name, text in written.items()}


def _value(name: str, text: str) -> SettingValue:
    if name in _LISTS:
        return text.replace(",", " ").split()
    form = _forms().get(name)
    if form is None:
        return text
    types, wanted = _FORMS[form]
    try:
        value: SettingValue = json.loads(text.lower() if form == "boolean" else text)
    except (ValueError, RecursionError):  # the latter: brackets without end
        value = None
    if not isinstance(value, types) or (isinstance(value, bool) and bool not in types):
        raise InvalidInputError(
            f"the setting {name} is not {wanted.partition(':')[0]}", hint=f"write {wanted.format(name)}"
        )
    return value


@cache
def _forms() -> dict[str, str]:
    """What a setting is in JSON, for those that are no text."""
    tables = (ConnectionLimits, CallSettings)
    told = {name: each for table in tables for name, each in table.model_json_schema()["properties"].items()}
    kinds = {name: {one.get("type") for one in (each, *each.get("anyOf", ()))} for name, each in told.items()}
    return {name: form for name, found in kinds.items() for form in _FORMS if form in found}
