"""I6: what excuses that a living grant was given up, and that two sends of a token were under way at once."""

from __future__ import annotations

import pytest

from fairlead._core.secret import Secret
from fairlead.engine.ports import TokenCall
from tests.simulation.issuer import Leave
from tests.simulation.test_endings import AT_S, GIVEN_UP, Ends
from tests.simulation.watch import NOBODY
from tests.simulation.wire import HowItEnded

BESIDE = "1 refreshes were sent beside others of their grant"


@pytest.fixture
def ends() -> Ends:
    return Ends()


def refuses(ends: Ends, provider: str, token: str, done_at: float | None) -> None:
    """A 503 at AT_S for p1, who had asked for leave then, and was done with it at *done_at*."""
    ends.at = AT_S
    ends.issuer.leaves[token] = [Leave("p1", AT_S, done_at)]
    ends.issuer.manner.ill = 1.0
    ends.refreshed(provider, token)


@pytest.mark.parametrize("provider", ["strict", "family"])
def test_i6_a_grant_of_no_second_chance_is_given_up_for_a_send_that_may_have_been_heard_alone(
    ends: Ends, provider: str
) -> None:
    token = ends.connected(provider)
    ends.stored(provider, token, "needs_reauth")
    assert ends.harm() == GIVEN_UP  # it was never sent
    for done_at, why in ((None, None), (AT_S + 0.1, GIVEN_UP)):  # a 503 says that nothing was done
        refuses(ends, provider, token, done_at)
        ends.at = 60.0
        ends.stored(provider, token, "needs_reauth")
        assert ends.harm() == why


@pytest.mark.parametrize(
    ("at", "excused"),
    [(AT_S - 1, False), (AT_S + 0.05, True), (AT_S + 0.5, True), (AT_S + 2, False)],
)
def test_i6_what_is_under_way_as_a_grant_is_given_up_may_have_been_heard(
    ends: Ends, at: float, excused: bool
) -> None:
    token = ends.connected("strict")
    refuses(ends, "strict", token, done_at=AT_S + 0.1)
    ends.at = at
    ends.stored("strict", token, "needs_reauth")
    assert ends.harm() == (None if excused else GIVEN_UP)


@pytest.mark.parametrize(
    ("fault", "at", "until", "owner", "excused"),
    [
        ("jump", 1.0, 1.0, "p1", False),
        ("jump", AT_S, AT_S, "p1", False),
        ("restart", AT_S, AT_S, "p1", False),  # who is asked to stop ends what he is at
        ("kill", AT_S + 0.2, 9.0, "p1", True),  # he was told, and told nobody
        ("kill", AT_S + 2.0, 9.0, "p1", False),
        ("kill", AT_S + 0.2, 9.0, "p2", False),
        ("freeze", AT_S - 2.0, AT_S - 1.0, "p1", False),
        ("freeze", AT_S + 0.05, 40.0, "p1", True),  # he is taken for dead meanwhile
        ("cut", AT_S - 2.0, AT_S + 20.0, NOBODY, True),
        ("away", AT_S + 0.5, AT_S + 20.0, NOBODY, True),
        ("away", AT_S + 5.0, AT_S + 20.0, NOBODY, False),
    ],
)
def test_i6_a_refusal_that_nobody_was_kept_from_telling_is_known(
    ends: Ends, fault: str, at: float, until: float, owner: str, excused: bool
) -> None:
    token = ends.connected("strict")
    refuses(ends, "strict", token, done_at=AT_S + 0.1)
    ends.strikes(fault, at, until, owner)
    ends.at = 60.0
    ends.stored("strict", token, "needs_reauth")
    assert ends.harm() == (None if excused else GIVEN_UP)


def test_i6_two_refreshes_of_one_grant_at_once_are_found(ends: Ends) -> None:
    token = ends.connected("stable")
    form = {"grant_type": Secret("refresh_token"), "refresh_token": Secret(token)}
    call = TokenCall("https://issuer.sim/stable/token", {}, form, 15.0, reuse_connection=True)
    replies = [ends.issuer.arrive(call, process) for process in ("p1", "p2")]
    for reply in replies:
        reply.ended("answered")
    assert ends.harm() == BESIDE


@pytest.mark.parametrize(
    ("fault", "at", "until", "owner", "excused"),
    [
        ("kill", 5.0, 9.0, "p1", False),
        ("kill", 5.0, 9.0, "p2", False),  # of another life
        ("freeze", 61.0, 70.0, "p2", True),
        ("kill", 61.0, 70.0, "p2", True),
        ("freeze", 61.0, 70.0, "p3", False),  # who had asked later
        ("freeze", 69.0, 80.0, "p2", False),  # he had been answered
        ("jump", 61.0, 61.0, "p2", False),
    ],
)
def test_i6_whose_place_was_taken_over_may_be_at_it_still(
    ends: Ends, fault: str, at: float, until: float, owner: str, excused: bool
) -> None:
    """p2 asks before p3, whose request arrives first; either way p2's place was p3's by then."""
    token = ends.connected("stable")
    form = {"grant_type": Secret("refresh_token"), "refresh_token": Secret(token)}
    call = TokenCall("https://issuer.sim/stable/token", {}, form, 15.0, reuse_connection=True)
    ends.at = 65.0
    replies = [
        ends.issuer.arrive(call, process, requested_at=requested_at)
        for process, requested_at in (("p3", 64.0), ("p2", 60.0))
    ]
    ends.at = 68.0
    for reply in replies:
        reply.ended("answered")
    ends.strikes(fault, at, until, owner)
    assert ends.harm() == (None if excused else BESIDE)


@pytest.mark.parametrize(
    ("earlier_end", "late_s", "how", "excused"),
    [
        ("answered", 3.0, "died", True),
        ("answered", 0.0, "died", False),
        ("answered", 3.0, "answered", False),
        ("lost", 3.0, "died", False),  # nobody had stored anything, so it was to be asked for again
    ],
)
@pytest.mark.parametrize("comes_back", [False, True])
def test_i6_nobody_is_left_who_knows_of_a_late_send_that_was_lost(
    ends: Ends, earlier_end: HowItEnded, late_s: float, how: HowItEnded, excused: bool, comes_back: bool
) -> None:
    """Before it left another had sent the token again, and stored what he was answered."""
    token = ends.connected("grace")
    form = {"grant_type": Secret("refresh_token"), "refresh_token": Secret(token)}
    call = TokenCall("https://issuer.sim/grace/token", {}, form, 15.0, reuse_connection=True)
    ends.at = AT_S
    stored = ends.refreshed("grace", token, earlier_end, process="p2")
    ends.stored("grace", stored)
    ends.at = AT_S + 2
    ends.issuer.arrive(call, "p1", late_s=late_s).ended(how)
    if comes_back:
        ends.at = AT_S + 60
        ends.refreshed("grace", stored)
        ends.stored("grace", stored, "needs_reauth")
    assert (ends.harm() is None) == excused
