"""`fairlead connections` on a real database and a real issuer: connect, look after, move."""

from __future__ import annotations

import asyncio
import csv
import io
import json
import stat
from collections.abc import AsyncIterator
from urllib.parse import parse_qs, urlsplit
from uuid import UUID

import pytest

from fairlead.adapters.postgres.database import Database
from fairlead.testing.issuer import Issuer, IssuerConfig, ProviderConfig
from fairlead.testing.ledger import judge
from tests.support.cli import Shell
from tests.support.issuer import fetch
from tests.support.rows import rows, run

SETTINGS = """
http.allow_private_addresses = true
refresh.cooldown_s = 0
refresh.wait_s = 2
notifications.reauth_link = "https://app.example/reconnect?t={{tenant}}&p={{provider}}"

[providers.mercadolibre]
client_id = "app"
client_secret = "{secret}"

[providers.mercadolibre.overlay]
allow_http = true
endpoints.token = "{url}/mercadolibre/token"
endpoints.authorize = "{url}/mercadolibre/authorize"
endpoints.params = {{}}
unset = ["endpoints.params.site"]
test.url = "{url}/mercadolibre/resource"
revoke.url = "{url}/mercadolibre/revoke"
revoke.method = "POST"
revoke.authenticates = "client"
revoke.sends = "refresh_token"
"""
ACME = ("--tenant", "acme", "--provider", "mercadolibre")


@pytest.fixture
async def issuer() -> AsyncIterator[Issuer]:
    played = {"mercadolibre": ProviderConfig(policy="strict", dialect="mercadolibre")}
    async with Issuer(IssuerConfig(providers=played)) as issuer:
        yield issuer


@pytest.fixture
def cli(shell: Shell, issuer: Issuer) -> Shell:
    shell.settings(SETTINGS.format(url=issuer.url, secret=shell.secret("client-secret")))
    return shell


def a_grant(cli: Shell, issuer: Issuer, tenant: str) -> dict[str, str]:
    """The secrets of an account at the issuer; they are canaries from now on."""
    grant = issuer.register("mercadolibre", tenant)
    cli.canaries |= {grant.refresh_token, grant.access_token}
    return {"refresh_token": grant.refresh_token, "access_token": grant.access_token}


async def test_the_life_of_a_connection(cli: Shell, issuer: Issuer) -> None:
    secrets = a_grant(cli, issuer, "acme")
    dry = await cli("connections", "add", *ACME, "--dry-run", "--json", stdin=json.dumps(secrets))
    assert (dry.code, dry.record["result"]) == (0, "would be created")

    added = await cli("connections", "add", *ACME, "--json", stdin=json.dumps(secrets))
    assert (added.code, added.record["result"], added.record["state"]) == (0, "created", "active")
    assert UUID(added.record["connection_id"])

    again = await cli("connections", "add", *ACME, "--json", stdin=secrets["refresh_token"])
    assert (again.code, again.error["code"], again.error["tenant"]) == (2, "invalid_input", "acme")

    listed = await cli("connections", "list")
    heading, line = listed.out.splitlines()
    assert (heading.split()[:3], line.split()[:4]) == (
        ["tenant", "provider", "account"],
        ["acme", "mercadolibre", "default", "active"],
    )

    tested = await cli("connections", "test", *ACME, "--json")
    assert (tested.code, tested.record["works"], tested.record["status"]) == (0, True, 200)

    refreshed = await cli("connections", "refresh", *ACME, "--json")
    assert (refreshed.record["generation_before"], refreshed.record["generation"]) == (1, 2)
    now = issuer.grant("mercadolibre", "acme")
    cli.canaries |= {now.refresh_token, now.access_token}

    trial = await cli("providers", "try", "mercadolibre", "--connection", "acme", "--send", "--json")
    assert trial.record["form"]["refresh_token"] == "***"
    assert trial.record["sent"] | {"expires_in_s": 0} == {
        "state": "active",
        "generation_before": 2,
        "generation": 3,
        "expires_in_s": 0,
    }
    now = issuer.grant("mercadolibre", "acme")
    cli.canaries |= {now.refresh_token, now.access_token}

    shown = await cli("connections", "show", *ACME, "--json")
    assert shown.record["reauth_link"] == "https://app.example/reconnect?t=acme&p=mercadolibre"
    assert (shown.record["generation"], shown.record["refreshable"]) == (3, True)

    revoked = await cli("connections", "revoke", *ACME, "--json")
    assert (revoked.record["result"], revoked.record["at_provider"]) == ("revoked", "confirmed")
    refused_test = await cli("connections", "test", *ACME)
    assert (refused_test.code, refused_test.err.splitlines()[1].startswith("hint: ")) == (1, True)

    removed = await cli("connections", "remove", *ACME, "--json")
    assert removed.record["result"] == "removed"
    missing = await cli("connections", "show", *ACME, "--json")
    assert (missing.code, missing.error["code"], missing.out) == (1, "not_found", "")
    assert judge(issuer.ledger()).burnt == 0


