"""``python -m fairlead.testing.issuer``: the issuer as a process of its own.

Prints one JSON line (url, pid, ledger) when it is ready, and ends on SIGTERM or SIGINT with a complete
ledger. With --die-with-parent it also ends when its standard input closes, as it does when the process
that holds the other end of the pipe dies.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from fairlead.errors import FairleadError
from fairlead.testing._kit.process import run, until_told
from fairlead.testing.issuer.app import Issuer
from fairlead.testing.issuer.config import IssuerConfig, load


def main() -> int:
    """Run until told to stop; 2 when the settings cannot be used, 1 when the port cannot."""
    arguments = _parser().parse_args()
    try:
        config = _config(arguments)
        return run(_serve(config, die_with_parent=arguments.die_with_parent))
    except FairleadError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    except OSError as error:
        sys.stderr.write(f"test issuer: cannot start: {error} hint: choose another --port or --ledger\n")
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m fairlead.testing.issuer", description=__doc__)
    parser.add_argument("--host", help="address to listen on (default 127.0.0.1)")
    parser.add_argument("--port", type=int, help="port to listen on (default 0: a free one)")
    parser.add_argument("--ledger", type=Path, help="ledger file (default: a temporary one)")
    parser.add_argument("--config", type=Path, help="TOML or JSON file: providers, connections, rules")
    parser.add_argument("--seed", type=int, help="draws tokens, lifetimes and chances (default 1)")
    parser.add_argument("--sync", action="store_true", default=None, help="write each ledger line at once")
    parser.add_argument("--die-with-parent", action="store_true", help="end when standard input closes")
    return parser


def _config(arguments: argparse.Namespace) -> IssuerConfig:
    config = IssuerConfig() if arguments.config is None else load(arguments.config)
    names = ("host", "port", "ledger", "seed", "sync")
    given = {name: value for name in names if (value := getattr(arguments, name)) is not None}
    return IssuerConfig.read({**dict(config), **given}, "the command line")


async def _serve(config: IssuerConfig, *, die_with_parent: bool) -> int:
    issuer = Issuer(config)

    def ready() -> dict[str, object]:
        return {"url": issuer.url, "ledger": str(issuer.ledger_path)}

    return await until_told(issuer.start, issuer.stop, ready, die_with_parent=die_with_parent)


if __name__ == "__main__":
    raise SystemExit(main())
