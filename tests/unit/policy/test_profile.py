"""Provider profiles: the built-in facts, variants and overlays, and the files of users (T1)."""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

import pytest
from pydantic import BaseModel, ValidationError

from fairlead.errors import InvalidConfigError, InvalidInputError
from fairlead.policy.providers.profile import Profile
from fairlead.policy.providers.profile_load import inspect_profiles, load_profiles
from tools.providers import render

PROFILES = load_profiles()
ROOT = Path(__file__).parents[3]

MINIMAL = """
name = "acme"
title = "Acme"
strategy = "refresh_token"
ttl_default_s = 3600
[endpoints]
token = "https://acme.example/token"
[replay]
policy = "strict"
"""


def _write(folder: Path, name: str, text: str) -> Path:
    file = folder / name
    file.write_text(text, encoding="utf-8")
    return file


# ---- built in


def test_the_listed_profiles_are_built_in() -> None:
    assert set(PROFILES) == {
        "anthropic", "gemini", "generic_oauth2", "google", "hubspot", "mercadolibre", "netsuite", "openai",
        "quickbooks", "qwen", "salesforce", "shopify", "stripe", "xero",
    }  # fmt: skip
    assert set(PROFILES["shopify"].variants) == {"online", "permanent"}
    assert set(PROFILES["netsuite"].variants) == {"m2m", "public"}


# name, variant, strategy, life, rotates, replay policy, grace, replay at expiry, refreshes
FACTS: list[tuple[str, str | None, str, float | None, bool, str | None, float | None, bool, bool]] = [
    ("mercadolibre", None, "refresh_token", 21_600, True, "strict", None, True, True),
    ("shopify", None, "refresh_token", 3_600, True, "until_successor_used", 2_592_000, False, True),
    ("shopify", "online", "refresh_token", 86_400, False, "until_successor_used", 2_592_000, False, False),
    ("shopify", "permanent", "static_key", None, False, None, None, False, False),
    ("google", None, "refresh_token", 3_600, False, "stable", None, False, True),
    ("google", "service_account", "assertion", 3_600, False, "assertion", None, False, True),
    ("netsuite", None, "refresh_token", 3_600, False, "stable", None, False, True),
    ("netsuite", "m2m", "assertion", 3_600, False, "assertion", None, False, True),
    ("netsuite", "public", "refresh_token", 3_600, True, "strict", None, True, True),
    ("hubspot", None, "refresh_token", 1_800, False, "stable", None, False, True),
    ("salesforce", None, "refresh_token", 7_200, True, "strict_family_revoke", None, False, True),
    ("salesforce", "no_rotation", "refresh_token", 7_200, False, "stable", None, False, True),
    ("quickbooks", None, "refresh_token", 3_600, True, "grace", 86_400, False, True),
    ("xero", None, "refresh_token", 1_800, True, "grace", 1_800, False, True),
    ("generic_oauth2", None, "refresh_token", 3_600, True, "strict", None, True, True),
    ("stripe", None, "static_key", None, False, None, None, False, False),
    ("anthropic", None, "static_key", None, False, None, None, False, False),
    ("openai", None, "static_key", None, False, None, None, False, False),
    ("gemini", None, "static_key", None, False, None, None, False, False),
    ("gemini", "oauth", "refresh_token", 3_600, False, "stable", None, False, True),
    ("qwen", None, "static_key", None, False, None, None, False, False),
]


@pytest.mark.parametrize(
    ("name", "variant", "strategy", "ttl_s", "rotates", "policy", "grace_s", "at_expiry", "refreshes"), FACTS
)
def test_facts_of_built_in_profiles(
    name: str, variant: str | None, strategy: str, ttl_s: float | None, rotates: bool, policy: str | None,
    grace_s: float | None, at_expiry: bool, refreshes: bool,
) -> None:  # fmt: skip
    profile = PROFILES[name].variant(variant)
    replay = profile.replay
    assert (profile.strategy, profile.ttl_default_s, profile.rotates) == (strategy, ttl_s, rotates)
    assert (replay.policy, replay.grace_s) == (policy, grace_s) if replay else policy is None
    assert (profile.replay_at_expiry, profile.is_refreshable) == (at_expiry, refreshes)


def test_every_built_in_profile_and_variant_is_in_the_table() -> None:
    shipped = {(name, None) for name in PROFILES} | {
        (name, variant) for name, profile in PROFILES.items() for variant in profile.variants
    }
    assert shipped == {(row[0], row[1]) for row in FACTS}