async def test_secrets_come_from_anywhere_but_the_command_line(cli: Shell, issuer: Issuer) -> None:
    secrets = a_grant(cli, issuer, "acme")
    (cli.folder / "token.txt").write_text(secrets["refresh_token"] + "\n")
    done = await cli(
        *("connections", "add", *ACME, "--json"),
        *("--secret", "refresh_token=file:token.txt", "--secret", "access_token=env:ACCESS"),
        env={"ACCESS": secrets["access_token"]},
    )
    assert done.record["result"] == "created"
    tested = await cli("connections", "test", *ACME, "--json")
    assert tested.record["works"]


async def test_consent_from_a_terminal(cli: Shell, issuer: Issuer) -> None:
    arguments = ("--redirect-uri", "http://127.0.0.1:0/callback", "--timeout", "20", "--json")
    child = cli.start("connections", "authorize", *ACME, *arguments)
    page = json.loads(await child.line())["authorize_url"]
    consent = await fetch(f"{page}&login_hint=shop-of-acme")
    back = consent.headers["location"]
    query = {name: values[0] for name, values in parse_qs(urlsplit(back).query).items()}
    cli.canaries.add(query["code"])
    forged = await fetch(back.replace(query["state"], "somebody-elses-state"))
    assert forged.status == 400
    assert (await fetch(back.replace("/callback", "/elsewhere"))).status == 404
    assert (await fetch(back)).status == 200
    done = await cli.end(child)
    assert (done.code, done.record["state"], done.record["refreshable"]) == (0, "active", True)
    first = done.record["connection_id"]

    other = await cli("connections", "authorize", *ACME, *arguments)
    assert (other.code, "reauthorize" in other.error["hint"]) == (2, True)
    link = await cli("connections", "reauthorize", *ACME, "--link")
    assert link.out.strip().startswith("https://app.example/reconnect?t=acme")

    for hint, code in (("shop-of-somebody-else", 2), ("shop-of-acme", 0)):
        child = cli.start("connections", "reauthorize", *ACME, *arguments)
        page = json.loads(await child.line())["authorize_url"]
        back = (await fetch(f"{page}&login_hint={hint}")).headers["location"]
        assert (await fetch(back)).status == 200
        done = await cli.end(child)
        assert done.code == code, done.err
    assert (done.record["connection_id"], done.record["generation"]) == (first, 2)


async def test_a_consent_that_never_comes(cli: Shell) -> None:
    arguments = ("--redirect-uri", "http://127.0.0.1:0/callback", "--timeout", "1", "--json")
    done = await cli("connections", "authorize", *ACME, *arguments)
    assert (done.code, done.error["code"]) == (75, "refused")


def nango(cli: Shell, issuer: Issuer, tenant: str) -> dict[str, object]:
    return {
        "id": 1,
        "connection_id": f"conn-{tenant}",
        "provider": "mercado-libre",
        "provider_config_key": "mercado-libre",
        "end_user": {"id": "u1", "organization": {"id": tenant}},
        "connection_config": {"unused": "x"},
        "credentials": {
            "type": "OAUTH2",
            **a_grant(cli, issuer, tenant),
            "expires_at": "2030-01-01T00:00:00Z",
        },
    }


