"""Writes the bill of materials of this environment as CycloneDX 1.6 (https://cyclonedx.org/docs/1.6/json/).

``python -m tools.sbom > sbom.json``. Components are those packages of the lock that this system needs, with
the hashes that pip holds them to; the same lock on the same system gives the same text. ``scope`` tells what
a plain install takes (required), what the extras for users add (optional), and what only our own work needs
(excluded).
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from uuid import NAMESPACE_URL, uuid5

from fairlead._version import __version__
from tools.packages import LOCK, OURS, Pinned, licence, locked, needed

Part = dict[str, object]


def bill(packages: Iterable[Pinned], licences: dict[str, str], scopes: dict[str, str]) -> Part:
    """The bill of *packages*; what *licences* and *scopes* do not name is unknown and excluded."""
    components = [
        _component(each, licences.get(each.name), scopes.get(each.name, "excluded"))
        for each in sorted(packages, key=lambda each: each.name)
    ]
    said = json.dumps(components, sort_keys=True)
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid5(NAMESPACE_URL, said)}",
        "version": 1,
        "metadata": {"component": _ourselves()},
        "components": components,
    }


def _ourselves() -> Part:
    return {
        "type": "library",
        "bom-ref": f"pkg:pypi/{OURS}@{__version__}",
        "name": OURS,
        "version": __version__,
        "licenses": [{"license": {"id": "Apache-2.0"}}],
    }


def _component(package: Pinned, told: str | None, scope: str) -> Part:
    address = f"pkg:pypi/{package.name}@{package.version}"
    part: Part = {
        "type": "library",
        "bom-ref": address,
        "name": package.name,
        "version": package.version,
        "purl": address,
        "scope": scope,
        "hashes": [{"alg": "SHA-256", "content": each} for each in package.hashes],
    }
    if told is not None and not told.startswith("unknown"):
        part["licenses"] = [{"expression": told}]
    return part


def of_this_environment() -> Part:
    """The bill of what the lock puts here."""
    packages = [each for each in locked(LOCK.read_text("utf-8")) if each.is_for_here]
    required, optional = needed()
    scopes = dict.fromkeys(required, "required") | dict.fromkeys(optional, "optional")
    return bill(packages, {each.name: licence(each.name) for each in packages}, scopes)


if __name__ == "__main__":
    sys.stdout.write(json.dumps(of_this_environment(), indent=2) + "\n")
