"""How vendors say that, and how long, to wait, in any dialect (DEFAULTS §4b)."""

from __future__ import annotations

import pytest

from fairlead.policy.failures.category import Category
from fairlead.policy.limits.feedback.raw_response import RawResponse
from tests.contract.dialects import judged

NOW_S = 1_800_000_000.0
SPENT = {"x-ratelimit-limit": "10", "x-ratelimit-remaining": "0"}


@pytest.mark.parametrize(
    ("status", "headers", "hint_s"),
    [
        (429, {"retry-after-ms": "1500", "retry-after": "60"}, 1.5),
        (429, {"retry-after-ms": "1500"}, 1.5),
        (429, {"retry-after-ms": "soon", "retry-after": "60"}, 60.0),
        (429, {**SPENT, "x-ratelimit-reset": f"{NOW_S * 1000 + 20_000:.0f}"}, 20.0),
        (429, {**SPENT, "x-ratelimit-reset": f"{NOW_S + 20:.0f}"}, 20.0),
        (429, {**SPENT, "x-ratelimit-reset": "20"}, 20.0),
        (403, {**SPENT, "x-ratelimit-reset": "20"}, 20.0),
    ],
)
def test_a_refusal_tells_its_wait(status: int, headers: dict[str, str], hint_s: float) -> None:
    verdict = judged(RawResponse(status, headers), now_epoch_s=NOW_S)
    assert verdict.category is Category.TRANSIENT_RATE_LIMIT
    assert verdict.hint_s == pytest.approx(hint_s, abs=1.0)


def test_only_a_403_with_nothing_left_is_a_limit() -> None:
    assert (
        judged(RawResponse(403, {**SPENT, "x-ratelimit-remaining": "1"})).category
        is Category.PERMANENT_PERMISSION
    )
    assert judged(RawResponse(404, SPENT)).category is Category.PERMANENT_REQUEST


@pytest.mark.parametrize("name", ["x-should-retry", "stripe-should-retry"])
def test_a_header_of_the_vendor_decides_the_retry_and_not_the_category(name: str) -> None:
    stopped = judged(RawResponse(500, {name: "false"}))
    assert (stopped.category, stopped.max_attempts) == (Category.TRANSIENT_SERVER, 0)
    again = judged(RawResponse(400, {name: "true"}))
    assert (again.category, again.max_attempts) == (Category.PERMANENT_REQUEST, 3)
    assert judged(RawResponse(500, {name: "maybe"})).max_attempts == 3