async def test_import_isolates_each_row_and_export_gives_back(cli: Shell, issuer: Issuer) -> None:
    good = {"tenant": "a", "provider": "mercadolibre", **a_grant(cli, issuer, "a"), "expires_in_s": 3600}
    rows = [
        good,
        {"tenant": "b", "provider": "nosuch", "refresh_token": cli.secret("b")},
        {"tenant": "c", "provider": "mercadolibre"},
        {**good, "unknown_field": cli.secret("field")},
        good,
        {"tenant": "e\n\x1b[31m", "provider": "mercadolibre", "refresh_token": cli.secret("e")},
    ]
    (cli.folder / "in.json").write_text(json.dumps(rows))
    dry = await cli("connections", "import", "in.json", "--dry-run", "--json")
    assert (dry.code, dry.rows[0]["result"]) == (3, "would be created")
    done = await cli("connections", "import", "in.json", "--json")
    assert done.code == 3
    assert [(row["row"], row["result"], row.get("code")) for row in done.rows] == [
        (1, "created", None),
        (2, "failed", "provider_not_found"),
        (3, "failed", "invalid_input"),
        (4, "failed", "invalid_input"),
        (5, "failed", "invalid_input"),
        (6, "failed", "invalid_input"),
    ]
    people = await cli("connections", "import", "in.json")
    assert (people.code, "\\x1b[31m" in people.out) == (1, True)

    table = io.StringIO()
    writer = csv.writer(table)
    writer.writerow(["tenant", "provider", "refresh_token", "access_token", "expires_in_s"])
    of_d = a_grant(cli, issuer, "d")
    writer.writerow(["d", "mercadolibre", of_d["refresh_token"], of_d["access_token"], "3600"])
    from_csv = await cli("connections", "import", "-", "--json", stdin=table.getvalue())
    assert (from_csv.code, from_csv.rows[0]["result"]) == (0, "created")

    (cli.folder / "nango.json").write_text(json.dumps({"connections": [nango(cli, issuer, "n")]}))
    from_nango = await cli("connections", "import", "nango.json", "--json")
    assert (from_nango.code, from_nango.rows[0]["result"]) == (0, "created")

    plain = await cli("connections", "export")
    assert sorted(row["tenant"] for row in plain.rows) == ["a", "d", "n"]
    refused = await cli("connections", "export", "--with-secrets", "--json")
    assert refused.code == 2
    saved = await cli("connections", "export", "--with-secrets", "--output", "out.json", "--json")
    assert (saved.record["connections"], saved.record["with_secrets"]) == (3, True)
    file = cli.folder / "out.json"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    tokens = {row["tenant"]: row["refresh_token"] for row in map(json.loads, file.read_text().splitlines())}
    assert tokens["d"] == of_d["refresh_token"]
    export = await cli("connections", "export", "--with-secrets", "--output", "out.json")
    assert export.code == 2

    back = await cli("connections", "import", "out.json", "--replace", "--json")
    assert (back.code, {row["result"] for row in back.rows}) == (0, {"replaced"})
    works = await asyncio.gather(
        *(
            cli("connections", "refresh", "-t", tenant, "-p", "mercadolibre", "--json")
            for tenant in ("a", "n")
        )
    )
    assert [done.record["generation"] for done in works] == [3, 3]


async def test_export_tells_of_a_connection_that_cannot_be_relied_on_and_goes_on(
    cli: Shell, issuer: Issuer, database: Database
) -> None:
    for tenant in ("a", "b"):
        of = ("--tenant", tenant, "--provider", "mercadolibre")
        await cli("connections", "add", *of, stdin=json.dumps(a_grant(cli, issuer, tenant)))
    elsewhere = """UPDATE connection SET settings = '{"hosts": ["evil.example"]}' WHERE tenant_id = $1"""
    await run(database, elsewhere, "a")
    done = await cli("connections", "export", "--with-secrets", "--output", "some.json", "--json")
    failed, result = done.rows
    assert (done.code, failed["tenant"], failed["code"]) == (3, "a", "credential_unreadable")
    assert (result["connections"], result["failed"]) == (1, 1)
    records = [json.loads(line) for line in (cli.folder / "some.json").read_text().splitlines()]
    assert [row["tenant"] for row in records] == ["b"]
    [told_of] = await rows(database, "SELECT details FROM audit WHERE act = 'connections.exported'")
    assert json.loads(told_of["details"]) == {"count": 1}
    await run(database, elsewhere, "b")
    none = await cli("connections", "export", "--with-secrets", "--output", "none.json")
    assert (none.code, (cli.folder / "none.json").read_text()) == (1, "")
    assert none.out.count("secrets were sealed for") == 2
    without = await cli("connections", "export")
    assert (without.code, len(without.rows)) == (0, 2)


async def test_a_grant_that_is_gone_says_what_to_do(cli: Shell, issuer: Issuer) -> None:
    secrets = a_grant(cli, issuer, "acme")
    await cli("connections", "add", *ACME, stdin=json.dumps(secrets))
    issuer.revoke("mercadolibre", "acme")
    done = await cli("connections", "refresh", *ACME, "--json")
    assert (done.code, done.error["code"]) == (1, "reauth_required")
    assert "fairlead connections reauthorize" in done.error["hint"]
    listed = await cli("connections", "list", "--state", "needs_reauth", "--json")
    assert [row["tenant"] for row in listed.rows] == ["acme"]
