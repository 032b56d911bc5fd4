"""May a token be sent twice? The table of reference/tokens.md §3.2, and what must never happen."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.policy.profile_load import load_profiles
from fairlead.policy.token_replay import GiveUp, ReplayNow, Wait, replay_decision, replayable_s, yields_s

DAY = 86_400.0
STRICT = ["strict", "strict_family_revoke"]


@pytest.mark.parametrize(
    ("policy", "grace_s", "at_expiry", "age_s", "access_s", "done", "expected"),
    [
        ("stable", None, False, 5, 600, 0, ReplayNow()),
        ("stable", None, False, 90 * DAY, -5, 7, ReplayNow()),
        ("assertion", None, False, 5, 600, 3, ReplayNow()),
        ("until_successor_used", None, False, 90 * DAY, -5, 2, ReplayNow()),
        ("until_successor_used", 30 * DAY, False, 29 * DAY, 600, 2, ReplayNow(DAY - 15)),
        ("until_successor_used", 30 * DAY, False, 31 * DAY, 600, 0, GiveUp()),
        ("grace", 1800, False, 0, 600, 0, ReplayNow(1785)),
        ("grace", 1800, False, 1785, 600, 1, ReplayNow(0)),
        ("grace", 1800, False, 1786, 600, 0, GiveUp()),  # it could arrive after the grace
        ("grace", 1800, False, 1801, -5, 0, GiveUp()),
        ("grace", 2, False, 1.8, 5, 0, ReplayNow(0)),
        ("grace", 2, False, 1.9, 5, 0, GiveUp()),
        ("strict", None, True, 5, 600, 0, Wait(600)),
        ("strict", None, True, 700, 0, 0, ReplayNow()),
        ("strict", None, True, 700, -60, 0, ReplayNow()),
        ("strict", None, True, 700, -60, 1, GiveUp()),
        ("strict", None, False, 5, 600, 0, Wait(600)),
        ("strict", None, False, 700, 0, 0, GiveUp()),
        ("strict", None, True, 5, None, 0, ReplayNow()),
        ("strict_family_revoke", None, False, 5, 600, 0, Wait(600)),
        ("strict_family_revoke", None, False, 700, -1, 0, GiveUp()),
        ("strict_family_revoke", None, True, 700, -1, 0, ReplayNow()),
        ("strict_family_revoke", None, True, 700, -1, 1, GiveUp()),
    ],
)  # fmt: skip
def test_the_table(
    policy: str, grace_s: float | None, at_expiry: bool, age_s: float, access_s: float | None, done: int,
    expected: object,
) -> None:  # fmt: skip
    decision = replay_decision(
        policy,  # type: ignore[arg-type]
        grace_s=grace_s,
        replay_at_expiry=at_expiry,
        age_since_sent_s=age_s,
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
    assert yields_s(policy, grace_s) == expected  # type: ignore[arg-type]


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
        access_expires_in_s=access_s,
        replays_done=done,
    )
    assert decision == Wait(access_s)


@given(st.sampled_from(STRICT), st.booleans(), seconds, st.floats(-1e8, 0), st.integers(1, 5))
def test_strict_replays_at_most_once(
    policy: str, at_expiry: bool, age_s: float, access_s: float, done: int
) -> None:
    decision = replay_decision(
        policy,  # type: ignore[arg-type]
        grace_s=None,
        replay_at_expiry=at_expiry,
        age_since_sent_s=age_s,
        access_expires_in_s=access_s,
        replays_done=done,
    )
    assert decision == GiveUp("lost_rotation")


@given(st.floats(0.01, 90 * DAY))
def test_a_replay_starts_early_enough_to_arrive_inside_the_grace(grace_s: float) -> None:
    assert 0 < replayable_s(grace_s) < grace_s
    assert grace_s - replayable_s(grace_s) <= 15.001


@given(st.floats(0.01, 90 * DAY), st.floats(0, 1))
def test_a_replay_leaves_no_later_than_it_might_have_been_judged(grace_s: float, share: float) -> None:
    age_s = replayable_s(grace_s) * share
    decision = replay_decision(
        "grace",
        grace_s=grace_s,
        replay_at_expiry=False,
        age_since_sent_s=age_s,
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
                assert not profile.refreshes
                continue
            decision = replay_decision(
                profile.replay.policy,
                grace_s=profile.replay.grace_s,
                replay_at_expiry=profile.replay_at_expiry,
                age_since_sent_s=60,
                access_expires_in_s=600,
                replays_done=0,
            )
            if profile.replay.policy in STRICT:
                assert decision == Wait(600), profile.label
            else:
                assert isinstance(decision, ReplayNow), profile.label
