"""What runs the pages finds what is wrong with them: a command that fails, other output, a block left out."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.cli import ROOT
from tests.support.pages import blocks_of
from tests.support.terminals import Reader, Typed, shows, typed

pytestmark = pytest.mark.slow


@pytest.fixture
async def reader(tmp_path: Path) -> AsyncIterator[Reader]:
    reader = Reader(tmp_path, {"PATH": os.environ["PATH"]}, {"theirs": "ours"})
    yield reader
    await reader.close()


async def follow(reader: Reader, text: str) -> None:
    for block in blocks_of("page-of-this-test.md", text):
        await reader.follow(block)


async def test_a_page_that_is_right(reader: Reader) -> None:
    await follow(
        reader,
        "```toml\n# some.toml\na = 1\n```\n"
        "```console\n$ cat some.toml\n# some.toml\na = 1\n$ X=theirs\n```\n"
        "```console other\n$ sleep 1000\n```\n"
        "```console again\n$ echo $X >> lines; cat lines\nours ours   ours\n```\n"
        "```console\n$ echo a \\\n  b\na b\n```\n",
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("```console\n$ echo yes\nno\n```\n", "yes"),
        ("```console\n$ false\n```\n", "false"),
        ("```console\n$ cd nowhere\n...\n```\n", "nowhere"),
    ],
)
async def test_a_page_that_is_wrong(reader: Reader, text: str, expected: str) -> None:
    with pytest.raises(AssertionError, match=expected):
        await follow(reader, text)


def test_blocks_of_a_page_are_read_as_commands_and_output() -> None:
    assert list(typed("$ a\nb\n\nc\n$ d\n^C\ne\n")) == [
        Typed("a", "b\n\nc\n"),
        Typed("d", ""),
        Typed("^C", "e\n"),
    ]
    assert shows("x\nname  left\nacme  12.5\n", "name left\nacme ...\n")
    assert not shows("name  left\nacme  12.5\n", "acme ... name")


def test_a_block_that_did_not_run_fails_the_run() -> None:
    command = [sys.executable, "-m", "pytest", "-q", "--docs", "-p", "no:randomly", "tests/lint/test_docs.py"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == pytest.ExitCode.TESTS_FAILED
    assert "0 of " in done.stdout
    assert "did not run: docs/how-to/jobs.md:" in done.stdout
