"""What becomes of an error that no command expected."""

from __future__ import annotations

import json

import pytest
import typer

from fairlead.cli import entry
from fairlead.cli.kit.exits import Exit
from fairlead.cli.kit.invocation import AbortedError, GlobalOptions
from fairlead.errors import MasterKeyMismatchError, NotFoundError

TOKEN = "TG-5b9032b4e23464aed1f959f-1234567"


def exit_and_output(error: Exception, capsys: pytest.CaptureFixture[str], **options: bool) -> tuple[int, str]:
    code = entry._report(error, GlobalOptions(**options).output())
    captured = capsys.readouterr()
    assert captured.out == ""
    return code, captured.err


@pytest.mark.parametrize(
    ("error", "code", "words"),
    [
        (
            PermissionError(13, "Permission denied", "master.key"),
            Exit.FORBIDDEN,
            "master.key: Permission denied",
        ),
        (AbortedError(), Exit.FAILED, "nothing was changed"),
        (MasterKeyMismatchError("it does not open"), Exit.CONFIG, "hint: set FAIRLEAD_MASTER_KEY"),
        (
            ExceptionGroup("tasks", [ExceptionGroup("inner", [NotFoundError("no such thing")])]),
            Exit.FAILED,
            "no such",
        ),
        (typer.BadParameter(f"{TOKEN} is no number"), Exit.USAGE, "hint: see `fairlead --help`"),
        (RuntimeError(f"refresh_token={TOKEN}"), Exit.FAILED, "this should not happen: RuntimeError"),
    ],
)
def test_words_and_a_code(
    error: Exception, code: Exit, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    ended, output = exit_and_output(error, capsys)
    assert ended == code
    assert words in output
    assert TOKEN not in output
    assert "Traceback" not in output


def test_only_a_bug_has_a_traceback_and_only_if_asked(capsys: pytest.CaptureFixture[str]) -> None:
    try:
        raise RuntimeError(f"refresh_token={TOKEN}")
    except RuntimeError as error:
        _, output = exit_and_output(error, capsys, verbose=True)
    assert output.startswith("Traceback")
    assert TOKEN not in output
    _, output = exit_and_output(NotFoundError("no such thing"), capsys, verbose=True)
    assert "Traceback" not in output


def test_as_an_object(capsys: pytest.CaptureFixture[str]) -> None:
    code, output = exit_and_output(RuntimeError("bug"), capsys, as_json=True)
    assert (code, json.loads(output)["error"]["code"]) == (1, "internal_error")