def test_mercado_libre_and_shopify_follow_the_defaults_page() -> None:
    meli, online = PROFILES["mercadolibre"], PROFILES["shopify"].variant("online")
    assert (meli.windows.lead_s, meli.windows.buffer_s, meli.windows.critical_s) == (1800, 600, 300)
    assert (online.windows.lead_s, online.windows.buffer_s, online.windows.critical_s) == (3600, 900, 600)
    assert (meli.rate.limit, meli.rate.window_s, meli.rate.scope) == (100, 60, "app")
    assert (online.rate.limit, online.rate.window_s, online.rate.scope) == (40, 60, "app_and_account")
    assert PROFILES["generic_oauth2"].rate.limit == 60
    assert meli.backoff_factor == 1.5
    assert meli.errors.fatal == ("invalid_grant", "expired_token", "access_denied")
    assert meli.errors.retryable == (
        "temporarily_unavailable", "server_error", "rate_limit_exceeded", "local_rate_limited",
    )  # fmt: skip
    assert {"invalid_token", "unauthorized", "access_denied"} <= set(online.errors.fatal)
    assert online.errors.fatal_phrases == ("requires an active refresh_token",)
    assert {"throttled", "internal_error", "timeout"} <= set(online.errors.retryable)
    assert meli.test is not None
    assert meli.test.url == "https://api.mercadolibre.com/users/me"


def test_facts_the_reference_calls_unverified_are_named_so() -> None:
    named = {name: " ".join(profile.unverified) for name, profile in PROFILES.items()}
    assert "replay.policy" in named["mercadolibre"]
    assert "revoke.url" in named["mercadolibre"]
    assert "rotates" in named["hubspot"]
    assert "public" in named["netsuite"]


def _models(model: type[BaseModel]) -> set[type[BaseModel]]:
    models = {model}
    for field in model.model_fields.values():
        for part in (field.annotation, *get_args(field.annotation)):
            if isinstance(part, type) and issubclass(part, BaseModel):
                models |= _models(part)
    return models


def test_every_field_is_described_frozen_and_strict_about_unknown_keys() -> None:
    models = _models(Profile)
    assert len(models) > 12
    for model in models:
        assert model.model_config["extra"] == "forbid"
        assert model.model_config["frozen"] is True
        assert all(field.description for field in model.model_fields.values()), model
    with pytest.raises(ValidationError, match="frozen"):
        PROFILES["stripe"].rate.limit = 5  # type: ignore[misc]


def test_each_non_obvious_fact_names_its_source() -> None:
    for name, profile in PROFILES.items():
        assert profile.sources, name
    text = (ROOT / "src/fairlead/policy/providers/mercadolibre.toml").read_text()
    assert text.count("# source:") >= 5


def test_the_reference_page_is_what_the_profiles_say() -> None:
    page = (ROOT / "docs/reference/providers.md").read_text(encoding="utf-8")
    assert page == render(PROFILES), "run: python -m tools.providers > docs/reference/providers.md"


# ---- variants and overlays


def test_a_variant_lays_over_and_takes_away() -> None:
    online = PROFILES["shopify"].variant("online")
    assert online.label == "shopify:online"
    assert online.extra_fields.authorize == {"grant_options[]": "per-user"}
    assert online.extra_fields.code == {}
    assert PROFILES["shopify"].extra_fields.code == {"expiring": "1"}
    assert online.endpoints.token == PROFILES["shopify"].endpoints.token
    assert PROFILES["shopify"].variant(None) is PROFILES["shopify"]


def test_an_unknown_variant_is_refused_with_the_known_ones() -> None:
    with pytest.raises(InvalidInputError, match="online, permanent") as caught:
        PROFILES["shopify"].variant("offline")
    assert caught.value.provider == "shopify"


def test_an_overlay_scales_time_and_points_to_a_test_server() -> None:
    demo = PROFILES["mercadolibre"].overlay(
        {
            "ttl_default_s": 8,
            "windows": {"lead_s": 3, "buffer_s": 1, "critical_s": 0.5},
            "allow_http": True,
            "endpoints": {"token": "http://127.0.0.1:40123/ml/token"},
        }
    )
    assert demo.url("token", {}) == "http://127.0.0.1:40123/ml/token"
    assert demo.ttl_default_s == 8
    assert demo.errors == PROFILES["mercadolibre"].errors
    assert demo.url("authorize", {"site": "mercadolivre.com.br"}) == (
        "https://auth.mercadolivre.com.br/authorization"
    )


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"endpoints": {"token": "http://127.0.0.1:1/t"}}, "not https"),
        ({"ttl_default_s": -1}, "ttl_default_s"),
        ({"unset": ["endpoints.nothing"]}, "unset"),
        ({"unset": 5}, "unset"),
        ({"unset": ["name.first"]}, "unset"),
        ({"windws": {}}, "did you mean windows"),
        ({"replay": {"policy": "grace"}}, "grace needs grace_s"),
        ({"replay": {"policy": "stable"}}, "replay_at_expiry has no meaning"),
    ],
)
def test_an_impossible_overlay_never_starts(changes: dict[str, Any], expected: str) -> None:
    with pytest.raises(InvalidConfigError, match=expected) as caught:
        PROFILES["mercadolibre"].overlay(changes)
    assert "hint:" in str(caught.value)


# ---- files of users


def test_a_users_file_joins_and_overrides(tmp_path: Path) -> None:
    _write(tmp_path, "acme.toml", MINIMAL)
    stripe = (ROOT / "src/fairlead/policy/providers/stripe.toml").read_text()
    _write(tmp_path, "stripe.toml", stripe.replace('title = "Stripe"', 'title = "Our Stripe"'))
    profiles = load_profiles([tmp_path])
    assert profiles["acme"].is_refreshable
    assert profiles["stripe"].title == "Our Stripe"
    assert list(profiles) == sorted(profiles)


