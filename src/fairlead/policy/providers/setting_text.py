"""The settings of a connection as text: ``concurrency_limit=5`` on a command line or in a CSV file.

Each value is converted to the type that the setting has in ConnectionLimits or CallSettings. Other settings
remain text.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache

from fairlead.errors import InvalidInputError
from fairlead.policy.providers.call_settings import CallSettings
from fairlead.policy.providers.connection_limits import ConnectionLimits

SettingValue = str | int | float | bool | list[str] | list[object] | dict[str, object] | None
_TEXT_LISTS = frozenset({"scopes"})
_FORMS: Mapping[str, tuple[tuple[type, ...], str]] = {
    "integer": ((int,), "a whole number: {}=5"),
    "number": ((int, float), "a number: {}=2.5"),
    "boolean": ((bool,), "true or false: {}=true"),
    "object": ((dict,), "JSON: {}='{{\"name\": ...}}'"),
    "array": ((list,), "JSON: {}='[...]'"),
}


def parse_settings(texts: Mapping[str, str]) -> dict[str, SettingValue]:
    """Convert the text of each setting to its type.

    Args:
        texts: The text of each setting by name. ``scopes`` are separated by blanks or commas.

    Raises:
        InvalidInputError: A text is not of the setting's type. The message does not repeat it, as it may be a
            secret by mistake.
    """
    return {name: _value(name, text.strip()) for name, text in texts.items()}


def _value(name: str, text: str) -> SettingValue:
    """Return *text* as a value of the setting's type; InvalidInputError if it is none."""
    if name in _TEXT_LISTS:
        return text.replace(",", " ").split()
    json_type = _json_types().get(name)
    if json_type is None:
        return text
    types, form = _FORMS[json_type]
    try:
        value: SettingValue = json.loads(text.lower() if json_type == "boolean" else text)
    except (ValueError, RecursionError):  # RecursionError: brackets nested too deeply
        value = None
    if not isinstance(value, types) or (isinstance(value, bool) and bool not in types):
        raise InvalidInputError(
            f"the setting {name} is not {form.partition(':')[0]}", hint=f"write {form.format(name)}"
        )
    return value


@cache
def _json_types() -> dict[str, str]:
    """Return the JSON type of each setting that is not a text."""
    tables = (ConnectionLimits, CallSettings)
    schemas = {
        name: schema for table in tables for name, schema in table.model_json_schema()["properties"].items()
    }
    types = {
        name: {option.get("type") for option in (schema, *schema.get("anyOf", ()))}
        for name, schema in schemas.items()
    }
    return {
        name: json_type for name, options in types.items() for json_type in _FORMS if json_type in options
    }
