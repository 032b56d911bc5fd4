"""The parts of the demo that decide: who is on stage, what its settings say, and how a run is judged."""

from __future__ import annotations

import json
import stat
from collections import Counter
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from fairlead.assembly.config import load
from fairlead.assembly.providers import ProfileRegistry
from fairlead.demo.demo_plan import ACCOUNTS, PROVIDERS, TENANTS, DemoAccount, DemoPlan
from fairlead.demo.file_tail import IssuerTraffic, RetryCounts, Tail
from fairlead.demo.profile import settings, write_settings
from fairlead.demo.recovery import Recovery
from fairlead.demo.report import DemoJudge, FinalState, RunNotes
from fairlead.demo.token_callers import CallTally, RejectedToken, expired_when_served
from fairlead.demo.worker import child_environment
from fairlead.engine.ports import Connection, Credential, Sealed
from fairlead.testing.issuer import Policy
from fairlead.testing.ledger import Ledger, parse_ledger

KILLED_MONO = 100.0
PLAN = DemoPlan(30.0, 1)
STAYING = [account for account in ACCOUNTS if account not in PLAN.leaving()]
STRICT = next(account for account in STAYING if account.provider.policy is Policy.STRICT)
GRACE = next(account for account in STAYING if account.provider.policy is Policy.GRACE)


# ---- who is on stage -----------------------------------------------------------------------------


def test_twenty_tenants_hold_ten_connections_each_under_all_six_policies() -> None:
    assert Counter(account.key.tenant for account in ACCOUNTS) == dict.fromkeys(TENANTS, 10)
    assert {role.policy for role in PROVIDERS} == set(Policy)
    for naming in (
        lambda account: account.key,
        lambda account: (account.provider, account.name),
        lambda account: account.label,
    ):
        assert len(set(map(naming, ACCOUNTS))) == len(ACCOUNTS) == 200


@pytest.mark.parametrize("seed", range(20))
def test_three_customers_of_three_providers_leave_the_same_ones_for_a_seed(seed: int) -> None:
    leaving_accounts = DemoPlan(15.0, seed).leaving()
    assert len({account.provider for account in leaving_accounts}) == 3
    assert leaving_accounts == DemoPlan(60.0, seed).leaving()


@pytest.mark.parametrize("seconds", [15.0, 60.0, 600.0])
def test_acts_do_not_overlap(seconds: float) -> None:
    plan = DemoPlan(seconds, 1)
    acts = [
        *plan.revoke_after_s,
        plan.limited_after_s,
        plan.limited_after_s + plan.outage_s,
        plan.killed_after_s,
        plan.down_after_s,
        plan.down_after_s + plan.outage_s,
        plan.seconds,
    ]
    assert acts == sorted(acts)


# ---- what its settings say -----------------------------------------------------------------------


def test_the_settings_file_is_read_back_and_points_every_profile_at_the_issuer(tmp_path: Path) -> None:
    file = tmp_path / "fairlead.toml"
    write_settings(file, settings(tmp_path, "http://127.0.0.1:8080"))
    assert stat.S_IMODE(file.stat().st_mode) == 0o600  # the master key is in it
    loaded = load({}, file).settings
    assert loaded.refresh.lease_s > loaded.refresh.total_deadline_s > loaded.refresh.request_deadline_s
    book = ProfileRegistry(loaded)
    for account in ACCOUNTS:
        profile = book.profile(account.key.provider, account.provider.variant)
        assert profile.replay is not None
        assert profile.replay.policy == account.provider.policy.value
        values = profile.endpoint_values(account.endpoint)
        assert profile.url("token", values) == f"http://127.0.0.1:8080/{account.key.provider}/token"


def test_workers_do_not_see_the_settings_of_the_user() -> None:
    environ = {
        "DATABASE_URL": "postgresql://mine", "DATABASE_URL_FILE": "/x", "REDIS_URL": "redis://mine",
        "FAIRLEAD_VAULT__KMS": "mine:kms", "LOG_LEVEL": "debug", "PATH": "/bin", "HOME": "/tmp",
    }  # fmt: skip
    assert set(child_environment(environ)) == {"PATH", "HOME"}


# ---- files that grow -----------------------------------------------------------------------------


