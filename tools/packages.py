"""The packages that the lock pins and that are installed: versions, hashes, licences, and their dependants."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import Distribution, PackageNotFoundError, distribution, distributions
from pathlib import Path

from packaging.licenses import InvalidLicenseExpression, canonicalize_license_expression
from packaging.markers import Marker
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[1]
LOCK = ROOT / "requirements/dev.txt"
OURS = "fairlead"
TOOLS = frozenset({"pip"})
"""Comes with the environment itself; the lock does not hold it."""
USERS_EXTRAS = ("embedded", "fast", "httpx", "httpx2")
"""The extras for users of fairlead. The others are for its development."""

_PINNED = re.compile(r"^(?P<name>[\w.-]+)==(?P<version>[^\s;]+)(?: ; (?P<marker>[^\\\n]+?))?(?: \\)?$")
_HASH = re.compile(r"^ +--hash=sha256:(?P<hash>[0-9a-f]{64})(?: \\)?$")

# Where a package names its licence by a classifier only; the ends of those lines.
_CLASSIFIERS = {
    "Apache Software License": "Apache-2.0",
    "BSD License": "BSD-3-Clause",
    "GNU Lesser General Public License v3 (LGPLv3)": "LGPL-3.0-only",
    "GNU Library or Lesser General Public License (LGPL)": "LGPL-3.0-only",
    "ISC License (ISCL)": "ISC",
    "MIT License": "MIT",
    "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
    "PostgreSQL License": "PostgreSQL",
    "Python Software Foundation License": "PSF-2.0",
}
# Short names that packages write where an SPDX expression belongs.
_WORDS = {
    "apache 2": "Apache-2.0",
    "apache 2.0": "Apache-2.0",
    "bsd": "BSD-3-Clause",
    "bsd 2-clause license": "BSD-2-Clause",
    "bsd license": "BSD-3-Clause",
    "isc license": "ISC",
    "mit license": "MIT",
    "new bsd": "BSD-3-Clause",
}
_SAYS_NOTHING = frozenset({"", "dual license"})
"""Lines that leave it to the classifiers."""
_FAMILY = re.compile(
    r"\b(affero|agpl|apache|bsd|commercial|general public|gpl|isc|lgpl|mit|mpl|mozilla|non-?commercial"
    r"|postgresql|proprietary|psf|rights reserved|server side public|sspl|busl|business source)(?=\b|v?\d)"
)


@dataclass(frozen=True, slots=True)
class Pinned:
    """One package of the lock. *hashes*: SHA-256 of each of its files. *marker*: where it is needed."""

    name: str
    version: str
    hashes: tuple[str, ...]
    marker: str | None = None

    @property
    def is_for_here(self) -> bool:
        """Whether this interpreter on this system needs it."""
        return self.marker is None or Marker(self.marker).evaluate()


def locked(text: str) -> list[Pinned]:
    """Return the packages of a lock. Raise ValueError for a line that is no package, hash or comment."""
    entries: list[tuple[re.Match[str], list[str]]] = []
    for line in text.splitlines():
        if pinned := _PINNED.match(line):
            entries.append((pinned, []))
        elif (digest := _HASH.match(line)) and entries:
            entries[-1][1].append(digest["hash"])
        elif line.strip() and not line.lstrip().startswith("#"):
            raise ValueError(f"not a line of a lock: {line!r}")
    return [
        Pinned(str(canonicalize_name(pin["name"])), pin["version"], tuple(hashes), pin["marker"])
        for pin, hashes in entries
    ]


def installed() -> dict[str, str]:
    """Return name and version of each package in this environment, without fairlead and pip."""
    versions = {str(canonicalize_name(package.name)): package.version for package in distributions()}
    return {name: version for name, version in versions.items() if name != OURS and name not in TOOLS}


def needed() -> tuple[frozenset[str], frozenset[str]]:
    """Return the installed packages of a plain install, and those that the extras for users add."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    plain = frozenset(_closure(project["dependencies"]))
    extras = [line for name in USERS_EXTRAS for line in project["optional-dependencies"][name]]
    return plain, frozenset(_closure(extras)) - plain


