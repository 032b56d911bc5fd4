"""S34: no memory image of a process that holds secrets, for nobody but root."""

from __future__ import annotations

import ctypes
import json
import subprocess
import sys

import pytest

from tests.support.cli import Shell

_SHOW = """
import ctypes, json, resource
from fairlead.assembly.stores import disable_core_dumps
disable_core_dumps()
print(json.dumps([resource.getrlimit(resource.RLIMIT_CORE), ctypes.CDLL(None).prctl(3, 0, 0, 0, 0)]))
"""
_APP = """
import ctypes, json, resource
from fairlead import Fairlead
with open("seen.json", "w") as seen:
    json.dump([resource.getrlimit(resource.RLIMIT_CORE), ctypes.CDLL(None).prctl(3, 0, 0, 0, 0)], seen)
fl = None
"""
_REFUSED = """
import ctypes, errno
from fairlead.cli.entry import run
class Refusing:
    def __init__(self, *args, **options): pass
    def prctl(self, *args):
        ctypes.set_errno(errno.EPERM)
        return -1
ctypes.CDLL = Refusing
raise SystemExit(run(["connections", "list", "--json"]))
"""
LINUX = pytest.mark.skipif(sys.platform != "linux", reason="prctl is Linux's")


@LINUX
def test_S34_a_process_can_be_kept_from_being_dumped() -> None:
    assert ctypes.CDLL(None).prctl(3, 0, 0, 0, 0) == 1, "the test process itself is as usual"
    process = subprocess.run([sys.executable, "-c", _SHOW], capture_output=True, text=True, check=True)
    assert json.loads(process.stdout) == [[0, 0], 0]


@LINUX
async def test_S34_memory_is_protected_before_the_users_program_is_loaded(bare: Shell) -> None:
    (bare.folder / "mine.py").write_text(_APP)
    done = await bare("run", "--app", "mine:fl", "--json")
    assert done.code == 78  # None is no Fairlead
    assert json.loads((bare.folder / "seen.json").read_text()) == [[0, 0], 0]


@LINUX
def test_S34_where_the_system_does_not_let_it_nothing_begins() -> None:
    process = subprocess.run([sys.executable, "-c", _REFUSED], capture_output=True, text=True, check=False)
    assert process.returncode == 78
    assert "prctl says Operation not permitted" in process.stderr
