"""``python -m fairlead.testing.api NAME``: a rude API as a process of its own.

Prints one JSON line (url, pid, name) when it is ready, and ends on SIGTERM or SIGINT. With --die-with-parent
it also ends when its standard input closes, as it does when the process that holds the other end of the pipe
dies.
"""

from __future__ import annotations

import argparse
import sys

from fairlead.errors import FairleadError
from fairlead.testing.api import APIS, Api, LiarApi
from fairlead.testing.process import run, until_told


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
    parser.add_argument("name", choices=sorted((*APIS, LiarApi.name)), help="whose API to play")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default 127.0.0.1)")
    parser.add_argument("--port", type=int, default=0, help="port to listen on (default 0: a free one)")
    parser.add_argument("--takes-s", type=float, default=0.0, help="how long a call takes (default 0)")
    parser.add_argument("--seed", type=int, default=1, help="draws which calls fail (default 1)")
    parser.add_argument("--die-with-parent", action="store_true", help="end when standard input closes")
    return parser


async def _serve(told: argparse.Namespace) -> int:
    api: Api | LiarApi
    if told.name == LiarApi.name:
        api = LiarApi(host=told.host, port=told.port)
    else:
        api = APIS[told.name](host=told.host, port=told.port, takes_s=told.takes_s, seed=told.seed)

    async def stop() -> None:
        await api.__aexit__(None, None, None)

    def ready() -> dict[str, object]:
        return {"url": api.url, "name": api.name}

    return await until_told(api.__aenter__, stop, ready, die_with_parent=told.die_with_parent)


if __name__ == "__main__":
    raise SystemExit(main())
