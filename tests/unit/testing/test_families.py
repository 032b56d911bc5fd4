"""The six replay policies as a state machine: what is granted, what is refused, what dies."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.testing.issuer.families import (
    Families,
    Family,
    Generation,
    Policy,
    QuirkEffect,
    RefreshGranted,
    RefreshRefused,
    ReplayRules,
)

TTL = 100.0
ROTATING = [policy for policy in Policy if policy.rotates]
FORGIVING = [Policy.UNTIL_SUCCESSOR_USED, Policy.GRACE]
STRICT = [Policy.STRICT, Policy.STRICT_FAMILY_REVOKE]


class Desk:
    """A one-connection issuer whose time is a number."""

    def __init__(self, policy: Policy, *, grace_s: float = 10.0, on_replay: str = "new") -> None:
        numbers = itertools.count(1)
        rules = ReplayRules(policy, grace_s if policy is Policy.GRACE else 0.0, on_replay)  # type: ignore[arg-type]
        self.families = Families(lambda kind: f"{kind}-{next(numbers)}")
        self.family = self.families.register(Family("p", "acme", rules, "read", "a1"), now=0.0, ttl_s=TTL)
        self.first = self.family.current

    def present(
        self, generation: Generation, now: float = 1.0, effect: QuirkEffect | None = None
    ) -> RefreshGranted | RefreshRefused:
        return self.families.refresh(generation, now=now, ttl_s=TTL, effect=effect or QuirkEffect())

    def rotate(self, generation: Generation, now: float = 1.0) -> Generation:
        granted = self.present(generation, now)
        assert isinstance(granted, RefreshGranted)
        assert granted.successor is not None
        return granted.successor


@pytest.mark.parametrize("policy", ROTATING)
def test_a_live_token_rotates_and_counts_up(policy: Policy) -> None:
    desk = Desk(policy)
    second = desk.rotate(desk.first)
    third = desk.rotate(second)
    assert (desk.first.state, second.state, third.state) == ("spent", "spent", "live")
    assert [desk.first.number, second.number, third.number] == [1, 2, 3]
    assert desk.families.find(third.text) is third


@pytest.mark.parametrize("policy", [Policy.STABLE, Policy.ASSERTION])
def test_policy_without_rotation_mints_without_end(policy: Policy) -> None:
    desk = Desk(policy)
    granted = [desk.present(desk.first, now) for now in (1.0, 2.0, 3.0)]
    assert [(answer.kind, answer.successor) for answer in granted if isinstance(answer, RefreshGranted)] == [
        ("minted", None)
    ] * 3
    assert desk.first.state == "live"


@pytest.mark.parametrize("policy", STRICT)
def test_a_replay_is_refused(policy: Policy) -> None:
    desk = Desk(policy)
    desk.rotate(desk.first)
    refused = desk.present(desk.first)
    assert isinstance(refused, RefreshRefused)
    assert (refused.reason, refused.reuse) == ("replay", True)


def test_strict_burns_the_replayed_token_and_nothing_else() -> None:
    desk = Desk(Policy.STRICT)
    second = desk.rotate(desk.first)
    refused = desk.present(desk.first)
    assert isinstance(refused, RefreshRefused)
    assert refused.burnt == 1
    assert isinstance(desk.present(second), RefreshGranted)


def test_family_revoke_kills_tokens_and_access_of_the_whole_family() -> None:
    desk = Desk(Policy.STRICT_FAMILY_REVOKE)
    second = desk.rotate(desk.first)
    refused = desk.present(desk.first)
    assert isinstance(refused, RefreshRefused)
    assert (refused.burnt, refused.family_revoked) == (2, True)
    for access in (desk.first.access, second.access):
        assert desk.families.verdict_on(access, 2.0) == "revoked"
    assert isinstance(desk.present(second), RefreshRefused)
    again = desk.present(desk.first)
    assert isinstance(again, RefreshRefused)
    assert (again.reuse, again.burnt) == (True, None), "what is dead cannot be burnt twice"


@pytest.mark.parametrize("policy", FORGIVING)
def test_an_allowed_replay_replaces_the_successor(policy: Policy) -> None:
    desk = Desk(policy)
    lost = desk.rotate(desk.first, 1.0)
    granted = desk.present(desk.first, 5.0)
    assert isinstance(granted, RefreshGranted)
    assert granted.kind == "replayed"
    assert granted.successor is not None
    assert (granted.successor.number, lost.state) == (3, "superseded")
    stale = desk.present(lost, 6.0)
    assert isinstance(stale, RefreshRefused)
    assert stale.reason == "superseded"
    assert isinstance(desk.present(granted.successor, 6.0), RefreshGranted)


def test_an_issuer_may_hand_out_the_same_successor_again() -> None:
    desk = Desk(Policy.GRACE, on_replay="same")
    lost = desk.rotate(desk.first, 1.0)
    assert desk.rotate(desk.first, 5.0) is lost
    assert lost.state == "live"


@pytest.mark.parametrize("policy", FORGIVING)
def test_no_replay_once_the_successor_was_used(policy: Policy) -> None:
    desk = Desk(policy)
    desk.rotate(desk.rotate(desk.first, 1.0), 2.0)
    refused = desk.present(desk.first, 3.0)
    assert isinstance(refused, RefreshRefused)
    assert (refused.reason, refused.reuse, refused.burnt) == ("replay", True, None)


@pytest.mark.parametrize(("now", "allowed"), [(11.0, True), (11.001, False)])
def test_grace_counts_from_the_first_use(now: float, allowed: bool) -> None:
    desk = Desk(Policy.GRACE, grace_s=10.0)
    desk.rotate(desk.first, 1.0)
    assert isinstance(desk.present(desk.first, now), RefreshGranted) is allowed


def test_grace_is_not_prolonged_by_replays() -> None:
    desk = Desk(Policy.GRACE, grace_s=10.0)
    desk.rotate(desk.first, 1.0)
    desk.rotate(desk.first, 9.0)
    assert isinstance(desk.present(desk.first, 12.0), RefreshRefused)


def test_until_successor_used_knows_no_time() -> None:
    desk = Desk(Policy.UNTIL_SUCCESSOR_USED)
    desk.rotate(desk.first, 1.0)
    assert isinstance(desk.present(desk.first, 1e9), RefreshGranted)


@pytest.mark.parametrize("policy", list(Policy))
def test_a_revoked_grant_gives_nothing(policy: Policy) -> None:
    desk = Desk(policy)
    desk.families.revoke(desk.family, "customer")
    refused = desk.present(desk.first)
    assert isinstance(refused, RefreshRefused)
    assert (refused.reason, refused.reuse) == ("revoked", False)
    assert desk.families.verdict_on(desk.first.access, 1.0) == "revoked"


@pytest.mark.parametrize("policy", ROTATING)
def test_consent_given_again_starts_a_new_family(policy: Policy) -> None:
    desk = Desk(policy)
    second = desk.rotate(desk.first)
    renewed = desk.families.register(Family("p", "acme", desk.family.rules, "read", "a1"), now=2.0, ttl_s=TTL)
    assert renewed.current.number == 3
    assert isinstance(desk.present(second, 3.0), RefreshRefused)
    desk.present(desk.first, 3.0)  # not even a replay of the old family harms the new one
    assert isinstance(desk.present(renewed.current, 4.0), RefreshGranted)


@pytest.mark.parametrize("policy", ROTATING)
def test_a_kept_refresh_token_is_not_spent(policy: Policy) -> None:
    desk = Desk(policy)
    granted = desk.present(desk.first, 1.0, QuirkEffect(keep_refresh=True))
    assert isinstance(granted, RefreshGranted)
    assert (granted.kind, granted.successor, desk.first.state) == ("minted", None, "live")


def test_the_same_access_token_is_returned_early_but_not_when_dead() -> None:
    desk = Desk(Policy.STRICT)
    effect = QuirkEffect(same_access=True)
    early, late = desk.present(desk.first, 1.0, effect), desk.present(desk.first, TTL + 1, effect)
    assert isinstance(early, RefreshGranted)
    assert isinstance(late, RefreshGranted)
    assert (early.kind, early.access.text) == ("unchanged", "access-1")
    assert (late.kind, late.access.text != early.access.text) == ("minted", True)


def test_access_tokens_live_until_their_end() -> None:
    desk = Desk(Policy.STRICT)
    access = desk.first.access
    verdicts = [desk.families.verdict_on(access, now) for now in (TTL - 0.001, TTL)]
    assert verdicts == ["live", "expired"]
    assert desk.families.verdict_on(desk.families.access("never minted"), 1.0) == "unknown"


_STEPS = st.lists(st.tuples(st.integers(0, 30), st.floats(0, 20)), max_size=40)


@given(policy=st.sampled_from(ROTATING), on_replay=st.sampled_from(["new", "same"]), steps=_STEPS)
def test_at_most_one_token_lives_after_any_history(
    policy: Policy, on_replay: str, steps: list[tuple[int, float]]
) -> None:
    desk = Desk(policy, on_replay=on_replay)
    generations, granted_for, now, dead = [desk.first], [], 0.0, False
    for pick, pause in steps:
        now += pause
        generation = generations[pick % len(generations)]
        outcome = desk.present(generation, now)
        if isinstance(outcome, RefreshGranted):
            assert not dead, "a dead family grants nothing"
            assert outcome.successor is not None
            granted_for.append(generation.number)
            if outcome.successor not in generations:
                generations.append(outcome.successor)
        dead = dead or bool(desk.family.revoked)
        assert sum(generation.state == "live" for generation in generations) == (0 if dead else 1)
        assert desk.family.current is max(generations, key=lambda generation: generation.number)
    if not policy.forgives:
        assert len(granted_for) == len(set(granted_for)), "a strict issuer grants once per token"
