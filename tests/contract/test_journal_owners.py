"""Whose files a journal may take over: other users, forked children."""

from __future__ import annotations

import errno
import subprocess
import sys
from pathlib import Path
from uuid import uuid4

import pytest

from fairlead.adapters.journal import FileJournal
from fairlead.adapters.journal.index import EntryIndex
from fairlead.adapters.journal.owners import Owners
from fairlead.errors import InvalidConfigError, RefusedError


async def test_files_of_another_user_are_told_with_the_way_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder was given to this user, as our hint says, and the files in it were not."""
    folder = tmp_path / "journal"

    def refused(*_args: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", str(folder / "x.lock"))

    monkeypatch.setattr(Owners, "take_over", refused)
    monkeypatch.setattr(EntryIndex, "find", refused)
    async with FileJournal(folder, uuid4()) as journal:
        with pytest.raises(InvalidConfigError, match=rf"x\.lock .* another user hint: chown -R \d+ {folder}"):
            await journal.orphans()
        with pytest.raises(RefusedError, match=rf"hint: chown -R \d+ {folder}"):
            await journal.find(uuid4(), 1)


FORKS = """
import os, sys, time
from pathlib import Path
from fairlead.adapters.journal.owners import Owners
owners = Owners(Path(sys.argv[1]), "parent")
owners.open()
if os.fork():
    os._exit(0)
print("alone", flush=True)
sys.stdin.read()
"""


def test_a_child_that_outlives_its_parent_holds_no_lock_of_it(tmp_path: Path) -> None:
    folder = tmp_path / "journal"
    with subprocess.Popen(
        [sys.executable, "-c", FORKS, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == b"alone\n"
        parent.wait()
        (folder / "parent.000001.journal").touch()
        heir = Owners(folder, "heir")
        heir.open()
        assert heir.take_over() == [folder / "parent.000001.journal"]
        heir.close()
