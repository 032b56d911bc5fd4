"""S13: the search for canaries finds every disguise of each, and nothing where there is none."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest

from tests.security.canary import plants
from tests.support.canaries import Canaries, forms, planted


def some() -> Canaries:
    canaries = Canaries(random.Random(7))
    for place in ("a", "b"):
        canaries.random(place)
        canaries.word(f"{place}, by a person")
        canaries.of("shpat_", f"{place}, by a vendor")
    canaries.keep("with signs", "pa ss/w+rd&%é\"'\\-_-and-more")
    return canaries


def test_each_disguise_of_each_secret_is_found() -> None:
    canaries, planted_forms = some(), 0
    for place, secret in canaries.by_place.items():
        for form, said in planted(secret):
            planted_forms += 1
            assert (place, form) in canaries.traces_in(said), (place, form)
            assert secret in canaries.found_in(said)
        assert {form for form, _ in forms(secret)} <= {form for form, _ in planted(secret)}
    assert planted_forms >= 14 * len(canaries.all)


def test_nothing_is_found_where_nothing_is() -> None:
    canaries, others = some(), Canaries(random.Random(8))
    for place in "abcdefgh":
        others.random(place)
    assert canaries.found_in(" ".join([*others.all, "the quick brown fox", "0" * 1000])) == []
    assert canaries.found_in(b"") == []


@pytest.mark.parametrize("length", [10, 19])
def test_less_than_a_half_is_none(length: int) -> None:
    canaries = Canaries(random.Random(7))
    secret = canaries.random("a", 40)
    assert canaries.found_in(secret[:length]) == []
    assert canaries.found_in(secret[: length + 20]) == [secret]


def test_places_do_not_hide_each_other() -> None:
    canaries = Canaries(random.Random(7))
    made = [canaries.random("twice"), canaries.random("twice"), canaries.random()]
    assert canaries.all == made
    assert all(one != other for one, other in pairwise(made))
    canaries.keep("again", made[0])
    assert canaries.all == made


def test_an_empty_place_does_not_pass_for_clean() -> None:
    said = dict.fromkeys(plants.PLACES, plants.WORD.encode())
    assert plants.not_found(said) == []
    assert plants.not_found(said | {"webhooks": b""}) == ["webhooks"]