def test_half_a_line_waits_for_its_rest(tmp_path: Path) -> None:
    file = tmp_path / "ledger"
    file.write_text('{"ev":"arrived"}\n{"ev":"answered","status":4')
    provider = IssuerTraffic(file)
    provider.update()
    assert (provider.posts, provider.statuses) == (1, {})
    with file.open("a") as opened:
        opened.write('29}\n{"ev":"answered"}\n')
    provider.update()
    assert (provider.posts, provider.statuses) == (1, {429: 1})


def test_retries_are_read_from_the_logs_of_all_workers(tmp_path: Path) -> None:
    line = {"event": "job_finished", "outcome": "retried", "category": "transient_server"}
    logs = [tmp_path / "1.log", tmp_path / "2.log"]
    for log in logs:
        log.write_text(f"a word of the interpreter\n{json.dumps(line)}\n")
    retries = RetryCounts()
    retries.update(logs)
    retries.update(logs)
    assert retries.by_category == {"transient_server": 2}
    assert list(Tail(logs[0], b"needs_reauth").news()) == []


# ---- how a run is judged -------------------------------------------------------------------------


def lines_of(*entries: dict[str, Any]) -> Ledger:
    """A ledger of these lines."""
    numbered = ({"seq": number, **entry} for number, entry in enumerate(entries, 1))
    return parse_ledger(f"{json.dumps(entry)}\n" for entry in numbered)


def start_record(account: DemoAccount, **more: Any) -> dict[str, Any]:
    fields = {"provider": account.key.provider, "connection": account.name, "generation": 1}
    return (
        {"t": 90.0, "ev": "family", "change": "registered", "policy": account.provider.policy.value}
        | fields
        | more
    )


def post(
    account: DemoAccount, request: int, at_s: float, processed: dict[str, Any], **answered: Any
) -> list[dict[str, Any]]:
    """Generation 1 is presented and answered 0.1 s later."""
    fields = {"req": request, "provider": account.key.provider, "connection": account.name, "generation": 1}
    lines = [{"t": at_s, "ev": "arrived", "left_s": 3.0, **fields}]
    if processed:
        lines.append({"t": at_s, "ev": "processed", **fields, **processed})
    lines.append({"t": at_s + 0.1, "ev": "answered", **fields, **answered})
    return lines


STARTED, STOPPED = {"t": 80.0, "ev": "started"}, {"t": 130.0, "ev": "stopped"}


def credential(account: DemoAccount, state: str = "active", reason: str | None = None) -> Credential:
    nobody = UUID(int=0)
    return Credential(
        connection=Connection(nobody, account.key, None, None, "", {}, {}),
        state=state,  # type: ignore[arg-type]
        state_reason=reason,
        generation=2,
        settled_epoch=1,
        sealed=Sealed(nobody, b""),
        refreshable=True,
        read_at=datetime.now(UTC),
        expires_in_s=5.0,
        urgent_in_s=2.0,
        critical_in_s=3.0,
        due_in_s=2.0,
        refreshed_age_s=1.0,
        expires_at=None,
        rotation=None,
    )


def judged(
    ledger: Ledger,
    standing: dict[DemoAccount, str] | None = None,
    *,
    in_flight: Iterable[DemoAccount] = (),
    **more: Any,
) -> DemoJudge:
    """A run with one kill; *standing* are the connections in needs_reauth, besides the customers who left."""
    reasons = {**dict.fromkeys(PLAN.leaving(), "invalid_grant"), **(standing or {})}
    connections = [
        credential(account, "needs_reauth", reasons[account]) if account in reasons else credential(account)
        for account in ACCOUNTS
    ]
    recovery = Recovery(UUID(int=1), KILLED_MONO, suspects={account.key for account in in_flight})
    recovery.recovered_s, recovery.settled_s = 1.0, 2.0
    fields = {"tally": CallTally(), "exit_codes": {"worker 2": 0}} | more
    run = RunNotes(plan=PLAN, leaving=PLAN.leaving(), recovery=recovery, killed=1, took_s=30.0, **fields)
    return DemoJudge(run, FinalState(connections, [], []), ledger)


LOST = post(STRICT, 1, KILLED_MONO, {"kind": "rotated", "successor": 2}, delivered=False)


