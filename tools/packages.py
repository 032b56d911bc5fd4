"""What the lock pins and what is installed: names, versions, hashes, licences, and who needs each."""

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
"""What a user of fairlead may ask for; the others are for those who work on it."""

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
    """The packages of a lock; ValueError for a line that is neither a package nor a hash nor a comment."""
    found: list[tuple[re.Match[str], list[str]]] = []
    for line in text.splitlines():
        if pinned := _PINNED.match(line):
            found.append((pinned, []))
        elif (digest := _HASH.match(line)) and found:
            found[-1][1].append(digest["hash"])
        elif line.strip() and not line.lstrip().startswith("#"):
            raise ValueError(f"not a line of a lock: {line!r}")
    return [
        Pinned(str(canonicalize_name(one["name"])), one["version"], tuple(hashes), one["marker"])
        for one, hashes in found
    ]


def installed() -> dict[str, str]:
    """Name and version of each package in this environment, without fairlead and without its tools."""
    found = {str(canonicalize_name(each.name)): each.version for each in distributions()}
    return {name: version for name, version in found.items() if name != OURS and name not in TOOLS}


def needed() -> tuple[frozenset[str], frozenset[str]]:
    """What a plain install takes, and what the extras for users add to it; as far as it is installed."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    plain = frozenset(_closure(project["dependencies"]))
    extras = [line for name in USERS_EXTRAS for line in project["optional-dependencies"][name]]
    return plain, frozenset(_closure(extras)) - plain


def _closure(lines: Iterable[str]) -> set[str]:
    """The packages of *lines* and all that they need, here."""
    waiting = [(Requirement(line), "") for line in lines]
    done: set[tuple[str, str]] = set()
    while waiting:
        wanted, extra = waiting.pop()
        if wanted.marker is not None and not wanted.marker.evaluate({"extra": extra}):
            continue
        name = str(canonicalize_name(wanted.name))
        for each in ("", *wanted.extras):
            if (name, each) not in done and (found := _found(name)) is not None:
                done.add((name, each))
                waiting += [(Requirement(line), each) for line in found.requires or ()]
    return {name for name, _ in done}


def _found(name: str) -> Distribution | None:
    try:
        return distribution(name)
    except PackageNotFoundError:
        return None


def licence(name: str) -> str:
    """The licence of an installed package as an SPDX expression; "unknown: ..." where it tells none."""
    about = distribution(name).metadata
    told = [line for line in about.get_all("Classifier") or () if line.startswith("License :: ")]
    classifiers = [end for line in told if (end := line.rpartition(" :: ")[2]) != "OSI Approved"]
    return licence_of({**{key: about[key] for key in set(about.keys())}}, classifiers)


def licence_of(about: Mapping[str, str], classifiers: Iterable[str] = ()) -> str:
    """The SPDX expression behind what a package tells of its licence; "unknown: ..." where that is in doubt.

    *classifiers* are the ends of those that name a licence. One that nobody here knows leaves all in doubt,
    and so does a text that says something else than they do.

    >>> licence_of({"License-Expression": "mit"}), licence_of({}, ["Apache Software License"])
    ('MIT', 'Apache-2.0')
    >>> licence_of({"License": "All rights reserved"}), licence_of({"License": "MIT"}, ["Freeware"])
    ('unknown: All rights reserved', 'unknown: Freeware')
    """
    classifiers = list(classifiers)
    for strange in (each for each in classifiers if each not in _CLASSIFIERS):
        return f"unknown: {strange}"
    for told in (about.get("License-Expression"), about.get("License")):
        expression = _expression(told or "")
        if expression:
            return expression
    named = sorted({_CLASSIFIERS[each] for each in classifiers})
    text = (about.get("License") or "").strip()
    if named and not _contradicts(text, named):
        return " AND ".join(named)
    return f"unknown: {next(iter(text.splitlines()), 'nothing is told')[:80]}"


def _contradicts(text: str, named: Iterable[str]) -> bool:
    """Whether *text*, which is no expression, says something else than that the licences are *named*.

    One line has to be understood whole. Several are a licence's own text: its title may name no other one.
    """
    lines = [line for line in text.lower().splitlines() if re.search("[a-z]", line)]
    if len(lines) <= 1:
        return "".join(lines).strip() not in _SAYS_NOTHING
    return not set(_FAMILY.findall(lines[0])) <= {each.partition("-")[0].lower() for each in named}


def _expression(told: str) -> str:
    text = told.strip()
    try:
        return str(canonicalize_license_expression(_WORDS.get(text.lower(), text))) if text else ""
    except InvalidLicenseExpression:
        return ""


def licence_ids(expression: str) -> Iterator[str]:
    """The licences that an expression names, each by its SPDX id.

    >>> list(licence_ids("MPL-2.0 AND (MIT OR Apache-2.0)"))
    ['MPL-2.0', 'MIT', 'Apache-2.0']
    """
    if expression.startswith("unknown: "):
        yield expression
        return
    yield from (word for word in re.findall(r"[A-Za-z0-9.+-]+", expression) if word not in _OPERATORS)


_OPERATORS = {"AND", "OR", "WITH"}
