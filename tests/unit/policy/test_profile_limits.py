"""What vendors publish of their limits: no profile lets more through (T1, DEFAULTS §3)."""

from __future__ import annotations

import pytest

from fairlead.policy.providers.profile_load import load_profiles

PROFILES = load_profiles()
DAY_S = 86_400.0

# Sources stand in the profiles: provider, API, units, window.
PUBLISHED: list[tuple[str, str, float, float]] = [
    ("hubspot", "rest", 100, 10),
    ("hubspot", "rest", 250_000, DAY_S),
    ("quickbooks", "rest", 500, 60),
    ("quickbooks", "rest", 10, 1),
    ("quickbooks", "batch", 40, 60),
    ("qwen", "rest", 60, 60),
    ("xero", "rest", 60, 60),
    ("xero", "rest", 5_000, DAY_S),
]
IN_FLIGHT = {"netsuite": 5, "xero": 5}


@pytest.mark.parametrize(("provider", "api", "units", "window_s"), PUBLISHED)
def test_no_window_of_a_vendor_is_overfilled(provider: str, api: str, units: float, window_s: float) -> None:
    """A bucket lets its capacity through, and what comes back meanwhile; the least of them counts."""
    limits = PROFILES[provider].limits.for_api(api)
    buckets = [limit.bucket(name, name) for name, limit in limits.items()]
    passed = min(bucket.capacity + bucket.per_s * window_s for bucket in buckets)
    assert passed <= units
    assert passed >= 0.95 * units, "nor is more held back than has to be"


def test_calls_in_flight_are_counted_where_the_vendor_does() -> None:
    counted = {name: profile.limits.slots for name, profile in PROFILES.items() if profile.limits.slots}
    assert counted == IN_FLIGHT


def test_no_two_calls_to_qwen_share_a_second() -> None:
    """It counts a sixtieth of the minute within each second."""
    (limit,) = PROFILES["qwen"].limits.for_api("rest").values()
    bucket = limit.bucket("requests", "requests")
    assert (bucket.capacity, bucket.per_s <= 1) == (1, True)


def test_a_batch_of_quickbooks_is_a_request_too_and_has_an_address() -> None:
    quickbooks = PROFILES["quickbooks"]
    assert set(quickbooks.limits.for_api("batch")) == {"batch", *quickbooks.limits.for_api("rest")}
    assert quickbooks.api_url("batch", {"realm": "913"}) == "https://quickbooks.api.intuit.com/v3/company/913"
