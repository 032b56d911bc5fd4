"""S13: the search for canaries finds every disguise of each, and nothing where there is none."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest

from tests.security.canary import plants
from tests.support.canaries import Canaries, forms, planted


def some() -> Canaries:
    canaries = Canaries(random.Random(7))
    for label in ("a", "b"):
        canaries.random(label)
        canaries.word(f"{label}, by a person")
        canaries.of("shpat_", f"{label}, by a vendor")
    canaries.keep("with signs", "pa ss/w+rd&%é\"'\\-_-and-more")
    return canaries


def test_each_disguise_of_each_secret_is_found() -> None:
    canaries, planted_forms = some(), 0
    for label, secret in canaries.by_place.items():
        for form, text in planted(secret):
            planted_forms += 1
            assert (label, form) in canaries.traces_in(text), (label, form)
            assert secret in canaries.found_in(text)
        assert {form for form, _ in forms(secret)} <= {form for form, _ in planted(secret)}
    assert planted_forms >= 14 * len(canaries.all)


def test_nothing_is_found_where_nothing_is() -> None:
    canaries, others = some(), Canaries(random.Random(8))
    for label in "abcdefgh":
        others.random(label)
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
    secrets = [canaries.random("twice"), canaries.random("twice"), canaries.random()]
    assert canaries.all == secrets
    assert all(first != other for first, other in pairwise(secrets))
    canaries.keep("again", secrets[0])
    assert canaries.all == secrets


def test_an_empty_place_does_not_pass_for_clean() -> None:
    outputs = dict.fromkeys(plants.PLACE_KINDS, plants.WORD.encode())
    assert plants.not_found(outputs) == []
    assert plants.not_found(outputs | {"webhooks": b""}) == ["webhooks"]
