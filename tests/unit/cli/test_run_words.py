"""What `fairlead run` says on stderr once nobody else can."""

from __future__ import annotations

import os

import pytest

from fairlead.cli import run


def test_json_line_on_stderr_is_not_cut_at_u2028(monkeypatch: pytest.MonkeyPatch) -> None:
    reading, writing = os.pipe()
    monkeypatch.setattr(run, "STDERR", writing)
    run._write_if_read('{"tenant": "a\u2028b\x85c"}\n{"tenant": "d"}\n')
    os.close(writing)
    with os.fdopen(reading, encoding="utf-8", newline="\n") as read:
        assert list(read) == ['{"tenant": "a\u2028b\x85c"}\n', '{"tenant": "d"}\n']