def test_all_errors_of_all_files_come_at_once(tmp_path: Path) -> None:
    _write(
        tmp_path, "one.toml", MINIMAL.replace('"acme"', '"one"') + "[windows]\nlead = 5\ncritical_s = true\n"
    )
    _write(tmp_path, "two.toml", 'name = "Two!"\ntitle = ""\nstrategy = "magic"\n')
    _write(tmp_path, "three.toml", "name = [\n")
    (tmp_path / "four.toml").write_bytes(b"name = '\xff'")
    _write(tmp_path, "five.toml", MINIMAL + '[variants.x]\nrotates = "yes"\n[variants.y]\nname = "z"\n')
    _write(tmp_path, "six.toml", MINIMAL)
    with pytest.raises(InvalidConfigError) as caught:
        load_profiles([tmp_path, tmp_path / "absent"])
    text = str(caught.value)
    for expected in (
        "one.toml: windows.lead: is not a field of a profile hint: did you mean lead_s?",
        "one.toml: windows.critical_s:",
        "two.toml: name:",
        "two.toml: title:",
        "two.toml: strategy:",
        "three.toml: is not TOML",
        "four.toml: is not UTF-8",
        "five.toml: variants.x.rotates:",
        "five.toml: variants.y: sets name",
        "six.toml: name: is not 'six'",
        "absent: cannot be read",
    ):
        assert expected in text
    assert text.count("hint:") >= 11
    sound, problems = inspect_profiles([tmp_path])
    assert "mercadolibre" in sound
    assert len(problems) == text.count(".toml: ")


def test_a_value_of_the_file_is_never_repeated_in_an_error(tmp_path: Path) -> None:
    _write(tmp_path, "acme.toml", MINIMAL + 'client_secret = "CANARY"\n[rate]\nlimit = "CANARY"\n')
    _, problems = inspect_profiles([tmp_path])
    assert len(problems) == 2
    assert "CANARY" not in repr(problems)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (("ttl_default_s = 3600", ""), "needs ttl_default_s"),
        (('[replay]\npolicy = "strict"', ""), "needs a replay table"),
        (('token = "https://acme.example/token"', ""), "needs endpoints.token"),
        (('"strict"', '"assertion"'), "go together"),
        (('"strict"', '"stable"\n[rotates]'), "rotates"),
        (('"refresh_token"', '"static_key"'), "static_key with ttl_default_s"),
        (('name = "acme"', 'name = "acme"\nrotates = true\nunverified = ["rates.x: why not"]'), "no field"),
        (('name = "acme"', 'name = "acme"\nunverified = ["no path"]'), "path.of.the.field"),
        (('name = "acme"', 'name = "acme"\nvariant_name = "x"'), "set by fairlead"),
        (("3600", "inf"), "ttl_default_s"),
        (('"strict"', '"strict"\n[errors]\nfatal = ["a"]\nretryable = ["a"]\nambiguous = []'), "permanent"),
        (('"strict"', '"strict"\n[errors]\nrate_limited = ["slow"]'), "not in retryable"),
        (('"strict"', '"strict"\n[windows]\nlead_s = 10\ncritical_s = 20'), "must not decrease"),
        (('"strict"', '"strict"\n[credential_header]\nformat = "Bearer {secret}"'), "once"),
        (('"strict"', '"strict"\n[credential_header]\nformat = "a\\nb {token}"'), "format"),
        (('"strict"', '"strict"\n[account]\nparam = "shop"'), "not declared"),
        (('"strict"', '"strict"\n[endpoints.params.x]\ndescription = "d"'), "not used"),
    ],
)
def test_contradictions_in_a_file_are_found(tmp_path: Path, change: tuple[str, str], expected: str) -> None:
    file = _write(tmp_path, "acme.toml", MINIMAL.replace(*change))
    _, problems = inspect_profiles([tmp_path])
    assert problems
    assert expected in " ".join(map(str, problems))
    assert all(problem.file == str(file) and problem.hint for problem in problems)


def test_a_large_or_deep_file_is_a_problem_and_no_crash(tmp_path: Path) -> None:
    _write(tmp_path, "acme.toml", "#" * 300_000)
    _write(tmp_path, "deep.toml", "a = " + "[" * 100_000)
    _, problems = inspect_profiles([tmp_path])
    assert ["larger" in problems[0].message, "not TOML" in problems[1].message] == [True, True]


NAMES_V8 = [
    "", ".", "..", "a/b", "a\0", "a\n", ":", "{t}", "}", "*", "[", "A" * 2**20, "%2e%2e", "\u0430cme",
    "a\u200fb", "\u202eacme", "'; drop table", 'a"b', "-a", "_a", ".a", "A",
]  # fmt: skip


@pytest.mark.parametrize("name", NAMES_V8)
def test_provider_names_are_one_plain_word(name: str) -> None:
    data = {"name": name, "title": "x", "strategy": "static_key"}
    with pytest.raises(ValidationError):
        Profile.model_validate(data)
