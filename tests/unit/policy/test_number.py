"""`True` is no number, wherever one is asked for, though Python counts with it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from pydantic import ValidationError

from fairlead.assembly.settings import Settings
from fairlead.cli.connections.files import own_entry
from fairlead.engine.jobs.handler import Handler
from fairlead.engine.limits.admission import CallRequest
from fairlead.engine.ports import ConnectionKey
from fairlead.errors import InvalidConfigError, InvalidInputError
from fairlead.policy.failures.retry import RetryPolicy
from fairlead.policy.jobs import schedule
from fairlead.policy.jobs.job import Snooze, check_delay
from fairlead.policy.jobs.lane import check_weight

KEY = ConnectionKey("acme", "shopify")


async def never(_context: object) -> None:
    pass


@pytest.mark.parametrize(
    "read_header",
    [
        lambda: check_delay("delay_s", True),
        lambda: Snooze(True),
        lambda: Handler("kind", never, timeout_s=True),
        lambda: check_weight(True),
        lambda: RetryPolicy(ceiling=True),
        lambda: CallRequest(KEY, cost=True),
        lambda: CallRequest(KEY, wait_s=True),
        lambda: schedule._check_jitter(True),
        lambda: Settings.model_validate({"http": {"max_connections": True}}),
        lambda: Settings.model_validate({"worker": {"concurrency": False}}),
        lambda: own_entry({"tenant": "a", "provider": "b", "expires_in_s": True}, None),  # type: ignore[arg-type]
    ],
)
def test_true_is_no_delay_and_no_other_number(read_header: Callable[[], object]) -> None:
    with pytest.raises((InvalidInputError, InvalidConfigError, ValidationError, ValueError)):
        read_header()


def test_true_is_a_value_of_a_flag() -> None:
    assert Settings.model_validate({"http": {"trust_env": True}}).http.trust_env
