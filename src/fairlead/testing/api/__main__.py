"""``python -m fairlead.testing.api NAME``: a vendor API as a process of its own.

It prints one JSON line (url, pid, name) when it is ready, and ends on SIGTERM or SIGINT. With --die-with-parent
it also ends when its standard input closes, as it does when the process at the other end of the pipe dies.
"""

from __future__ import annotations

import argparse
import json
from typing import Any

from fairlead.errors import InvalidConfigError
from fairlead.testing._kit.process import serve_until_signal
from fairlead.testing._kit.server import run_server, server_parser
from fairlead.testing.api import APIS, MalformedApi, ShopifyApi, ShopLimits, VendorApi


def main() -> int:
    """Serve until a signal; return 2 for unusable arguments, 1 when the port cannot be had."""
    parser = server_parser("fairlead.testing.api", __doc__)
    parser.add_argument("name", choices=sorted((*APIS, MalformedApi.name)), help="the API to serve")
    parser.add_argument("--options", default="{}", help="JSON object of what its class takes")
    arguments = parser.parse_args()
    return run_server("test API", lambda: _serve(arguments), port_hint="--port")


async def _serve(arguments: argparse.Namespace) -> int:
    address = {"host": arguments.host or "127.0.0.1", "port": arguments.port or 0}
    api = _api(arguments.name, {**address, **_options(arguments.options)})
    return await serve_until_signal(
        api, lambda: {"url": api.url, "name": api.name}, die_with_parent=arguments.die_with_parent
    )


def _api(name: str, options: dict[str, Any]) -> VendorApi | MalformedApi:
    api = MalformedApi if name == MalformedApi.name else APIS[name]
    try:
        if api is ShopifyApi and "limits" in options:
            options["limits"] = ShopLimits(**options["limits"])
        return api(**options)
    except TypeError as error:  # an argument that its class does not take
        raise InvalidConfigError(f"test API {name}: {error}", hint=f"see help({api.__qualname__})") from None


def _options(text: str) -> dict[str, Any]:
    try:
        options = json.loads(text)
    except ValueError:
        options = None
    if not isinstance(options, dict):
        raise InvalidConfigError("test API: --options is no JSON object", hint="--options '{\"takes_s\": 1}'")
    return options


if __name__ == "__main__":
    raise SystemExit(main())
