"""Which faults make a process sick, and what makes it well again."""

from __future__ import annotations

import pytest

from fairlead.policy.failures.process_health import (
    MOST_DESTINATIONS,
    TRIAL_S,
    WINDOW_S,
    ProcessHealth,
    checked,
    failed,
    next_check_s,
    reached,
)

NEW = ProcessHealth()


@pytest.mark.parametrize("kind", ["resolver", "resources", "proxy"])
def test_faults_at_two_places_make_it_sick_and_at_one_do_not(kind: str) -> None:
    health = failed(failed(NEW, "https://a", kind, 0.0), "https://a", kind, 1.0)
    assert health.sick == ""
    assert failed(health, "https://b", kind, 2.0).sick == kind
    assert failed(health, "https://b", kind, 2.0 + WINDOW_S).sick == ""
    assert failed(reached(health, "https://c"), "https://b", kind, 2.0).sick == "", "it is not cut off"


def test_want_of_descriptors_makes_it_sick_at_once() -> None:
    assert failed(NEW, "https://a", "descriptors", 0.0).sick == "descriptors"


@pytest.mark.parametrize("kind", ["dns", "connect", "timeout", "pool"])
def test_other_kinds_make_nobody_sick(kind: str) -> None:
    health = NEW
    for url in "abc":
        health = failed(health, url, kind, 0.0)
    assert health == NEW


def test_check_that_reaches_a_place_makes_it_well() -> None:
    sick = failed(failed(reached(NEW, "good"), "a", "resolver", 0.0), "b", "resolver", 0.0)
    assert sick.destinations == ("a", "b", "good")
    assert reached(sick, "c").sick == "resolver", "only a check decides, so that nothing flaps"
    assert checked(sick, has_spare=True, is_connected=True, now_mono=1.0) == ProcessHealth(reached=("good",))
    still = checked(sick, has_spare=False, is_connected=True, now_mono=1.0)
    assert still.sick
    assert [next_check_s(health) for health in (sick, still)] == [1.0, 2.0]
    assert next_check_s(ProcessHealth(checks=99)) == 10.0


def test_process_that_knows_no_place_that_works_tries_again() -> None:
    """All that it knows may be down for everybody: two tenants' own hosts must not stop it for good."""
    sick = failed(failed(NEW, "a", "resolver", 0.0), "b", "resolver", 0.0)
    assert checked(sick, has_spare=True, is_connected=False, now_mono=TRIAL_S - 1).sick
    assert not checked(sick, has_spare=True, is_connected=False, now_mono=TRIAL_S).sick


def test_stored_faults_and_places_have_a_bound() -> None:
    health = NEW
    for number in range(99):
        health = failed(reached(health, f"good{number}"), f"bad{number}", "descriptors", 0.0)
    assert (len(health.faults), len(health.reached)) == (MOST_DESTINATIONS, MOST_DESTINATIONS)
