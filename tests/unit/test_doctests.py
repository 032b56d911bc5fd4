"""Examples in docstrings give what they show."""

from __future__ import annotations

import doctest
from importlib import import_module

import pytest

from tests.lint.tree import sources

MODULES = [
    source.path.removeprefix("src/").removesuffix(".py").replace("/", ".")
    for source in sources("src/fairlead")
    if ">>> " in source.text
]


@pytest.mark.parametrize("module", MODULES)
def test_examples_give_what_they_show(module: str) -> None:
    results = doctest.testmod(import_module(module))
    assert results.attempted > 0
    assert results.failed == 0
