"""What the suites of the token transport share: a call, a hook, and private addresses allowed."""

from __future__ import annotations

from fairlead._core.secret import Secret
from fairlead.adapters.http import AddressPolicy
from fairlead.engine.ports import TokenCall

PRIVATE = AddressPolicy(allow_private=True)
SECRET = "refresh-token-canary"


def call_of(url: str, *, deadline_s: float = 5.0, reuse: bool = True, **headers: str) -> TokenCall:
    return TokenCall(
        url=url,
        headers={name.replace("_", "-"): Secret(value) for name, value in headers.items()},
        form={"grant_type": Secret("refresh_token"), "refresh_token": Secret(SECRET)},
        deadline_s=deadline_s,
        reuse_connection=reuse,
    )


async def let_it_go() -> None:
    """A hook that has no objection."""
