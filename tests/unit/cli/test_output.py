"""What a terminal is shown: never what a name says, always what it is (S14)."""

from __future__ import annotations

import io
import json
from datetime import UTC, datetime, timedelta, timezone
from functools import reduce
from pathlib import Path
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead._core.secret import Secret
from fairlead.cli.kit.output import Output, format_duration, plain, printable
from fairlead.errors import ReauthRequiredError

HOSTILE = "acme\n\x1b]0;owned\x07\x9b31m\u202e\u2028\x00"


def an_output(**how: bool) -> tuple[Output, io.StringIO, io.StringIO]:
    out, err = io.StringIO(), io.StringIO()
    return Output(stdout=out, stderr=err, **how), out, err


@given(st.text())
def test_printed_text_is_one_line_without_control_characters(text: str) -> None:
    shown = printable(text)
    assert not set(shown) & set("\x1b\x07\x9b\u202e\u2066\u2028\x00")
    assert not any(ord(character) < 32 or 127 <= ord(character) < 160 for character in shown)
    assert len(shown.splitlines()) <= 1


@given(st.text(), st.text())
def test_hostile_names_make_no_line_of_their_own(tenant: str, reason: str) -> None:
    rows = [{"tenant": tenant, "reason": reason}]
    output, out, _ = an_output()
    output.rows(rows, ("tenant", "reason"))
    assert len(out.getvalue().splitlines()) == 2
    output, out, _ = an_output(as_json=True)
    output.rows(rows, ("tenant",))
    (line,) = out.getvalue().splitlines()
    assert line.isascii()


def test_hostile_names_stay_readable() -> None:
    assert printable(HOSTILE) == "acme\\n\\x1b]0;owned\\x07\\x9b31m\\u202e\\u2028\\x00"
    output, out, err = an_output()
    output.record({HOSTILE: {"inner": HOSTILE}})
    output.say(HOSTILE)
    output.error(HOSTILE, hint=HOSTILE)
    both_outputs = out.getvalue() + err.getvalue()
    assert not set(both_outputs) & set("\x1b\x07\x9b\u202e\u2028\x00")


def test_errors_are_words_or_an_object() -> None:
    error = ReauthRequiredError("the grant is gone", tenant="acme", provider="hubspot", reason="revoked")
    output, out, err = an_output()
    output.problem(error)
    assert (out.getvalue(), err.getvalue()) == (
        "",
        "error: the grant is gone (tenant 'acme', provider 'hubspot')\n"
        "hint: send your customer the link of `fairlead connections reauthorize`\n",
    )
    output, _, err = an_output(as_json=True)
    output.problem(error)
    assert json.loads(err.getvalue())["error"] == {
        "code": "reauth_required",
        "message": "the grant is gone",
        "hint": "send your customer the link of `fairlead connections reauthorize`",
        "tenant": "acme",
        "provider": "hubspot",
        "category": "permanent_auth",
        "reason": "revoked",
    }


def test_quiet_keeps_warnings_and_errors() -> None:
    output, _, err = an_output(quiet=True)
    output.say("hello")
    output.detail("more")
    output.warn("careful")
    output.error("broken", hint="mend it")
    assert err.getvalue() == "warning: careful\nerror: broken\nhint: mend it\n"


def test_values_for_people_and_for_programs() -> None:
    record = {
        "id": UUID(int=1),
        "at": datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
        "expires_in_s": 3720.0,
        "token": Secret("canary"),
        "file": Path("a/b"),
        "none": None,
        "some": ["x", "y"],
        "yes": True,
    }
    output, out, _ = an_output()
    output.record(record)
    shown = dict(line.split(maxsplit=1) for line in out.getvalue().splitlines())
    assert shown == {
        "id": str(UUID(int=1)),
        "at": "2026-01-02 03:04:05Z",
        "expires_in_s": "1h 2m",
        "token": "***",
        "file": "a/b",
        "none": "-",
        "some": "x, y",
        "yes": "yes",
    }
    output, out, _ = an_output(as_json=True)
    output.record(record)
    printed = json.loads(out.getvalue())
    assert (printed["at"], printed["token"], printed["expires_in_s"]) == (
        "2026-01-02T03:04:05Z",
        "***",
        3720.0,
    )


def test_nothing_found_is_a_word_not_a_row() -> None:
    output, out, err = an_output()
    output.rows([], ("tenant",), none="no such connections")
    assert (out.getvalue(), err.getvalue()) == ("", "no such connections\n")


@pytest.mark.parametrize(
    ("length_s", "shown"),
    [(0, "0s"), (0.34, "0.3s"), (61, "1m 1s"), (86_400 * 30, "30d"), (-90, "-1m 30s"), (3599.9, "59m 59s")],
)
def test_lengths_of_time(length_s: float, shown: str) -> None:
    assert format_duration(length_s) == shown


def test_sets_and_views_are_lists_in_json() -> None:
    assert plain({"a": 1}.keys()) == ["a"]


ENDLESS: list[object] = []
ENDLESS.append(ENDLESS)


@pytest.mark.parametrize(
    "odd",
    [
        float("inf"),
        float("nan"),
        10**5000,
        -(10**5000),
        datetime.min.replace(tzinfo=timezone(timedelta(hours=14))),
        datetime.max.replace(tzinfo=timezone(timedelta(hours=-14))),
        "\ud800\x1b[31m\u202e\0",
        {(1, 2): {float("nan"): [float("-inf")]}},
        {"deep": reduce(lambda inner, _: [inner], range(100_000), 1)},
        {"endless": ENDLESS},
    ],
    ids=lambda odd: type(odd).__name__,
)
def test_no_stored_value_ends_or_forges_a_listing(odd: object) -> None:
    rows = [{"name": "first", "for_s": 1}, {"name": odd, "for_s": odd}, {"name": "last", "for_s": 1}]
    for as_json in (True, False):
        stdout = io.StringIO()
        Output(as_json=as_json, stdout=stdout, stderr=io.StringIO()).rows(rows, ("name", "for_s"))
        lines = stdout.getvalue().splitlines()
        assert len(lines) == (3 if as_json else 4)
        assert [line for line in lines if "first" in line or "last" in line] == [lines[-3], lines[-1]]
        assert stdout.getvalue().isascii()
        if as_json:
            assert all(json.loads(line, parse_constant=pytest.fail) for line in lines)


def test_a_terminal_without_the_letters_of_a_name_shows_their_codes() -> None:
    stdout = io.TextIOWrapper(io.BytesIO(), encoding="latin-1")
    Output(stdout=stdout).record({"tenant": "日本"})
    stdout.seek(0)
    assert stdout.read() == "tenant  \\u65e5\\u672c\n"
