"""The settings of a connection from the command line: read as what they are, and refused before they bind."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.support.cli import Shell

ACME = ("--tenant", "acme", "--provider", "stripe")


@pytest.fixture
def cli(shell: Shell) -> Shell:
    shell.settings("")
    return shell


async def add(cli: Shell, *words: str) -> Any:
    return await cli("connections", "add", *ACME, "--json", *words, stdin=cli.secret("sk-live"))


async def settings_of(cli: Shell) -> Any:
    shown = await cli("connections", "show", *ACME, "--json")
    return shown.record["settings"] if shown.code == 0 else None


async def test_a_setting_is_stored_as_what_it_is_and_a_new_grant_keeps_it(cli: Shell) -> None:
    calls = '{"requests": {"limit": 50, "window_s": 1}}'
    added = await add(cli, "--setting", "concurrency_limit=5", "--setting", f"calls={calls}")
    assert added.code == 0, added.err
    expected = {"concurrency_limit": 5, "calls": json.loads(calls)}
    assert await settings_of(cli) == expected
    assert (await add(cli, "--replace")).record["result"] == "replaced"
    assert await settings_of(cli) == expected


@pytest.mark.parametrize(
    ("setting", "exit_code", "code", "expected"),
    [
        ("concurrency_limit=five", 2, "invalid_input", "concurrency_limit=5"),
        ("breaker_failures=0", 78, "invalid_config", "breaker_failures"),
        ('minimum_slots={"1": 2}', 78, "invalid_config", "minimum_slots"),
        ('calls={"requests": {"limit": 5, "window_s": 1, "apis": ["soap"]}}', 78, "invalid_config", "'soap'"),
    ],
)
async def test_a_setting_that_cannot_be_stores_nothing(
    cli: Shell, setting: str, exit_code: int, code: str, expected: str
) -> None:
    for words in (("--dry-run",), ()):
        refused = await add(cli, "--setting", setting, *words)
        assert (refused.code, refused.error["code"]) == (exit_code, code), refused.err
        assert expected in refused.err
        assert "hint" in refused.error
    assert await settings_of(cli) is None


async def test_cells_of_a_table_are_read_the_same_way_and_a_bad_one_stops_no_other(cli: Shell) -> None:
    rows = (
        "tenant,provider,api_key,settings.concurrency_limit",
        f"acme,stripe,{cli.secret('one')},7",
        f"beta,stripe,{cli.secret('two')},many",
    )
    done = await cli("connections", "import", "-", "--json", stdin="\n".join(rows))
    assert (done.code, [row["result"] for row in done.rows]) == (3, ["created", "failed"])
    assert await settings_of(cli) == {"concurrency_limit": 7}


async def test_settings_are_changed_without_the_grant(cli: Shell) -> None:
    await add(cli, "--setting", "concurrency_limit=5", "--setting", "observe=true")
    change = ("connections", "set", *ACME, "--setting", "tenant_slots=9", "--unset", "observe", "--json")
    settings_after = {"concurrency_limit": 5, "tenant_slots": 9}
    dry = await cli(*change, "--dry-run")
    assert (dry.code, dry.record["result"], dry.record["settings"]) == (0, "would be set", settings_after)
    assert await settings_of(cli) == {"concurrency_limit": 5, "observe": True}
    done = await cli(*change)
    assert (done.code, done.record["result"], done.record["settings"]) == (0, "set", settings_after)
    assert await settings_of(cli) == settings_after
    shown = await cli("connections", "show", *ACME, "--json")
    assert shown.record["generation"] == 1, "the grant is as it was"

    for words, exit_code, expected in (
        ((), 2, "--setting NAME=VALUE"),
        (("--unset", "observe"), 2, "it has: concurrency_limit, tenant_slots"),
        (("--setting", "breaker_failures=0"), 78, "breaker_failures"),
        (("--setting", "tenant_slots=few"), 2, "tenant_slots=5"),
        (("--setting", "max_retrys=3"), 78, "did you mean max_retries?"),
        (("--setting", "deadline_s=86400"), 78, "deadline_s"),
        (("--setting", 'pages={"soap": {"kind": "link"}}'), 78, "it has: rest"),
        (("--setting", 'hosts=["*.com"]'), 78, "hosts"),
    ):
        refused = await cli("connections", "set", *ACME, "--json", *words)
        assert (refused.code, expected in refused.err) == (exit_code, True), refused.err
    assert await settings_of(cli) == settings_after


async def test_settings_of_calls_are_told_with_their_level_and_a_limit_that_one_process_cannot_hold(
    cli: Shell,
) -> None:
    await add(cli)
    change = ("connections", "set", *ACME, "--setting", "deadline_s=20", "--setting", "note=ours")
    done = await cli(*change, "--setting", "concurrency_limit=400", "--json")
    assert (done.code, done.record["settings"]["note"]) == (0, "ours")
    assert done.record["calls"]["deadline_s"] == {"value": 20.0, "from": "connection"}
    assert "http.max_connections_per_host" in done.record["note"]
    few = await cli("connections", "set", *ACME, "--setting", "concurrency_limit=4", "--json")
    assert few.record["note"] is None
    shown = await cli("connections", "show", *ACME, "--json")
    assert shown.record["calls"]["max_retries"] == {"value": 3, "from": "default"}
