"""A program's wall clock in the test's hand, the monotonic one as it is: a small library is put before it."""

from __future__ import annotations

import shutil
import struct
import subprocess
from collections.abc import Mapping
from pathlib import Path

SOURCE = Path(__file__).with_name("clocks.c")
COMPILER = next((name for name in ("cc", "gcc", "clang") if shutil.which(name)), "cc")


class Clock:
    """Kept in *folder*; programs that get `env` go by it."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "clock"
        self._library = folder / "clocks.so"
        self.set(0.0)
        subprocess.run(
            [COMPILER, "-shared", "-fPIC", "-O1", "-o", self._library, SOURCE, "-ldl"],
            check=True,
            capture_output=True,
            timeout=60,
        )

    def set(self, offset_s: float) -> None:
        """So far from the true time, from now on."""
        with self._file.open("r+b" if self._file.exists() else "wb") as file:
            file.write(struct.pack("<q", round(offset_s * 1e6)))

    @property
    def env(self) -> Mapping[str, str]:
        return {"LD_PRELOAD": str(self._library), "FAULT_CLOCK": str(self._file)}
