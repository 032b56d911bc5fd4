"""``python -m fairlead.testing.issuer``: the issuer as a process of its own.

It prints one JSON line (url, pid, ledger) when it is ready, and ends on SIGTERM or SIGINT with a complete ledger.
With --die-with-parent it also ends when its standard input closes, as it does when the process at the other end
of the pipe dies.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from fairlead.testing._kit.process import serve_until_signal
from fairlead.testing._kit.server import run_server, server_parser
from fairlead.testing.issuer.app import Issuer
from fairlead.testing.issuer.config import IssuerConfig, load


def main() -> int:
    """Serve until a signal; return 2 for unusable settings, 1 when port or ledger cannot be had."""
    parser = server_parser("fairlead.testing.issuer", __doc__)
    parser.add_argument("--ledger", type=Path, help="ledger file (default: a temporary one)")
    parser.add_argument("--config", type=Path, help="TOML or JSON file: providers, connections, rules")
    parser.add_argument("--seed", type=int, help="draws tokens, lifetimes and chances (default 1)")
    parser.add_argument("--sync", action="store_true", default=None, help="write each ledger line at once")
    arguments = parser.parse_args()
    return run_server("test issuer", lambda: _serve(arguments), port_hint="--port or --ledger")


async def _serve(arguments: argparse.Namespace) -> int:
    issuer = Issuer(_config(arguments))
    return await serve_until_signal(
        issuer,
        lambda: {"url": issuer.url, "ledger": str(issuer.ledger_path)},
        die_with_parent=arguments.die_with_parent,
    )


def _config(arguments: argparse.Namespace) -> IssuerConfig:
    config = IssuerConfig() if arguments.config is None else load(arguments.config)
    names = ("host", "port", "ledger", "seed", "sync")
    changes = {name: value for name in names if (value := getattr(arguments, name)) is not None}
    return IssuerConfig.read({**dict(config), **changes}, "the command line")


if __name__ == "__main__":
    raise SystemExit(main())
