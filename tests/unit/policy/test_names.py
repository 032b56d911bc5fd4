"""V8: names from outside. Plain words for files and metrics, almost anything for tenants (R36)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.errors import InvalidInputError
from fairlead.policy.jobs.job import check_new_job
from fairlead.policy.text.names import SYSTEM_TENANT, check_customer, check_name, check_tenant, shown
from tests.support.engine import new_job

# name → (is it a provider/account/queue/kind name, is it a tenant id)
V8 = {
    "": (False, False),
    "acme": (True, True),
    "default": (True, True),
    "null": (True, True),
    "0": (True, True),
    "token.refresh": (True, True),
    "a" * 64: (True, True),
    "a" * 65: (False, True),
    "a" * 200: (False, True),
    "a" * 201: (False, False),
    "é" * 100: (False, True),
    "é" * 101: (False, False),
    "a" * 1_048_576: (False, False),
    ".": (False, True),
    "..": (False, True),
    ".a": (False, True),
    "-a": (False, True),
    "_a": (False, True),
    "a..b": (True, True),
    "a/b": (False, True),
    "../../etc/passwd": (False, True),
    "a\\b": (False, True),
    "a\0": (False, False),
    "a\n": (False, False),
    "\na": (False, False),
    "a\r\nX-Evil: 1": (False, False),
    "a\tb": (False, False),
    "a\x1b[31m": (False, False),
    "a\x7f": (False, False),
    "a\x85": (False, False),
    "a b": (False, True),
    ":": (False, True),
    "a:b": (False, True),
    "{t}": (False, True),
    "}": (False, True),
    "*": (False, True),
    "[": (False, True),
    "?": (False, True),
    "%2e%2e": (False, True),
    "Acme": (False, True),
    "аcme": (False, True),  # a Cyrillic letter that looks like "a"
    "acme\u200f": (False, True),  # right-to-left mark: a format character, no control character
    "\u0661": (False, True),
    "ａcme": (False, True),
    "a'; DROP TABLE job; --": (False, True),
    'a"b': (False, True),
    "a\ud800": (False, False),
    "🚢": (False, True),
}


@pytest.mark.parametrize(
    ("name", "is_name", "is_tenant"), [(n, *v) for n, v in V8.items()], ids=lambda v: repr(v)[:30]
)
def test_v8(name: str, is_name: bool, is_tenant: bool) -> None:
    for noun in ("provider", "account", "queue", "kind"):
        if is_name:
            assert check_name(noun, name) == name
        else:
            with pytest.raises(InvalidInputError, match=f"is no name for a {noun}.*hint: "):
                check_name(noun, name, tenant="acme")
    if is_tenant:
        assert check_tenant(name) == name
    else:
        with pytest.raises(InvalidInputError, match=r"is no tenant id: .*hint: "):
            check_tenant(name)


def test_v8_a_colon_cannot_move_between_the_parts_of_a_plain_name() -> None:
    for pair in (("a:b", "c"), ("a", "b:c")):
        with pytest.raises(InvalidInputError):
            [check_name("account", part) for part in pair]


@pytest.mark.parametrize("value", [None, 5, b"acme", ["acme"], True])
def test_names_are_texts(value: object) -> None:
    problem = f"a {type(value).__name__} is no "
    with pytest.raises(InvalidInputError, match=problem):
        check_name("kind", value)
    with pytest.raises(InvalidInputError, match=problem):
        check_tenant(value)


def test_an_error_names_the_tenant_and_stays_small() -> None:
    with pytest.raises(InvalidInputError) as caught:
        check_name("provider", "X" * 1_048_576, tenant="acme")
    assert "tenant='acme'" in str(caught.value)
    assert "1048576 characters" in str(caught.value)
    assert len(str(caught.value)) < 400


@given(st.text(st.characters(), max_size=40))
def test_value_in_an_error_is_printable_ascii(value: str) -> None:
    assert shown(value).isascii()
    assert shown(value).isprintable()


def test_no_customer_is_called_as_we_are() -> None:
    assert check_customer("acme") == "acme"
    assert check_tenant(SYSTEM_TENANT) == SYSTEM_TENANT
    with pytest.raises(InvalidInputError, match="fairlead's own"):
        check_customer(SYSTEM_TENANT)


@pytest.mark.parametrize("tenant", ["acme ", " acme", "acme\u00a0", "\u3000acme"])
def test_new_connection_or_job_of_a_tenant_with_white_space_around_its_id_is_refused(tenant: str) -> None:
    assert check_tenant(tenant) == tenant, "rows that exist stay reachable"
    with pytest.raises(InvalidInputError, match=r"begins or ends with white space.*hint: remove it"):
        check_customer(tenant)
    with pytest.raises(InvalidInputError, match="begins or ends with white space"):
        check_new_job(new_job(tenant_id=tenant))
