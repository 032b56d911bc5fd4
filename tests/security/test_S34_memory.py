"""S34: no memory image of a process that holds secrets, for nobody but root."""

from __future__ import annotations

import ctypes
import json
import resource
import subprocess
import sys

import pytest

from tests.support.cli import Shell

_SHOW = """
import ctypes, json, resource
from fairlead.ground import forbid_dumps
forbid_dumps()
print(json.dumps([resource.getrlimit(resource.RLIMIT_CORE), ctypes.CDLL(None).prctl(3, 0, 0, 0, 0)]))
"""
_APP = """
import ctypes, json, resource
from fairlead import Fairlead
with open("seen.json", "w") as seen:
    json.dump([resource.getrlimit(resource.RLIMIT_CORE), ctypes.CDLL(None).prctl(3, 0, 0, 0, 0)], seen)
fl = None
"""
LINUX = pytest.mark.skipif(sys.platform != "linux", reason="prctl is Linux's")


@LINUX
def test_S34_a_process_can_be_kept_from_being_dumped() -> None:
    if resource.getrlimit(resource.RLIMIT_CORE)[1] == 0:
        pytest.skip("this machine allows no core files to begin with")
    assert ctypes.CDLL(None).prctl(3, 0, 0, 0, 0) == 1, "the test process itself is as usual"
    told = subprocess.run([sys.executable, "-c", _SHOW], capture_output=True, text=True, check=True)
    assert json.loads(told.stdout) == [[0, 0], 0]


@LINUX
async def test_S34_it_is_so_before_the_program_of_the_user_is_loaded(bare: Shell) -> None:
    (bare.folder / "mine.py").write_text(_APP)
    done = await bare("run", "--app", "mine:fl", "--json")
    assert done.code == 78  # None is no Fairlead
    assert json.loads((bare.folder / "seen.json").read_text()) == [[0, 0], 0]
