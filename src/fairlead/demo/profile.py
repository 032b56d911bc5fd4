"""The demo profile: fairlead's settings with hours turned into seconds, written as a settings file.

The built-in provider profiles stay as they are but for their clock, their rate and their address: an overlay
points each at the issuer of the demo.
"""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fairlead.demo.demo_plan import GRACE_S, PROVIDERS, DemoProvider, client_secret
from fairlead.testing.issuer import Policy

REQUEST_DEADLINE_S = 5.0
ALL_ATTEMPTS_S = 7.0
REFRESH_LEASE_S = 8.0
"""Longer than all attempts of one refresh: no process takes over from a live owner."""
WORKER_LEASE_S = 3.0
CONCURRENCY = 8
"""Of one worker: the most jobs that are in flight when it is killed."""
COOLDOWN_S = 1.0
SHUTDOWN_GRACE_S = 6.0
LEAD_S, BUFFER_S, CRITICAL_S = 3.0, 1.0, 0.6

LINE = (
    f"worker lease {WORKER_LEASE_S:g} s, cooldown {COOLDOWN_S:g} s, tokens live 6 to 12 s, refreshed "
    f"{LEAD_S:g} s before their end, scans every second, request deadline {REQUEST_DEADLINE_S:g} s"
)
"""The demo profile in words."""


def settings(home: Path, issuer_url: str) -> dict[str, Any]:
    """Return the tables of the settings file."""
    return {
        "home": str(home),
        "vault": {"master_key": base64.b64encode(os.urandom(32)).decode()},
        "refresh": {
            "request_deadline_s": REQUEST_DEADLINE_S,
            "total_deadline_s": ALL_ATTEMPTS_S,
            "lease_s": REFRESH_LEASE_S,
            "not_sent_delays_s": [0.2, 0.5],
            "cooldown_s": COOLDOWN_S,
            "min_remaining_s": 1.0,
            "wait_s": 2.0,
            "cache_s": 1.0,
            "retry_dead_after_s": 3.0,
            "breaker_open_s": 1.0,
            "breaker_open_max_s": 4.0,
        },
        "worker": {
            "lease_s": WORKER_LEASE_S,
            "concurrency": CONCURRENCY,
            "poll_s": 0.25,
            "shutdown_grace_s": SHUTDOWN_GRACE_S,
        },
        "schedules": {
            "refresh_scan": "@every 1s",
            "urgent_scan": "@every 1s",
            "dead_letters": "@every 5s",
            "clean_up": "@every 30s",
        },
        "notifications": {"reauth_link": "https://app.example.com/reconnect/{tenant}/{provider}"},
        "http": {"allow_private_addresses": True},
        "log": {"format": "json"},
        "providers": {provider.provider: _app(provider, issuer_url) for provider in PROVIDERS},
    }


def _app(provider: DemoProvider, issuer_url: str) -> dict[str, Any]:
    app: dict[str, Any] = {"client_id": provider.client_id, "overlay": overlay(provider, issuer_url)}
    if provider.policy is not Policy.ASSERTION:
        app["client_secret"] = client_secret(provider)
    return app


def overlay(provider: DemoProvider, issuer_url: str) -> dict[str, Any]:
    """Return the demo's changes of a built-in profile."""
    changes: dict[str, Any] = {
        "allow_http": True,
        "endpoints": {"token": f"{issuer_url}/{provider.provider}/token"},
        "ttl_default_s": provider.life_s,
        "windows": {"lead_s": LEAD_S, "buffer_s": BUFFER_S, "critical_s": CRITICAL_S},
        "rate": {"limit": 1000, "window_s": 1.0},
        "backoff_factor": 0.5,
    }
    if provider.policy is Policy.GRACE:
        changes["replay"] = {"grace_s": GRACE_S}
    return changes


def write_settings(file: Path, tables: Mapping[str, Any]) -> None:
    """Write *tables* as TOML, readable for this user only, since they contain the master key."""
    text = "".join(f"{name} = {_toml(value)}\n" for name, value in tables.items())
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as opened:
        opened.write(text)


def _toml(value: object) -> str:
    """Return *value* as TOML; its texts have no character that JSON and TOML write differently."""
    if isinstance(value, Mapping):
        inner = ", ".join(f"{json.dumps(key)} = {_toml(item)}" for key, item in value.items())
        return f"{{ {inner} }}"
    if isinstance(value, list):
        return f"[{', '.join(_toml(item) for item in value)}]"
    return json.dumps(value)
