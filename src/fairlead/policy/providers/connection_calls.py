"""What holds for the calls of one connection: its settings over its provider's profile (K2)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from fairlead.errors import InvalidConfigError, InvalidInputError
from fairlead.policy.providers.call_settings import CallSettings
from fairlead.policy.providers.origin import Origins, origins_of
from fairlead.policy.providers.profile import Profile
from fairlead.policy.text.names import shown

_HINT = "give it another value, or take it away: `fairlead connections set`"


def call_settings_of(profile: Profile, settings: Mapping[str, Any], *, tenant: str) -> CallSettings:
    """The part of *settings* that is about calls, over ``[client]`` of *profile*.

    InvalidConfigError where it is impossible.
    """
    own = {name: settings[name] for name in CallSettings.model_fields if name in settings}
    try:
        found = CallSettings.model_validate({**profile.client.model_dump(exclude_unset=True), **own})
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(str(part) for part in first["loc"]) or "settings"
        what = f"{place}: {first['msg'].removeprefix('Value error, ')}"
        raise _impossible(profile, tenant, what, _HINT) from None
    apis = profile.apis.keys() | profile.limits.apis
    for api in found.pages:
        if api not in apis:
            known = ", ".join(sorted(apis)) or "none"
            raise _impossible(profile, tenant, f"pages: there is no API {shown(api)}", f"it has: {known}")
    return found


def describe_settings(
    profile: Profile, settings: Mapping[str, Any], *, tenant: str
) -> dict[str, dict[str, Any]]:
    """For people: each setting of calls with its value, and from which level it has it. Patterns by name."""
    found = call_settings_of(profile, settings, tenant=tenant)
    values = {**found.model_dump(mode="json"), "patterns": [pattern.name for pattern in found.patterns]}
    return {name: {"value": value, "from": _level(name, profile, settings)} for name, value in values.items()}


def _level(name: str, profile: Profile, settings: Mapping[str, Any]) -> str:
    if name in settings:
        return "connection"
    return "profile" if name in profile.client.model_fields_set else "default"


def origins_for(profile: Profile, endpoint: Mapping[str, str], hosts: tuple[str, ...]) -> Origins:
    """Where calls of a connection with these *endpoint* parameters may go; *hosts*: its own setting."""
    urls = []
    for place in profile.places:
        try:
            urls.append(profile.place_url(place, endpoint))
        except InvalidInputError:
            continue  # a place that this connection cannot call anyway
    return origins_of(urls, (*profile.call_hosts(endpoint), *hosts), open_ports=profile.allow_http)


def _impossible(profile: Profile, tenant: str, what: str, hint: str) -> InvalidConfigError:
    return InvalidConfigError(
        f"the settings of the connection are not acceptable: {what}",
        tenant=tenant,
        provider=profile.name,
        hint=hint,
    )
