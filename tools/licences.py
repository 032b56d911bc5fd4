"""Writes docs/reference/licences.md: what is installed with fairlead, and under which licence.

``python -m tools.licences > docs/reference/licences.md``. A licence that is not in ALLOWED fails a test:
whether it may be shipped with is decided by a person, once, here.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping

from tools.packages import licence, licence_ids, needed

ALLOWED = frozenset(
    {
        "0BSD",
        "Apache-2.0",
        "BSD-2-Clause",
        "BSD-3-Clause",
        "CC0-1.0",
        "HPND",
        "ISC",
        "MIT",
        "MIT-0",
        "MIT-CMU",
        "MPL-2.0",
        "PSF-2.0",
        "PostgreSQL",
        "Python-2.0",
        "Unlicense",
        "Zlib",
    }
)
"""Who uses fairlead may ship it, changed or not, in a closed product. MPL-2.0 asks for changes of its own
files only."""

_HEAD = """\
# Licences

<!-- Written by `python -m tools.licences`. Do not edit. -->

What is installed with fairlead and under which licence, as each package tells it (SPDX). All of these may be
shipped in a closed product. `make sbom` tells versions and hashes, too, in CycloneDX.
"""


def not_allowed(found: Mapping[str, str]) -> dict[str, str]:
    """Those packages of *found* (name to licence) of which any licence is not in ALLOWED."""
    return {name: told for name, told in found.items() if not ALLOWED.issuperset(licence_ids(told))}


def shipped() -> tuple[dict[str, str], dict[str, str]]:
    """Name to licence: of a plain install, and of what the extras for users add."""
    plain, extra = needed()
    return _licences(plain), _licences(extra)


def _licences(names: Iterable[str]) -> dict[str, str]:
    return {name: licence(name) for name in sorted(names)}


def page() -> str:
    """docs/reference/licences.md."""
    plain, extra = shipped()
    parts = [_HEAD, "## A plain install\n", *_table(plain), "", "## With the extras\n", *_table(extra)]
    return "\n".join(parts) + "\n"


def _table(found: Mapping[str, str]) -> list[str]:
    return [
        "| package | licence |",
        "| --- | --- |",
        *(f"| {name} | {told} |" for name, told in found.items()),
    ]


if __name__ == "__main__":
    sys.stdout.write(page())
