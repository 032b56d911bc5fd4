"""A root folder per test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.servers import temporary_root


@pytest.fixture
def root() -> Iterator[Path]:
    with temporary_root() as folder:
        yield folder
