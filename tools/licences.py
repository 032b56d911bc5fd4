"""Writes docs/reference/licences.md: the packages installed with fairlead, and their licences.

``python -m tools.licences > docs/reference/licences.md``. A licence that is not in ALLOWED fails a test:
a person decides here, once, whether it may be shipped.
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
"""Licences that allow a user of fairlead to ship the package, changed or not, in a closed product.

MPL-2.0 requires the publication of changes to its own files only.
"""

_HEAD = """\
# Licences

<!-- Written by `python -m tools.licences`. Do not edit. -->

What is installed with fairlead and under which licence, as each package declares it (SPDX). You may ship all
of these in a closed product. `make sbom` lists versions and hashes, too, in CycloneDX.
"""


def not_allowed(licences: Mapping[str, str]) -> dict[str, str]:
    """Return the packages (name to licence) with a licence that is not in ALLOWED."""
    return {
        name: expression
        for name, expression in licences.items()
        if not ALLOWED.issuperset(licence_ids(expression))
    }


def shipped() -> tuple[dict[str, str], dict[str, str]]:
    """Return name to licence of a plain install, and of what the extras for users add."""
    plain, extra = needed()
    return _licences(plain), _licences(extra)


def _licences(names: Iterable[str]) -> dict[str, str]:
    return {name: licence(name) for name in sorted(names)}


def page() -> str:
    """Return the text of docs/reference/licences.md."""
    plain, extra = shipped()
    parts = [_HEAD, "## A plain install\n", *_table(plain), "", "## With the extras\n", *_table(extra)]
    return "\n".join(parts) + "\n"


def _table(licences: Mapping[str, str]) -> list[str]:
    return [
        "| package | licence |",
        "| --- | --- |",
        *(f"| {name} | {expression} |" for name, expression in licences.items()),
    ]


if __name__ == "__main__":
    sys.stdout.write(page())
