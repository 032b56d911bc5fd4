"""S01: whatever the value of an endpoint parameter, each address stays at its template's host."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import urlsplit

import pytest

from fairlead.engine.connections import Grant
from fairlead.engine.ports import ConnectionKey
from fairlead.errors import InputInvalid
from fairlead.policy.profile import Profile
from fairlead.policy.profile_load import load_profiles
from fairlead.secret import Secret
from tests.security.figures import tell
from tests.security.vectors import V8, V9
from tests.security.ways_out import resolving
from tests.support.refresher import FixedProfiles, Refresher

LOADED = load_profiles()
ATTACKS = tuple(dict.fromkeys([*V9, *V8]))


def all_profiles() -> list[Profile]:
    return [
        each for base in LOADED.values() for each in (base, *(base.variant(name) for name in base.variants))
    ]


def templates_of(profile: Profile) -> dict[str, str]:
    """Each address of *profile* that has a parameter, by its place."""
    found = {
        "token": profile.endpoints.token,
        "authorize": profile.endpoints.authorize,
        "revoke": profile.revoke.url if profile.revoke else None,
        "test": profile.test.url if profile.test else None,
        **{f"apis.{name}": api.url for name, api in profile.apis.items()},
        **{f"hosts.{at}": f"https://{host.removeprefix('*.')}" for at, host in enumerate(profile.hosts)},
    }
    return {
        place: text for place, text in found.items() if text and set(profile.endpoints.params) & names(text)
    }


def names(template: str) -> set[str]:
    return set(re.findall(r"\{([a-z0-9_]+)\}", template))


def values_of(profile: Profile) -> dict[str, str]:
    params = profile.endpoints.params.items()
    return {name: param.default or str(param.example) for name, param in params}


def attacks_of(profile: Profile) -> list[tuple[str, str, str, str]]:
    """(place, template, parameter, value) for every parameter of every address."""
    return [
        (place, template, name, value)
        for place, template in templates_of(profile).items()
        for name in sorted(names(template) & set(profile.endpoints.params))
        for value in ATTACKS
    ]


@pytest.mark.parametrize("profile", all_profiles(), ids=lambda profile: profile.label)
def test_S01_no_value_bends_an_address(profile: Profile) -> None:
    for place, template, name, value in attacks_of(profile):
        try:
            url = profile.place_url(place, {**values_of(profile), name: value})
        except InputInvalid:
            continue
        assert url == filled(profile, template, name, value)
        assert urlsplit(url).hostname == urlsplit(url).netloc  # no user, no port
        assert url.isascii()
        assert url.isprintable()


def filled(profile: Profile, template: str, name: str, value: str) -> str:
    """*template* with the canonical form of *value*, letter by letter."""
    known = {**values_of(profile), name: profile.endpoints.params[name].normalise(value)}
    return re.sub(r"\{([a-z0-9_]+)\}", lambda found: known[found[1]], template)


def test_S01_there_is_something_to_bend() -> None:
    """The table of attacks is not empty, and holds an address of each kind."""
    places = {place for profile in all_profiles() for place in templates_of(profile)}
    assert {"token", "authorize", "revoke", "test", "apis.rest"} <= places


async def test_S01_nothing_is_dialled_for_a_value_that_was_refused(
    fl: Refresher,
    dialled: list[Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Through the door: a connection with such a value is neither stored nor called."""
    asked = resolving(monkeypatch, ["10.0.0.1"])
    assert isinstance(fl.rooms.profiles, FixedProfiles)
    fl.rooms.profiles.profiles.update(LOADED)
    tried = 0
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
                    tried += 1
                    with pytest.raises(InputInvalid):
                        await fl.connections.upsert(
                            ConnectionKey("acme", profile.name),
                            Grant(Secret("at"), Secret("rt"), endpoint={**values_of(profile), name: value}),
                            actor="test",
                        )
        assert await fl.rooms.store.read(ConnectionKey("acme", profile.name)) is None
    assert tried > 100
    assert (dialled, asked) == ([], [])
    tell("S01", n=tried, dialled=len(dialled))
