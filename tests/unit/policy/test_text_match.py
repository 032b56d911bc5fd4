"""What globs and expressions find (the slow and the refused stand in tests/contract/test_dialect_hostile)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.policy.text.text_match import LONGEST_TEXT, TextMatch, text_match


@pytest.mark.parametrize(
    ("pattern", "text", "matches"),
    [
        ("limit", "API LIMIT reached", True),
        ("rate*limit", "the rate is over its limit", True),
        ("rate*limit", "limit of the rate", False),
        ("rate*limit", "rate\nlimit", False),
        ("E?7", "error E17", True),
        ("E?7", "error E7", False),
        ("a.b", "axb", False),
        ("a.b(c)[d]{2}|e^$+\\", "see a.b(c)[d]{2}|e^$+\\ there", True),
        ("über*", "ÜBERLAST", True),
        ("re:^over quota$", "Over Quota", True),
        ("re:^over quota$", "not over quota", False),
        ("re:E[0-9]{2}\\b", "E17.", True),
        ("re:E\\d\\d\\b", "E١٧", False),
        ("re:(?-i)LIMIT", "limit", False),
        ("re:\\{2\\}", "{2}", True),
        ("re:a{2}", "aa", True),
        ("re: leading", "a leading blank", True),
    ],
)
def test_pattern_matches(pattern: str, text: str, matches: bool) -> None:
    assert TextMatch(pattern).found_in(text) is matches


def test_a_text_is_looked_at_up_to_a_bound() -> None:
    match = TextMatch("end")
    assert match.found_in("x" * (LONGEST_TEXT - 3) + "end")
    assert not match.found_in("x" * (LONGEST_TEXT - 2) + "end")


@pytest.mark.parametrize("text", ["\ud800", "\x00", "\U0010ffff", ""])
def test_no_text_breaks_it(text: str) -> None:
    assert TextMatch("limit").found_in(text) is False


def test_a_pattern_is_made_once() -> None:
    assert text_match("rate*limit") is text_match("rate*limit")


@given(
    st.text(
        alphabet=st.characters(blacklist_categories=["Cs", "Cc"], blacklist_characters="*?"),
        min_size=1,
        max_size=60,
    )
)
def test_a_glob_without_signs_finds_itself(text: str) -> None:
    if not text.startswith("re:"):
        assert TextMatch(text).found_in(f"before {text} after")
