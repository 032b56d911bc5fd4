"""Writes the bill of materials of this environment as CycloneDX 1.6 (https://cyclonedx.org/docs/1.6/json/).

``python -m tools.sbom > sbom.json``. Components are those packages of the lock that this system needs, with
the hashes that pip checks; the same lock on the same system gives the same text. ``scope`` is required for a
plain install, optional for the extras for users, and excluded for development.
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
    """Return the bill of *packages*. Those without an entry in *licences* or *scopes* are unknown and excluded."""
    components = [
        _component(package, licences.get(package.name), scopes.get(package.name, "excluded"))
        for package in sorted(packages, key=lambda package: package.name)
    ]
    content = json.dumps(components, sort_keys=True)
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid5(NAMESPACE_URL, content)}",
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


def _component(package: Pinned, expression: str | None, scope: str) -> Part:
    address = f"pkg:pypi/{package.name}@{package.version}"
    part: Part = {
        "type": "library",
        "bom-ref": address,
        "name": package.name,
        "version": package.version,
        "purl": address,
        "scope": scope,
        "hashes": [{"alg": "SHA-256", "content": digest} for digest in package.hashes],
    }
    if expression is not None and not expression.startswith("unknown"):
        part["licenses"] = [{"expression": expression}]
    return part


def of_this_environment() -> Part:
    """Return the bill of the packages that the lock installs on this system."""
    packages = [package for package in locked(LOCK.read_text("utf-8")) if package.is_for_here]
    required, optional = needed()
    scopes = dict.fromkeys(required, "required") | dict.fromkeys(optional, "optional")
    return bill(packages, {package.name: licence(package.name) for package in packages}, scopes)


if __name__ == "__main__":
    sys.stdout.write(json.dumps(of_this_environment(), indent=2) + "\n")
