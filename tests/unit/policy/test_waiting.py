"""Why a job waits: the first reason that holds, in a sentence that says what to do (Q14)."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from fairlead.policy.jobs.explain import FullCap, HeldBy, JobFacts, explain_wait, scope_options
from fairlead.policy.jobs.lane import Scope, ScopeKind
from fairlead.policy.reasons.job_reasons import (
    CAPPED,
    EXPIRED,
    FINISHED,
    FOLLOWS,
    LANE_NOT_READY,
    NO_HANDLER,
    NO_WORKER,
    NOT_DUE,
    PAUSED,
    QUEUED,
    RUNNING,
    SUSPECT,
)

NOW = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)
SECOND, HOUR = timedelta(seconds=1), timedelta(hours=1)
UNPAID = HeldBy(Scope(ScopeKind.TENANT, "acme"), None, "unpaid", "ann")
NO_GRANT = HeldBy(Scope(ScopeKind.GROUP, "shopify/eu", "Ann's"), None, "needs_reauth", "fairlead")
LIMIT = HeldBy(Scope(ScopeKind.GROUP, "shopify/default", "acme"), NOW + HOUR, "429", "job 7")
WAITS = JobFacts(
    now=NOW,
    state="available",
    run_at=NOW - SECOND,
    queue="mail",
    kind="mail.send",
    workers=3,
    lane_ready=True,
    ahead_in_lane=0,
    lanes_ahead=0,
)


def explanation(**changes: object) -> tuple[str, str, datetime | None]:
    reason = explain_wait(replace(WAITS, **changes))  # type: ignore[arg-type]
    return reason.reason, reason.detail, reason.until


@pytest.mark.parametrize(
    ("changes", "why", "words"),
    [
        ({"state": "completed"}, FINISHED, "done"),
        ({"state": "cancelled", "cancelled_because": "left"}, FINISHED, "cancelled: left"),
        ({"state": "cancelled"}, FINISHED, "no reason is kept"),
        ({"state": "discarded", "dead_letter_id": "d7"}, FINISHED, "`fairlead dlq show d7`"),
        ({"state": "discarded"}, FINISHED, "`fairlead dlq list --status any`"),
        (
            {"state": "running", "worker": "h:7", "attempt": 2, "started_at": NOW - 9 * SECOND},
            RUNNING,
            "attempt 2 runs on h:7 since 9 s",
        ),
        ({"state": "running", "worker": "h:7"}, RUNNING, "begins it once there is room"),
        (
            {"state": "running", "worker": "h:7", "silent_s": 31.0},
            RUNNING,
            "no heartbeat for 31 s, lease 30 s",
        ),
        ({"state": "running"}, RUNNING, "not known any more"),
        ({"expires_at": NOW}, EXPIRED, "dead letters within seconds"),
        ({"run_at": NOW + HOUR}, NOT_DUE, "due in 3600 s (hint: `fairlead jobs retry`"),
        (
            {"run_at": NOW + SECOND, "attempt": 3, "last_failure": "http_503"},
            NOT_DUE,
            "attempt 3 failed (http_503); it is due in 1 s",
        ),
        ({"pauses": [UNPAID]}, PAUSED, "`fairlead jobs resume --tenant acme`"),
        (
            {"pauses": [NO_GRANT, UNPAID]},
            PAUSED,
            "`fairlead connections reauthorize -t 'Ann'\"'\"'s' -p shopify -a eu`",
        ),
        (
            {"full_caps": [FullCap("acme", None, 5)]},
            CAPPED,
            "tenant 'acme' runs as many as its cap allows (5)",
        ),
        ({"full_caps": [FullCap(None, "g", 2)]}, CAPPED, "group 'g' runs"),
        ({"full_caps": [FullCap("a", "g", 2)]}, CAPPED, "group 'g' of tenant 'a' runs"),
        ({"follows": True, "run_at": NOW + 9 * HOUR}, FOLLOWS, "once that run has ended"),
        ({"workers": 0}, NO_WORKER, "`fairlead run`"),
        ({"handled": False, "kind": "wrok"}, NO_HANDLER, "no worker takes kind 'wrok' from queue 'mail'"),
        ({"crash_count": 1}, SUSPECT, "1 crash of"),
        ({"crash_count": 2}, SUSPECT, "2 crashes of"),
        ({"lane_ready": False}, LANE_NOT_READY, "the next sweep"),
        ({"lane_ready": False, "lane_wakes_at": NOW + HOUR}, LANE_NOT_READY, "the next sweep"),
        ({"lane_ready": False, "lane_wakes_at": NOW}, QUEUED, "within a second"),
        ({"ahead_in_lane": 1, "lanes_ahead": 4}, QUEUED, "1 job of its own lane and 4 lanes of its class"),
        ({"urgent_lanes": 2}, QUEUED, "and 2 more urgent lanes"),
        ({"lane_waits_s": 31.0}, QUEUED, "does none take queue 'mail' and kind 'mail.send'?"),
    ],
)
def test_wait_has_one_reason_with_a_next_step(changes: dict[str, object], why: str, words: str) -> None:
    reason, detail, _ = explanation(**changes)
    assert reason == why
    assert words in detail


def test_the_first_reason_that_holds_is_told() -> None:
    everything: dict[str, object] = {
        "expires_at": NOW,
        "run_at": NOW + SECOND,
        "pauses": [UNPAID],
        "full_caps": [FullCap("acme", None, 5)],
        "workers": 0,
        "crash_count": 1,
        "lane_ready": False,
    }
    order = []
    for name in ("expires_at", "run_at", "pauses", "full_caps", "workers", "crash_count", "lane_ready"):
        order.append(explanation(**everything)[0])
        del everything[name]
    assert order == [EXPIRED, NOT_DUE, PAUSED, CAPPED, NO_WORKER, SUSPECT, LANE_NOT_READY]
    assert explanation()[0] == QUEUED


def test_when_it_ends() -> None:
    assert explanation(run_at=NOW + HOUR)[2] == NOW + HOUR
    assert explanation(pauses=[LIMIT])[2] == NOW + HOUR
    assert explanation(pauses=[LIMIT, replace(LIMIT, until=NOW + 2 * HOUR)])[2] == NOW + 2 * HOUR
    assert explanation(pauses=[LIMIT, UNPAID])[2] is None


def test_wait_names_the_hold_after_the_due_time() -> None:
    _, detail, _ = explanation(run_at=NOW + SECOND, pauses=[LIMIT])
    assert "then group 'shopify/default' of tenant 'acme' is paused by job 7: 429 still holds it" in detail
    assert "paused" not in explanation(run_at=NOW + 2 * HOUR, pauses=[LIMIT])[1]


def test_a_scope_as_it_is_typed() -> None:
    assert scope_options(Scope(ScopeKind.QUEUE, "mail")) == "--queue mail"
    assert scope_options(Scope(ScopeKind.TENANT, "a b; rm")) == "--tenant 'a b; rm'"
