"""May a token be sent twice? The table of reference/tokens.md §3.2, and what must never happen."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.policy.providers.profile_load import load_profiles
from fairlead.policy.tokens.replay import (
    GiveUp,
    ReplayLater,
    ReplayNow,
    defer_s,
    replay_decision,
    replayable_s,
)

DAY = 86_400.0
STRICT = ["strict", "strict_family_revoke"]
DEADLINE_S = 15.0


@pytest.mark.parametrize(
    ("policy", "grace_s", "at_expiry", "age_s", "last_s", "access_s", "done", "expected"),
    [
        ("stable", None, False, 5, 5, 600, 0, ReplayNow()),
        ("stable", None, False, 90 * DAY, 90 * DAY, -5, 7, ReplayNow()),
        ("assertion", None, False, 5, 5, 600, 3, ReplayNow()),
        ("until_successor_used", None, False, 90 * DAY, 90 * DAY, -5, 2, ReplayNow()),
        ("until_successor_used", None, False, 0, 0, 600, 0, ReplayLater(15)),
        ("until_successor_used", None, False, 14, 14, -5, 0, ReplayLater(1)),  # what was sent may be on its way
        ("until_successor_used", None, False, 15, 15, 600, 0, ReplayNow()),
        ("until_successor_used", None, False, 90 * DAY, 5, -5, 1, ReplayLater(10)),  # so may a replay before it
        ("until_successor_used", 30 * DAY, False, 29 * DAY, 29 * DAY, 600, 2, ReplayNow(DAY - 15)),
        ("until_successor_used", 30 * DAY, False, 31 * DAY, 31 * DAY, 600, 0, GiveUp()),
        ("grace", 1800, False, 0, 0, 600, 0, ReplayLater(15)),
        ("grace", 1800, False, 15, 15, 600, 0, ReplayNow(1770)),
        ("grace", 1800, False, 200, 3, 600, 1, ReplayLater(12)),
        ("grace", 20, False, 0, 0, 600, 0, ReplayLater(9)),  # half of the 18 s in which it may leave
        ("grace", 20, False, 9, 9, 600, 0, ReplayNow(9)),
        ("grace", 20, False, 9, 0, 600, 1, ReplayLater(4.5)),  # half of what was left
        ("grace", 20, False, 13.5, 4.5, 600, 1, ReplayNow(4.5)),
        ("grace", 1800, False, 1785, 1785, 600, 1, ReplayNow(0)),
        ("grace", 1800, False, 1786, 1786, 600, 0, GiveUp()),  # it could arrive after the grace
        ("grace", 1800, False, 1801, 1801, -5, 0, GiveUp()),
        ("grace", 2, False, 1.8, 1.8, 5, 0, ReplayNow(0)),
        ("grace", 2, False, 1.9, 1.9, 5, 0, GiveUp()),
        ("strict", None, True, 5, 5, 600, 0, ReplayLater(600)),
        ("strict", None, True, 700, 700, 0, 0, ReplayNow()),
        ("strict", None, True, 700, 700, -60, 0, ReplayNow()),
        ("strict", None, True, 700, 700, -60, 1, GiveUp()),
        ("strict", None, False, 5, 5, 600, 0, ReplayLater(600)),
        ("strict", None, False, 700, 700, 0, 0, GiveUp()),
        ("strict", None, True, 5, 5, None, 0, ReplayLater(10)),
        ("strict", None, True, 5, 5, -60, 0, ReplayLater(10)),
        ("strict", None, True, 5, 5, 2, 0, ReplayLater(10)),  # it will be dead before the send is over
        ("strict", None, False, 5, 5, 2, 0, ReplayLater(2)),
        ("strict", None, True, 5, 5, -60, 1, GiveUp()),
        ("strict", None, True, 15, 15, None, 0, ReplayNow()),
        ("strict_family_revoke", None, False, 5, 5, 600, 0, ReplayLater(600)),
        ("strict_family_revoke", None, False, 700, 700, -1, 0, GiveUp()),
        ("strict_family_revoke", None, True, 700, 700, -1, 0, ReplayNow()),
        ("strict_family_revoke", None, True, 700, 700, -1, 1, GiveUp()),
    ],
)  # fmt: skip
def test_the_table(
    policy: str, grace_s: float | None, at_expiry: bool, age_s: float, last_s: float, access_s: float | None,
    done: int, expected: object,
) -> None:  # fmt: skip
    decision = replay_decision(
        policy,  # type: ignore[arg-type]
        grace_s=grace_s,
        replay_at_expiry=at_expiry,
        age_since_sent_s=age_s,
        age_since_last_sent_s=last_s,
        request_deadline_s=DEADLINE_S,
        access_expires_in_s=access_s,
        replays_done=done,
    )
    assert decision == expected


@pytest.mark.parametrize(
    ("policy", "grace_s", "expected"),
    [
        ("until_successor_used", None, math.inf),
        ("until_successor_used", 1000.0, 985.0),
        ("grace", 1800.0, 1785.0),
        ("grace", 2.0, 1.8),
        ("stable", None, None),
        ("assertion", None, None),
        ("strict", None, None),
        ("strict_family_revoke", None, None),
    ],
)
def test_an_answer_gives_way_for_as_long_as_a_replay_is_allowed(
    policy: str, grace_s: float | None, expected: float | None
) -> None:
    assert defer_s(policy, grace_s) == expected  # type: ignore[arg-type]


seconds = st.floats(0, 1e8)


@given(st.sampled_from(STRICT), st.booleans(), seconds, st.floats(0.001, 1e8), st.integers(0, 5))
def test_strict_never_replays_while_the_access_token_lives(
    policy: str, at_expiry: bool, age_s: float, access_s: float, done: int
) -> None:
    decision = replay_decision(
        policy,  # type: ignore[arg-type]
        grace_s=None,
        replay_at_expiry=at_expiry,
        age_since_sent_s=age_s,
        age_since_last_sent_s=age_s,
        request_deadline_s=DEADLINE_S,
        access_expires_in_s=access_s,
        replays_done=done,
    )
    assert isinstance(decision, ReplayLater)
    one_more = at_expiry and done == 0
    assert decision.delay_s == pytest.approx(max(access_s, DEADLINE_S - age_s if one_more else 0.0))


@given(st.sampled_from(STRICT), st.booleans(), seconds, st.floats(-1e8, 0), st.integers(1, 5))
def test_strict_replays_at_most_once(
    policy: str, at_expiry: bool, age_s: float, access_s: float, done: int
) -> None:
    decision = replay_decision(
        policy,  # type: ignore[arg-type]
        grace_s=None,
        replay_at_expiry=at_expiry,
        age_since_sent_s=age_s,
        age_since_last_sent_s=age_s,
        request_deadline_s=DEADLINE_S,
        access_expires_in_s=access_s,
        replays_done=done,
    )
    assert decision == GiveUp("lost_rotation")


@given(st.floats(0.01, 90 * DAY))
def test_a_replay_starts_early_enough_to_arrive_inside_the_grace(grace_s: float) -> None:
    assert 0 < replayable_s(grace_s) < grace_s
    assert grace_s - replayable_s(grace_s) <= 15.001


@given(
    st.sampled_from(["until_successor_used", *STRICT]),
    st.booleans(),
    seconds,
    st.floats(0, DEADLINE_S, exclude_max=True),
    st.none() | st.floats(-1e8, 1e8),
    st.integers(0, 5),
)
def test_no_replay_overtakes_what_was_sent_before(
    policy: str, at_expiry: bool, before_s: float, last_s: float, access_s: float | None, done: int
) -> None:
    decision = replay_decision(
        policy,  # type: ignore[arg-type]
        grace_s=None,
        replay_at_expiry=at_expiry,
        age_since_sent_s=before_s + last_s,
        age_since_last_sent_s=last_s,
        request_deadline_s=DEADLINE_S,
        access_expires_in_s=access_s,
        replays_done=done,
    )
    assert not isinstance(decision, ReplayNow)
    if policy == "until_successor_used":
        assert decision == ReplayLater(DEADLINE_S - last_s)


@given(st.floats(0.01, 90 * DAY), st.floats(0, 1), st.floats(0, 1))
def test_inside_a_grace_a_replay_waits_as_long_as_it_can_and_never_too_long(
    grace_s: float, share: float, since: float
) -> None:
    """*share* of the time was over at the latest send, *since* of the rest has gone by."""
    most_s = replayable_s(grace_s)
    left_then_s = most_s * (1 - share)
    last_s = left_then_s * since
    decision = replay_decision(
        "grace",
        grace_s=grace_s,
        replay_at_expiry=False,
        age_since_sent_s=most_s * share + last_s,
        age_since_last_sent_s=last_s,
        request_deadline_s=DEADLINE_S,
        access_expires_in_s=600,
        replays_done=1,
    )
    wait_s = min(DEADLINE_S, left_then_s / 2)
    match decision:
        case ReplayLater(delay_s):
            assert delay_s == pytest.approx(wait_s - last_s, abs=1e-6)
            assert delay_s < left_then_s - last_s + 1e-6, "it would miss the grace"
        case ReplayNow():
            assert last_s >= wait_s - 1e-6
        case GiveUp():
            assert since > 1 - 1e-6 or left_then_s < 1e-6


@given(st.floats(0.01, 90 * DAY), st.floats(0, 1))
def test_a_replay_leaves_no_later_than_it_might_have_been_judged(grace_s: float, share: float) -> None:
    age_s = replayable_s(grace_s) * share
    decision = replay_decision(
        "grace",
        grace_s=grace_s,
        replay_at_expiry=False,
        age_since_sent_s=age_s,
        age_since_last_sent_s=DEADLINE_S,
        request_deadline_s=DEADLINE_S,
        access_expires_in_s=600,
        replays_done=0,
    )
    assert isinstance(decision, ReplayNow)
    assert decision.within_s is not None
    assert age_s + decision.within_s == pytest.approx(replayable_s(grace_s))


def test_every_profile_that_refreshes_gets_a_decision() -> None:
    for base in load_profiles().values():
        for profile in (base, *(base.variant(name) for name in base.variants)):
            if profile.replay is None:
                assert not profile.is_refreshable
                continue
            decision = replay_decision(
                profile.replay.policy,
                grace_s=profile.replay.grace_s,
                replay_at_expiry=profile.replay_at_expiry,
                age_since_sent_s=60,
                age_since_last_sent_s=60,
                request_deadline_s=DEADLINE_S,
                access_expires_in_s=600,
                replays_done=0,
            )
            if profile.replay.policy in STRICT:
                assert decision == ReplayLater(600), profile.label
            else:
                assert isinstance(decision, ReplayNow), profile.label
