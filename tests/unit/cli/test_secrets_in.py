"""Secrets come in by every way but the command line, and no error repeats one."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from fairlead._core.secret import Secret
from fairlead.cli.kit.secret_input import read_secrets
from fairlead.errors import InvalidInputError


@pytest.fixture
def stdin(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    text = io.StringIO()
    monkeypatch.setattr("sys.stdin", text)
    return text


def handed_in(stdin: io.StringIO, text: str) -> None:
    stdin.write(text)
    stdin.seek(0)


def test_every_source(monkeypatch: pytest.MonkeyPatch, stdin: io.StringIO, tmp_path: Path) -> None:
    monkeypatch.setenv("TOKEN", "from env\n")
    (tmp_path / "key.pem").write_text("-----BEGIN\nx\n-----END\n")
    (tmp_path / "key.pem").chmod(0o600)
    handed_in(stdin, "from stdin\n")
    options = ["access_token=env:TOKEN", f"private_key=file:{tmp_path}/key.pem", "refresh_token=-"]
    assert read_secrets(options, "refresh_token") == {
        "access_token": Secret("from env"),
        "private_key": Secret("-----BEGIN\nx\n-----END\n"),
        "refresh_token": Secret("from stdin"),
    }


def test_a_script_hands_in_one_secret_or_an_object(stdin: io.StringIO) -> None:
    handed_in(stdin, "abc\n")
    assert read_secrets(None, "api_key") == {"api_key": Secret("abc")}


def test_an_object_of_several(stdin: io.StringIO) -> None:
    handed_in(stdin, ' {"refresh_token": "r", "client_secret": "s"}')
    assert read_secrets([], "refresh_token") == {
        "refresh_token": Secret("r"),
        "client_secret": Secret("s"),
    }


def test_where_none_is_needed_none_is_asked_for(stdin: io.StringIO) -> None:
    assert read_secrets(None, None) == {}


@pytest.mark.parametrize(
    ("options", "text", "expected"),
    [
        (["canary"], "", "not NAME=VALUE"),
        (["canary=="], "", "no name of a secret"),
        (["api_key=canary"], "", "names no source"),
        (["api_key=env:NOT_SET"], "", "NOT_SET is not set"),
        (["api_key=file:nowhere"], "", "nowhere cannot be read"),
        (["api_key=-", "client_secret=-"], "", "holds one secret"),
        (["api_key=-", "api_key=env:X"], "", "twice"),
        (None, " \n", "the api_key is empty"),
        (None, '{"api_key": "canary"', "begins like JSON"),
        (None, '{"api_key": 7}', "the api_key is no text"),
        (None, '{"acces_token": "canary"}', "'acces_token' is no name"),
    ],
)
def test_unusable_secret_input_is_refused_and_not_repeated(
    stdin: io.StringIO, options: list[str] | None, text: str, expected: str
) -> None:
    handed_in(stdin, text)
    with pytest.raises(InvalidInputError, match=expected) as caught:
        read_secrets(options, "api_key")
    assert "canary" not in str(caught.value)
