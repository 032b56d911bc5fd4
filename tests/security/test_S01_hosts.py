"""S01: whatever the value of an endpoint parameter, each address stays at its template's host."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

import pytest

from fairlead._core.secret import Secret
from fairlead.engine.ports import ConnectionKey
from fairlead.engine.tokens.connection_grant import Grant
from fairlead.errors import InvalidInputError
from fairlead.policy.providers.endpoint import Template
from fairlead.policy.providers.profile import Profile
from fairlead.policy.providers.profile_load import load_profiles
from fairlead.policy.providers.profile_parts import EndpointParam
from tests.security.figures import tell
from tests.security.vectors import V8, V9
from tests.security.ways_out import resolving
from tests.support.refresher import FixedProfiles, Refresher

LOADED = load_profiles()
ATTACKS = tuple(dict.fromkeys([*V9, *V8]))
PARAM = re.compile(r"\{([a-z0-9_]+)\}")
HOST = re.compile(r"[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)+")
_SEGMENT = r"(?!\.+(?:/|\Z))[A-Za-z0-9._~-]+"
ROOM: Mapping[str, str] = {
    "label": r"[a-z0-9-]{1,63}",
    "subdomain": r"[a-z0-9-]{1,63}(?:\.[a-z0-9-]{1,63})*",
    "segment": _SEGMENT,
    "path": rf"(?:{_SEGMENT}/)*{_SEGMENT}",
}
"""What may stand in the place of a parameter, by its kind: said anew, not asked of the product."""


def all_profiles() -> list[Profile]:
    return [
        profile_of
        for base in LOADED.values()
        for profile_of in (base, *(base.variant(name) for name in base.variants))
    ]


def templates_of(profile: Profile) -> dict[str, str]:
    """Each address of *profile* that has a parameter, by its place."""
    bent_urls = {
        "token": profile.endpoints.token,
        "authorize": profile.endpoints.authorize,
        "revoke": profile.revoke.url if profile.revoke else None,
        "test": profile.test.url if profile.test else None,
        **{f"apis.{name}": api.url for name, api in profile.apis.items()},
        **{f"hosts.{at}": f"https://{host.removeprefix('*.')}" for at, host in enumerate(profile.hosts)},
    }
    return {
        url_name: text
        for url_name, text in bent_urls.items()
        if text and set(profile.endpoints.params) & names(text)
    }


def names(template: str) -> set[str]:
    return set(PARAM.findall(template))


def values_of(profile: Profile) -> dict[str, str]:
    params = profile.endpoints.params.items()
    return {name: param.default or str(param.example) for name, param in params}


def attacks_of(profile: Profile) -> list[tuple[str, str, str, str]]:
    """(place, template, parameter, value) for every parameter of every address."""
    return [
        (url_name, template, name, value)
        for url_name, template in templates_of(profile).items()
        for name in sorted(names(template) & set(profile.endpoints.params))
        for value in ATTACKS
    ]


BENDABLE = [profile for profile in all_profiles() if templates_of(profile)]


def bent(profile: Profile) -> list[tuple[str, str, str]]:
    """(place, value, address) of every address of *profile* that an attack got out of its template."""
    attacks = []
    for url_name, template, name, value in attacks_of(profile):
        try:
            url = profile.call_target_url(url_name, {**values_of(profile), name: value})
        except InvalidInputError:
            continue
        if not stays(profile, template, name, value, url):
            attacks.append((url_name, value, url))
    return attacks


def stays(profile: Profile, template: str, name: str, value: str, url: str) -> bool:
    """Whether *url* is *template* with no more in each gap than that parameter's kind has room for.

    A parameter of kind host may name any host, so there it is the value to the letter.
    """
    params, values = profile.endpoints.params, {**values_of(profile), name: value}
    room = {param: ROOM.get(params[param].kind) or to_the_letter(values[param]) for param in names(template)}
    scheme, _, rest = template.partition("://")
    host, slash, path = rest.partition("/")
    try:
        parts = urlsplit(url)
    except ValueError:
        return False
    return (
        url == f"{scheme}://{parts.netloc}{parts.path}"  # no query, no fragment
        and fits(host, room, parts.netloc)
        and fits(slash + path, room, parts.path)
    )


def to_the_letter(host: str) -> str:
    """A pattern for *host* alone; for nothing if it is more or less than a name."""
    return re.escape(host.lower()) if HOST.fullmatch(host) else "(?!)"


def fits(template: str, room: Mapping[str, str], text: str) -> bool:
    parts = PARAM.split(template)
    pattern = "".join(room[part] if at % 2 else re.escape(part) for at, part in enumerate(parts))
    return re.fullmatch(pattern, text) is not None


@pytest.mark.parametrize("profile", all_profiles(), ids=lambda profile: profile.label)
def test_S01_no_value_bends_an_address(profile: Profile) -> None:
    assert bent(profile) == []


@pytest.mark.parametrize("profile", BENDABLE, ids=lambda profile: profile.label)
def test_S01_a_product_that_puts_in_what_it_is_given_is_seen(
    profile: Profile, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the kinds of values and without the second wall, each parameter is a way out."""
    monkeypatch.setattr(EndpointParam, "normalise", lambda _self, value: value)
    monkeypatch.setattr("fairlead.policy.providers.profile.build_url", put_in)
    attacks = bent(profile)
    assert {url_name for url_name, *_ in attacks} == set(templates_of(profile))
    if any("{shop}.myshopify.com" in template for template in templates_of(profile).values()):
        assert {"evil.com/#", "evil.com?", "a@evil.com/", "evil.com:443/"} <= {
            value for _, value, _ in attacks
        }


def put_in(template: Template, values: Mapping[str, str], _kinds: object) -> str:
    return PARAM.sub(lambda match: values[match[1]], f"{template.scheme}://{template.host}{template.path}")


def test_S01_there_is_something_to_bend() -> None:
    """The table of attacks is not empty, and holds an address of each kind."""
    url_names = {url_name for profile in all_profiles() for url_name in templates_of(profile)}
    assert {"token", "authorize", "revoke", "test", "apis.rest"} <= url_names


async def test_S01_nothing_is_dialled_for_a_value_that_was_refused(
    fl: Refresher,
    dialled: list[Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Through the door: a connection with such a value is neither stored nor called."""
    resolved = resolving(monkeypatch, ["10.0.0.1"])
    assert isinstance(fl.deps.profiles, FixedProfiles)
    fl.deps.profiles.profiles.update(LOADED)
    attempt_count = 0
    for profile in LOADED.values():
        hosted = [
            name
            for name, param in profile.endpoints.params.items()
            if param.kind in ("label", "subdomain", "host")
        ]
        for name in hosted:
            for value in V9:
                try:
                    profile.endpoints.params[name].normalise(value)
                except ValueError:
                    attempt_count += 1
                    with pytest.raises(InvalidInputError):
                        await fl.connections.upsert(
                            ConnectionKey("acme", profile.name),
                            Grant(Secret("at"), Secret("rt"), endpoint={**values_of(profile), name: value}),
                            actor="test",
                        )
        assert await fl.deps.store.read(ConnectionKey("acme", profile.name)) is None
    assert attempt_count > 100
    assert (dialled, resolved) == ([], [])
    tell("S01", n=attempt_count, dialled=len(dialled))
