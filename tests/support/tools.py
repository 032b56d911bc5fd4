"""Programs that some tests need and pip does not install."""

from __future__ import annotations

import os
import shutil

import pytest


def needs(*programs: str) -> pytest.MarkDecorator:
    """Skip a test where one of *programs* is missing. With CI set it runs, and fails."""
    missing = [program for program in programs if shutil.which(program) is None]
    reason = f"not in PATH: {', '.join(missing)} (Debian: {', '.join(map(_package, missing))})"
    return pytest.mark.skipif(bool(missing) and not os.environ.get("CI"), reason=reason)


def _package(program: str) -> str:
    return {"cc": "gcc"}.get(program, program)
