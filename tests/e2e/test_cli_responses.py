"""``fairlead config test-response``: what is printed, by whose rules, and what is refused (C3)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.support.cli import Shell

BUSY = {"status": 409, "headers": {"X-Why": "rebuild"}, "body": {"message": "being rebuilt", "code": "BUSY"}}
WIRE = "HTTP/1.1 429 Too Many Requests\r\nRetry-After: 120\r\n\r\n"
RULE = {
    "name": "busy",
    "http_codes": [409],
    "patterns": [],
    "provider_codes": ["BUSY"],
    "strategy": "constant",
}


@pytest.fixture
def cli(bare: Shell) -> Shell:
    bare.settings("")
    (bare.folder / "busy.json").write_text(json.dumps(BUSY))
    return bare


async def test_a_verdict_for_programs(cli: Shell) -> None:
    (cli.folder / "limit.txt").write_bytes(WIRE.encode())
    report: Any = (await cli("config", "test-response", "limit.txt", "--provider", "stripe", "--json")).record
    assert (report["status"], report["result"], report["category"]) == (429, "failed", "transient_rate_limit")
    assert (report["rule"], report["step"], report["strategy"]) == ("rate_limit_errors", "status", "standard")
    assert (report["next"], report["max_attempts"], report["hint_s"]) == ("retry", 3, 120)
    assert (report["health"], report["scope"], report["refused_before_acting"]) == (
        "healthy",
        "connection",
        True,
    )
    assert report["delays"][0] == {"least_s": 120, "most_s": 132}
    assert [step["place"] for step in report["steps"]][:2] == ["answer", "protocol body"]
    assert report["steps"][-1]["seen"] == report["why"]


async def test_a_verdict_for_people_has_the_way_to_it(cli: Shell) -> None:
    done = await cli("config", "test-response", "busy.json")
    assert (done.code, done.err) == (0, "")
    for words in ("transient_network", "unclassified", "step by step", "no rule knows status 409", "BUSY"):
        assert words in done.out


async def test_items_of_a_batch_are_told_one_by_one(cli: Shell) -> None:
    body = {"items": [{"index": 0, "status": 201}, {"index": 2, "status": 503}]}
    recorded = json.dumps({"status": 207, "body": body})
    report: Any = (await cli("config", "test-response", "-", "--json", stdin=recorded)).record
    assert (report["result"], report["next"]) == ("partial", "retry")
    assert [(item["index"], item["retried"]) for item in report["failed_items"]] == [(2, True)]
    assert "failed items" in (await cli("config", "test-response", "-", stdin=recorded)).out


async def test_the_providers_scale_of_delays_counts(cli: Shell) -> None:
    recorded = '{"status": 500}'
    for provider, most_s in (("stripe", 1.0), ("mercadolibre", 1.5)):
        report: Any = (
            await cli("config", "test-response", "-", "-p", provider, "--json", stdin=recorded)
        ).record
        assert report["delays"][0]["most_s"] == most_s


@pytest.mark.slow
async def test_the_rules_of_a_connection(shell: Shell) -> None:
    shell.settings("")
    acme = ("--tenant", "acme/eu", "--provider", "stripe")
    rule = f"patterns={json.dumps([RULE])}"
    added = await shell("connections", "add", *acme, "--setting", rule, stdin=shell.secret("key"))
    assert added.code == 0, added.err
    command = ("config", "test-response", "-", "--json")
    report: Any = (await shell(*command, "--connection", "acme/eu/stripe", stdin=json.dumps(BUSY))).record
    assert (report["rule"], report["step"], report["strategy"]) == ("busy", "provider code", "constant")
    report = (await shell(*command, "--provider", "stripe", stdin=json.dumps(BUSY))).record
    assert report["rule"] == "status 409"
    nobody = await shell(*command, "--connection", "nobody/stripe", stdin=json.dumps(BUSY))
    assert (nobody.code, nobody.error["code"]) == (1, "not_found")
    wrong = json.dumps([{**RULE, "patterns": ["re:(a)\\1"]}])
    refused = await shell("connections", "set", *acme, "--setting", f"patterns={wrong}", "--json")
    assert (refused.code, refused.error["code"]) == (78, "invalid_config")
    assert "backreferences" in refused.error["message"]


@pytest.mark.parametrize(
    ("words", "code", "expected"),
    [
        (("nowhere.txt",), 2, "cannot be read"),
        ((".",), 2, "cannot be read"),
        (("fairlead.toml",), 2, "status line"),
        (("busy.json", "--connection", "acme"), 2, "TENANT/PROVIDER"),
        (("busy.json", "--connection", "acme/stripe", "--provider", "stripe"), 2, "both"),
        (("busy.json", "--provider", "nosuch"), 1, "no profile"),
        (("busy.json", "--connection", "acme/stripe"), 69, "database"),
    ],
)
async def test_malformed_response_file_is_refused_with_a_hint(
    cli: Shell, words: tuple[str, ...], code: int, expected: str
) -> None:
    done = await cli("config", "test-response", *words, "--json")
    assert (done.code, done.out) == (code, "")
    assert expected in done.error["message"]
    assert done.error["hint"]
