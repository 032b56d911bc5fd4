"""``python -m fairlead.testing.api NAME``: a rude API as a process of its own.

Prints one JSON line (url, pid, name) when it is ready, and ends on SIGTERM or SIGINT. With --die-with-parent
it also ends when its standard input closes, as it does when the process that holds the other end of the pipe
dies.
"""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

from fairlead.errors import FairleadError, InvalidConfigError
from fairlead.testing._kit.process import run, until_told
from fairlead.testing.api import APIS, MalformedApi, ShopifyApi, ShopLimits, VendorApi


def main() -> int:
    """Run until told to stop; 2 when the arguments cannot be used, 1 when the port cannot."""
    arguments = _parser().parse_args()
    try:
        return run(_serve(arguments))
    except FairleadError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    except OSError as error:
        sys.stderr.write(f"test API: cannot start: {error} hint: choose another --port\n")
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m fairlead.testing.api", description=__doc__)
    parser.add_argument("name", choices=sorted((*APIS, MalformedApi.name)), help="whose API to play")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default 127.0.0.1)")
    parser.add_argument("--port", type=int, default=0, help="port to listen on (default 0: a free one)")
    parser.add_argument("--options", default="{}", help="JSON object of what its class takes")
    parser.add_argument("--die-with-parent", action="store_true", help="end when standard input closes")
    return parser


async def _serve(told: argparse.Namespace) -> int:
    api = _api(told.name, {"host": told.host, "port": told.port, **_options(told.options)})

    async def stop() -> None:
        await api.__aexit__(None, None, None)

    def ready() -> dict[str, object]:
        return {"url": api.url, "name": api.name}

    return await until_told(api.__aenter__, stop, ready, die_with_parent=told.die_with_parent)


def _api(name: str, options: dict[str, Any]) -> VendorApi | MalformedApi:
    made = MalformedApi if name == MalformedApi.name else APIS[name]
    try:
        if made is ShopifyApi and "limits" in options:
            options["limits"] = ShopLimits(**options["limits"])
        return made(**options)
    except TypeError as error:  # an argument that its class does not take
        raise InvalidConfigError(f"test API {name}: {error}", hint=f"see help({made.__qualname__})") from None


def _options(text: str) -> dict[str, Any]:
    try:
        told = json.loads(text)
    except ValueError:
        told = None
    if not isinstance(told, dict):
        raise InvalidConfigError("test API: --options is no JSON object", hint="--options '{\"takes_s\": 1}'")
    return told


if __name__ == "__main__":
    raise SystemExit(main())
