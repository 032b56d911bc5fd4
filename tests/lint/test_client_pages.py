"""What the pages on calls list is what the client has."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import get_args

import pytest

from fairlead.app.client.options import CLASSES, CallOptions
from fairlead.policy.calls.classify.rules import builtin_rules
from fairlead.policy.calls.next_step import IDEMPOTENT
from fairlead.policy.providers.call_settings import CallSettings
from fairlead.policy.providers.pagination import PaginationConfig
from tests.lint.test_gate_pages import listed, page

CLIENT, FAILURES = "docs/how-to/client.md", "docs/how-to/failures.md"
KINDS = [pagination.model_fields["kind"].default for pagination in get_args(get_args(PaginationConfig)[0])]


@pytest.mark.parametrize(
    ("name", "head", "words"),
    [
        (CLIENT, "| option | meaning | default |", CallOptions.__annotations__),
        (FAILURES, "| setting | meaning | default | in a profile |", CallSettings.model_fields),
        (CLIENT, "| `kind` | the next page is requested | fields (and defaults) |", KINDS),
    ],
)
def test_a_table_lists_all_of_them(name: str, head: str, words: Collection[str]) -> None:
    assert listed(page(name), head) == set(words)


def test_page_names_the_calls_that_may_be_sent_twice() -> None:
    (row_text,) = re.findall(r"^\| other 5xx.*$", page(CLIENT), re.MULTILINE)
    assert set(re.findall(r"`([A-Z]+)`", row_text)) == IDEMPOTENT - {"OPTIONS", "TRACE"}


def test_the_page_names_the_status_that_ends_a_call() -> None:
    """By the rule that ships: a breaker's answer ends the call."""
    (row_text,) = re.findall(
        r"^\| ([0-9]+), and what a breaker's rule matches \| not within", page(CLIENT), re.MULTILINE
    )
    later = [rule for rule in builtin_rules() if rule.strategy == "circuit_breaker"]
    assert [rule.decisive_codes for rule in later] == [(int(row_text),)]


def test_the_page_lists_the_priority_classes() -> None:
    (row_text,) = re.findall(r"^\| `priority`.*$", page(CLIENT), re.MULTILINE)
    assert [word for word in re.findall(r"`([a-z-]+)`", row_text) if word in CLASSES] == [
        *CLASSES,
        "scheduled",
    ]
