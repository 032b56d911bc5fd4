"""The effective call settings and allowed hosts of a connection: its own settings over its profile's. Spec: K2."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from fairlead.errors import InvalidConfigError, InvalidInputError
from fairlead.policy.providers.call_settings import CallSettings
from fairlead.policy.providers.origin import AllowedOrigins, allowed_origins
from fairlead.policy.providers.profile import Profile
from fairlead.policy.text.names import shown

_HINT = "change or remove it: `fairlead connections set`"


def call_settings_of(profile: Profile, settings: Mapping[str, Any], *, tenant: str) -> CallSettings:
    """Return the call settings of a connection: its own over ``[client]`` of its profile.

    Args:
        profile: The profile of its provider.
        settings: All settings of the connection; those about other things are ignored.
        tenant: The tenant, for errors.

    Raises:
        InvalidConfigError: A setting is not valid.
    """
    connection_settings = {name: settings[name] for name in CallSettings.model_fields if name in settings}
    profile_settings = profile.client.model_dump(exclude_unset=True)
    try:
        effective = CallSettings.model_validate({**profile_settings, **connection_settings})
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        path = ".".join(str(part) for part in first["loc"]) or "settings"
        problem = f"{path}: {first['msg'].removeprefix('Value error, ')}"
        raise _config_error(profile, tenant, problem, _HINT) from None
    apis = profile.apis.keys() | profile.limits.apis
    for api in effective.pages:
        if api not in apis:
            names = ", ".join(sorted(apis)) or "none"
            raise _config_error(profile, tenant, f"pages: there is no API {shown(api)}", f"it has: {names}")
    return effective


def describe_settings(
    profile: Profile, settings: Mapping[str, Any], *, tenant: str
) -> dict[str, dict[str, Any]]:
    """Return the effective call settings by name, each with ``value`` and ``from``, for display.

    ``from`` is ``connection``, ``profile`` or ``default``. Patterns are shown by their names.
    """
    effective = call_settings_of(profile, settings, tenant=tenant)
    values = {
        **effective.model_dump(mode="json"),
        "patterns": [pattern.name for pattern in effective.patterns],
    }
    return {name: {"value": value, "from": _level(name, profile, settings)} for name, value in values.items()}


def _level(name: str, profile: Profile, settings: Mapping[str, Any]) -> str:
    if name in settings:
        return "connection"
    return "profile" if name in profile.client.model_fields_set else "default"


def resolve_allowed_origins(
    profile: Profile, endpoint: Mapping[str, str], hosts: tuple[str, ...]
) -> AllowedOrigins:
    """Return where the calls of a connection may go.

    Args:
        profile: The profile of its provider.
        endpoint: Its endpoint parameters.
        hosts: Its setting `hosts`.
    """
    urls = []
    for name in profile.call_targets:
        try:
            urls.append(profile.call_target_url(name, endpoint))
        except InvalidInputError:
            continue  # it needs a parameter that this connection lacks
    return allowed_origins(urls, (*profile.call_hosts(endpoint), *hosts), open_ports=profile.allow_http)


def _config_error(profile: Profile, tenant: str, problem: str, hint: str) -> InvalidConfigError:
    return InvalidConfigError(
        f"the settings of the connection are not valid: {problem}",
        tenant=tenant,
        provider=profile.name,
        hint=hint,
    )
