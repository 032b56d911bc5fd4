"""`fairlead providers`: what counts here, what is wrong with a file, what would be sent."""

from __future__ import annotations

import json

from tests.support.cli import Shell

BROKEN = """
name = "mine"
title = "Mine"
strategy = "refresh_token"
ttl_default_s = "long"
nonsense = 1
"""
OWN_PROVIDER = """
name = "mine"
title = "Mine"
strategy = "refresh_token"
ttl_default_s = 600
endpoints.token = "https://{host}/token"
endpoints.params.host = {description = "host", kind = "host"}
replay.policy = "strict"
extra_fields.refresh = {audience = "api"}
limits.calls.calls = {limit = 5, window_s = 1.0}
"""


async def test_own_profiles_count_and_are_listed(bare: Shell) -> None:
    (bare.folder / "profiles").mkdir()
    (bare.folder / "profiles" / "mine.toml").write_text(OWN_PROVIDER)
    overlay = f'overlay.extra_fields.refresh.client_secret = "{bare.secret("client")}"'
    bare.settings(f'providers_dir = "profiles"\n[providers.mine]\nclient_id = "abc"\n{overlay}\n')
    listed = await bare("providers", "list", "--json")
    names = [row["provider"] for row in listed.rows]
    assert {"mine", "mercadolibre", "shopify:online"} <= set(names)
    shown = await bare("providers", "show", "mine", "--json")
    assert (shown.record["app"]["client_id"], shown.record["endpoints_state"]) == ("abc", None)
    assert shown.record["windows_of_default_life"]["lead_s"] == 300.0
    assert shown.record["extra_fields"]["refresh"]["client_secret"] == "***"
    assert shown.record["admitted"] == {"calls": "1 at once, then 4/s"}
    assert "warning: " in shown.err


async def test_validate_tells_everything_wrong_at_once(bare: Shell) -> None:
    (bare.folder / "mine.toml").write_text(BROKEN)
    done = await bare("providers", "validate", "mine.toml", "--json")
    assert done.code == 78
    assert {row["path"] for row in done.rows} >= {"ttl_default_s", "nonsense"}
    assert all(row["file"].endswith("mine.toml") and row["hint"] for row in done.rows)
    (bare.folder / "mine.toml").write_text(OWN_PROVIDER)
    good = await bare("providers", "validate", "mine.toml")
    assert (good.code, good.out, good.err) == (0, "", "1 profile(s), nothing wrong\n")
    assert (await bare("providers", "validate")).code == 0


async def test_try_shows_the_request_and_no_secret(bare: Shell) -> None:
    secret = bare.secret("client")
    bare.settings(f'[providers.shopify]\nclient_id = "app"\nclient_secret = "{secret}"\n')
    done = await bare("providers", "try", "shopify", "-e", "shop=My-Shop.myshopify.com", "--json")
    assert done.record["url"] == "https://my-shop.myshopify.com/admin/oauth/access_token"
    assert done.record["form"] == {
        "grant_type": "refresh_token",
        "refresh_token": "***",
        "client_id": "app",
        "client_secret": "***",
    }
    signed = await bare("providers", "try", "netsuite:m2m", "-e", "account=123_SB1", "--json")
    assert signed.record["form"]["client_assertion"] == "***"
    assert signed.record["assertion_claims"]["aud"].startswith("https://123-sb1.")
    bad = await bare("providers", "try", "shopify", "-e", f"shop={'x' * 3}@evil", "--json")
    assert (bad.code, "@evil" in json.dumps(bad.error)) == (2, False)
    static = await bare("providers", "try", "stripe", "--json")
    assert (static.code, static.error["code"]) == (2, "invalid_input")
    without_connection = await bare("providers", "try", "shopify", "--send", "--json")
    assert (without_connection.code, "--connection" in without_connection.error["hint"]) == (2, True)
