"""A signed assertion that an issuer refuses whose clock is not the database's."""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from email.utils import formatdate
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from fairlead._core.secret import Secret
from fairlead.engine.ports import ConnectionKey, HttpResponse, TokenCall
from fairlead.engine.tokens.connection_grant import Grant
from fairlead.engine.tokens.deps import AppCredential
from fairlead.errors import IssuerClockError, ReauthRequiredError
from fairlead.policy.failures.category import Category
from fairlead.policy.tokens.assertion_clock import LONGEST_RESIGNED_S, clock_skew
from fairlead.policy.tokens.outcome import Rejected
from tests.support.refresher import FixedApps, Refresher, local_profile, refresher
from tests.support.rows import rows

KEY = ConnectionKey("acme", "signed")
PEM = ec.generate_private_key(ec.SECP256R1()).private_bytes(
    Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()
).decode()  # fmt: skip


class OffClockIssuer:
    """Takes assertions that are young by its own clock, which is *ahead_s* ahead; none where it *refuses*."""

    def __init__(self, ahead_s: float, *, refuses: bool = False, has_date: bool = True) -> None:
        self.ahead_s = ahead_s
        self.refuses = refuses
        self.has_date = has_date
        self.claims: list[dict[str, Any]] = []

    async def send(self, call: TokenCall, before_sent: Callable[[], Awaitable[None]]) -> HttpResponse:
        await before_sent()
        now_s = datetime.now(UTC).timestamp() + self.ahead_s
        encoded = call.form["assertion"].reveal().split(".")[1]
        claims = json.loads(base64.urlsafe_b64decode(encoded + "=" * (-len(encoded) % 4)))
        self.claims.append(claims)
        headers = {"date": [formatdate(now_s, usegmt=True)]} if self.has_date else {}
        if self.refuses or abs(claims["iat"] - now_s) > 60:
            return HttpResponse(400, headers, b'{"error": "invalid_grant"}', 0.0)
        return HttpResponse(200, headers, b'{"access_token": "at-2", "expires_in": 3600}', 0.0)


@asynccontextmanager
async def process(
    database: Any, issuer: OffClockIssuer, folder: Path, scheme: str = "https"
) -> AsyncIterator[tuple[Refresher, Any]]:
    profile = local_profile(
        "", "assertion", "signed", strategy="assertion", rotates=False, client_auth="none",
        endpoints={"token": f"{scheme}://issuer.example/token"},
        assertion={"sent_as": "grant", "alg": "ES256", "lifetime_s": 3600},
    )  # fmt: skip
    apps = FixedApps(AppCredential("app", private_key=Secret(PEM), fingerprint="f1"))
    async with refresher(database, {"signed": profile}, folder, apps=apps, transport=issuer) as fl:
        view = await fl.connections.upsert(KEY, Grant(expires_in_s=0.0), actor="test")
        yield fl, view.connection_id


async def state_of(database: Any) -> str:
    return (await rows(database, "SELECT state FROM credential"))[0]["state"]


@pytest.mark.parametrize("ahead_s", [600.0, -600.0, 3500.0])
async def test_assertion_refused_by_a_clock_that_differs_is_signed_once_more_by_that_clock(
    database, tmp_path, ahead_s
) -> None:
    issuer = OffClockIssuer(ahead_s)
    async with process(database, issuer, tmp_path) as (fl, connection_id):
        assert (await fl.coordinator.refresh(connection_id, 1)).generation == 2
    first, second = issuer.claims
    assert second["iat"] - first["iat"] == pytest.approx(ahead_s, abs=5)
    assert second["exp"] - second["iat"] == LONGEST_RESIGNED_S
    assert first["jti"] != second["jti"]


@pytest.mark.parametrize(
    ("ahead_s", "scheme", "posts", "category"),
    [
        (600.0, "https", 2, "transient_network"),
        (-600.0, "http", 1, "transient_network"),
        (7200.0, "https", 1, "permanent_config"),
    ],
)
async def test_assertion_refused_by_a_clock_that_differs_asks_no_customer_to_consent_again(
    database, tmp_path, ahead_s, scheme, posts, category
) -> None:
    issuer = OffClockIssuer(ahead_s, refuses=True)
    async with process(database, issuer, tmp_path, scheme) as (fl, connection_id):
        with pytest.raises(IssuerClockError, match="either clock may be wrong") as failed:
            await fl.coordinator.refresh(connection_id, 1)
    assert (failed.value.category, failed.value.retryable) == (category, category == "transient_network")
    assert failed.value.message.count("Z") == 2
    assert len(issuer.claims) == posts
    assert await state_of(database) == "active"


@pytest.mark.parametrize(("ahead_s", "has_date"), [(30.0, True), (600.0, False)])
async def test_assertion_refused_by_a_clock_that_agrees_ends_the_grant(
    database, tmp_path, ahead_s, has_date
) -> None:
    issuer = OffClockIssuer(ahead_s, refuses=True, has_date=has_date)
    async with process(database, issuer, tmp_path) as (fl, connection_id):
        with pytest.raises(ReauthRequiredError):
            await fl.coordinator.refresh(connection_id, 1)
    assert len(issuer.claims) == 1
    assert await state_of(database) == "needs_reauth"


def test_clock_is_compared_over_the_whole_time_that_the_answer_took() -> None:
    profile = local_profile(
        "http://x", "assertion", strategy="assertion", rotates=False, client_auth="none",
        assertion={"sent_as": "grant", "alg": "ES256"},
    )  # fmt: skip
    refused = Rejected(Category.PERMANENT_AUTH, "invalid_grant")
    sent_at = datetime(2026, 11, 27, 12, 0, tzinfo=UTC)
    date = "Fri, 27 Nov 2026 12:01:05 GMT"
    assert clock_skew(profile, refused, date, sent_at, 10.0) is None
    skew = clock_skew(profile, refused, date, sent_at, 4.0)
    assert skew is not None
    assert skew.difference_s == 61
    assert clock_skew(profile, Rejected(Category.PERMANENT_AUTH, "account_gone"), date, sent_at, 0.0) is None