def test_a_quiet_run_keeps_every_promise() -> None:
    report = judged(lines_of(STARTED, STOPPED)).report()
    assert report.violations == []
    figures = report.as_json()
    assert (figures["needs_reauth"], figures["revoked_by_customer"], figures["lost_rotation"]) == (3, 3, 0)


def test_a_token_burnt_by_the_kill_is_explained_and_counted_as_lost() -> None:
    ledger = lines_of(STARTED, start_record(STRICT), *LOST, STOPPED)
    report = judged(ledger, {STRICT: "lost_rotation"}, in_flight=[STRICT]).report()
    assert report.violations == []
    assert (report.figures["burnt_outside_window"], report.figures["lost_rotation"]) == (0, 1)
    assert report.figures["needs_reauth"] == 4


def test_lost_rotation_counts_as_in_flight_though_no_sample_after_the_kill_showed_it() -> None:
    ledger = lines_of(STARTED, start_record(STRICT), *LOST, STOPPED)
    report = judged(ledger, {STRICT: "lost_rotation"}, in_flight=[STRICT]).report()
    assert report.figures["refreshes_in_flight_at_kill"] == 1


@pytest.mark.parametrize("why", ["not_in_flight", "long_before"])
def test_any_other_burnt_token_is_a_violation(why: str) -> None:
    lost = post(STRICT, 1, KILLED_MONO - 5, {"kind": "rotated", "successor": 2}, delivered=False)
    ledger = lines_of(STARTED, start_record(STRICT), *(lost if why == "long_before" else LOST), STOPPED)
    in_flight = [STRICT] if why == "long_before" else []
    report = judged(ledger, {STRICT: "lost_rotation"}, in_flight=in_flight).report()
    assert report.figures["burnt_outside_window"] == 1
    assert [STRICT.name in text for text in report.violations] == [True]


def test_a_connection_that_needs_its_customer_for_no_reason_is_a_violation() -> None:
    (violation,) = judged(lines_of(STARTED, STOPPED), {GRACE: "invalid_grant"}).report().violations
    assert GRACE.key.tenant in violation
    assert "never left" in violation


def refused_twice() -> Ledger:
    """A withdrawn grant is presented, refused, and presented once more; the first refusal left whole."""
    refused = {"kind": "refused", "reason": "revoked"}
    first = post(GRACE, 1, KILLED_MONO - 0.1, refused, delivered=True, status=400)
    again = post(GRACE, 2, KILLED_MONO + 2, refused, delivered=True, status=400)
    return lines_of(STARTED, start_record(GRACE, grace_s=30.0), *first, *again, STOPPED)


def test_process_killed_before_it_read_a_refusal_may_repeat_the_request() -> None:
    assert judged(refused_twice(), in_flight=[GRACE]).report().violations == []
    (violation,) = judged(refused_twice()).report().violations
    assert "presented 2 times" in violation


def test_a_worker_that_does_not_stop_well_is_a_violation() -> None:
    report = judged(lines_of(STARTED, STOPPED), exit_codes={"worker 2": -9}).report()
    assert report.violations == ["worker 2 ended with exit code -9 when asked to stop"]


@pytest.mark.parametrize(
    ("late_s", "counted"),
    [pytest.param(0.5, True, id="dead when handed out"), pytest.param(0.05, False, id="died on its way")],
)
def test_only_tokens_that_were_dead_when_handed_out_count(late_s: float, counted: bool) -> None:
    fields = {"provider": STRICT.key.provider, "connection": STRICT.name, "status": 401, "why": "expired"}
    ledger = lines_of(STARTED, {"t": 95.2, "ev": "resource", "late_s": late_s, **fields}, STOPPED)
    rejected = RejectedToken(STRICT, served_mono=95.1, rejected_mono=95.3)
    assert expired_when_served([rejected], ledger) == ([rejected] if counted else [])
    report = judged(ledger, tally=CallTally(expired=[rejected])).report()
    assert bool(report.violations) is counted


def test_another_connections_expired_token_is_not_taken_for_ours() -> None:
    fields = {"provider": GRACE.key.provider, "connection": GRACE.name, "status": 401, "why": "expired"}
    ledger = lines_of(STARTED, {"t": 95.2, "ev": "resource", "late_s": 9.0, **fields}, STOPPED)
    assert expired_when_served([RejectedToken(STRICT, 95.1, 95.3)], ledger) == []