def _closure(lines: Iterable[str]) -> set[str]:
    """Return the packages of the requirements *lines*, with all their dependencies that are installed."""
    waiting = [(Requirement(line), "") for line in lines]
    done: set[tuple[str, str]] = set()
    while waiting:
        requirement, extra = waiting.pop()
        if requirement.marker is not None and not requirement.marker.evaluate({"extra": extra}):
            continue
        name = str(canonicalize_name(requirement.name))
        for wanted_extra in ("", *requirement.extras):
            if (name, wanted_extra) not in done and (installed_package := _distribution(name)) is not None:
                done.add((name, wanted_extra))
                waiting += [(Requirement(line), wanted_extra) for line in installed_package.requires or ()]
    return {name for name, _ in done}


def _distribution(name: str) -> Distribution | None:
    try:
        return distribution(name)
    except PackageNotFoundError:
        return None


def licence(name: str) -> str:
    """Return the SPDX expression of an installed package's licence; "unknown: ..." if it declares none."""
    metadata = distribution(name).metadata
    classifier_lines = [
        line for line in metadata.get_all("Classifier") or () if line.startswith("License :: ")
    ]
    classifiers = [end for line in classifier_lines if (end := line.rpartition(" :: ")[2]) != "OSI Approved"]
    return licence_of({**{key: metadata[key] for key in set(metadata.keys())}}, classifiers)


def licence_of(about: Mapping[str, str], classifiers: Iterable[str] = ()) -> str:
    """Return the SPDX expression of the licence that a package's metadata declare; "unknown: ..." in doubt.

    *classifiers* are the ends of those that name a licence. An unknown one makes the result doubtful, and so
    does a text that contradicts them.

    >>> licence_of({"License-Expression": "mit"}), licence_of({}, ["Apache Software License"])
    ('MIT', 'Apache-2.0')
    >>> licence_of({"License": "All rights reserved"}), licence_of({"License": "MIT"}, ["Freeware"])
    ('unknown: All rights reserved', 'unknown: Freeware')
    """
    classifiers = list(classifiers)
    for unknown in (classifier for classifier in classifiers if classifier not in _CLASSIFIERS):
        return f"unknown: {unknown}"
    for text_of_licence in (about.get("License-Expression"), about.get("License")):
        expression = _expression(text_of_licence or "")
        if expression:
            return expression
    expressions = sorted({_CLASSIFIERS[classifier] for classifier in classifiers})
    text = (about.get("License") or "").strip()
    if expressions and not _contradicts(text, expressions):
        return " AND ".join(expressions)
    return f"unknown: {next(iter(text.splitlines()), 'nothing is text_of_licence')[:80]}"


def _contradicts(text: str, expressions: Iterable[str]) -> bool:
    """Return whether *text*, which is no expression, contradicts the licences in *expressions*.

    A single line must be known as a whole. Several lines are a licence's own text, of which only the title is
    compared.
    """
    lines = [line for line in text.lower().splitlines() if re.search("[a-z]", line)]
    if len(lines) <= 1:
        return "".join(lines).strip() not in _SAYS_NOTHING
    return not set(_FAMILY.findall(lines[0])) <= {
        expression.partition("-")[0].lower() for expression in expressions
    }


def _expression(licence_text: str) -> str:
    text = licence_text.strip()
    try:
        return str(canonicalize_license_expression(_WORDS.get(text.lower(), text))) if text else ""
    except InvalidLicenseExpression:
        return ""


def licence_ids(expression: str) -> Iterator[str]:
    """Yield the licences that an expression names, each by its SPDX id.

    >>> list(licence_ids("MPL-2.0 AND (MIT OR Apache-2.0)"))
    ['MPL-2.0', 'MIT', 'Apache-2.0']
    """
    if expression.startswith("unknown: "):
        yield expression
        return
    yield from (word for word in re.findall(r"[A-Za-z0-9.+-]+", expression) if word not in _OPERATORS)


_OPERATORS = {"AND", "OR", "WITH"}
