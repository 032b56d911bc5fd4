"""Failures are judged by type alone: ours by what they say, Python's by a table, the rest is flagged."""

from __future__ import annotations

import errno
import socket
import ssl

import pytest

from fairlead import errors
from fairlead.policy.calls.classify.classifier import classify
from fairlead.policy.calls.classify.rules import rules_of
from fairlead.policy.calls.classify.verdict import Result, Step, Verdict
from fairlead.policy.failures.category import Category, classify_exception
from fairlead.policy.limits.feedback.raw_response import RawResponse
from fairlead.policy.providers.profile_load import load_profiles
from fairlead.policy.text.safe import MAX_SAFE_BYTES


class Misleading(Exception):
    """Its name and text speak of rate limits and 429; its type says nothing."""


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (TimeoutError("slow"), "timeout"),
        (ConnectionRefusedError("no"), "connection_refused"),
        (ConnectionResetError("cut"), "connection_reset"),
        (BrokenPipeError("cut"), "connection_lost"),
        (ConnectionAbortedError("cut"), "connection_lost"),
        (socket.gaierror(socket.EAI_NONAME, "Name or service not known"), "network"),
        (socket.herror(1, "unknown host"), "network"),
        (ssl.SSLError(1, "handshake"), "network"),
        (ssl.SSLCertVerificationError(1, "expired"), "network"),
        (OSError(errno.ENETUNREACH, "unreachable"), "network"),
        (OSError(errno.EHOSTUNREACH, "no route"), "network"),
        (OSError("something"), "network"),
    ],
)
def test_the_network_of_python(error: Exception, code: str) -> None:
    failure = classify_exception(error)
    assert (failure.category, failure.code, failure.unclassified) == (Category.TRANSIENT_NETWORK, code, False)
    assert type(error).__name__ in failure.reason


@pytest.mark.parametrize(
    "error",
    [
        FileNotFoundError(errno.ENOENT, "no such file"),
        PermissionError(errno.EACCES, "denied"),
        OSError(errno.ENOSPC, "No space left on device"),
        OSError(errno.EMFILE, "Too many open files"),
        errors.FairleadError("something"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_unknown_exception_is_retried_and_flagged(error: Exception) -> None:
    failure = classify_exception(error)
    assert failure.category is Category.TRANSIENT_NETWORK
    assert failure.unclassified


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (KeyError("x"), "key_error"),
        (RuntimeError("429 Too Many Requests: rate limit exceeded"), "runtime_error"),
        (Misleading("invalid_grant 401 unauthorized"), "misleading"),
        (type("Größe", (Exception,), {})("x"), "handler_error"),
    ],
)
def test_exception_of_a_handler_is_a_handler_error(error: Exception, code: str) -> None:
    failure = classify_exception(error)
    assert (failure.category, failure.code, failure.unclassified) == (Category.HANDLER_ERROR, code, False)
    assert classify_exception(error, (KeyError, RuntimeError, type(error))).category.transient


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("httpx", "TransportError"),
        ("httpx2", "TransportError"),
        ("requests.exceptions", "Timeout"),
        ("aiohttp.client_exceptions", "ClientConnectionError"),
        ("urllib3.exceptions", "ProtocolError"),
        ("botocore.exceptions", "HTTPClientError"),
        ("asyncpg.exceptions", "PostgresConnectionError"),
        ("psycopg.errors", "OperationalError"),
        ("redis.exceptions", "ConnectionError"),
        ("http.client", "IncompleteRead"),
        ("asyncio.exceptions", "IncompleteReadError"),
    ],
)
def test_network_errors_of_drivers_are_known_by_their_names(module: str, name: str) -> None:
    base = type(name, (Exception,), {"__module__": module})
    error = type("Special", (base,), {"__module__": "shop.errors"})("cut")
    assert classify_exception(error).category is Category.TRANSIENT_NETWORK
    stranger = type(name, (Exception,), {"__module__": "shop.errors"})("cut")
    assert classify_exception(stranger).category is Category.HANDLER_ERROR


@pytest.mark.parametrize("reason", [None, "", "name not resolved", "dns: acme.example", "d" * 33])
def test_only_a_word_of_why_it_never_left_becomes_a_code(reason: str | None) -> None:
    assert classify_exception(errors.NotSentError("it did not leave", reason=reason)).code == "not_sent"


@pytest.mark.parametrize("cls", errors.all_errors(), ids=lambda cls: cls.__name__)
def test_each_error_of_ours_has_a_category(cls: type[errors.FairleadError]) -> None:
    failure = classify_exception(cls("it failed", tenant="acme", retry_after_s=7.5))
    assert failure.code == cls.code
    assert failure.hint_s == 7.5
    assert failure.reason.startswith("it failed (tenant='acme')")
    assert failure.unclassified == (cls is errors.FairleadError)
    if cls.category is not None:
        assert failure.category == cls.category


@pytest.mark.parametrize(
    ("error", "category"),
    [
        (errors.RefusedError("x"), Category.TRANSIENT_NETWORK),
        (errors.FailedError("x"), Category.TRANSIENT_SERVER),
        (errors.NotFoundError("x"), Category.PERMANENT_REQUEST),
        (errors.SupersededError("x"), Category.PERMANENT_REQUEST),
        (errors.MigrationRequiredError("x"), Category.PERMANENT_CONFIG),
        (errors.RequestRejectedError("x", category="permanent_permission"), Category.PERMANENT_PERMISSION),
        (errors.FailedError("x", category="transient_rate_limit"), Category.TRANSIENT_RATE_LIMIT),
        (errors.FailedError("x", category="no_such_category"), Category.TRANSIENT_SERVER),
    ],
)
def test_an_instance_may_say_more_than_its_class_and_its_family_speaks_for_the_silent(
    error: errors.FairleadError, category: Category
) -> None:
    assert classify_exception(error).category is category


def test_a_failed_call_is_known_by_what_the_vendor_said() -> None:
    """Two failures of calls are told apart where dead letters are counted by code."""
    failed = [
        errors.CallFailedError("x", reason=code, category=category, retry_after_s=3.0)
        for code, category in (("http_503", "transient_server"), ("card_declined", "permanent_permission"))
    ]
    assert [classify_exception(error).code for error in failed] == ["http_503", "card_declined"]
    assert classify_exception(errors.CallFailedError("x", category="transient_server")).code == "call_failed"
    assert classify_exception(failed[1]).category is Category.PERMANENT_PERMISSION
    assert classify_exception(failed[0]).hint_s == 3.0


def test_a_days_limit_that_a_call_met_is_known_as_one() -> None:
    verdict = Verdict(Result.FAILED, "r", Step.STATUS, "w", Category.TRANSIENT_RATE_LIMIT, daily=True)
    failed = errors.CallFailedError("x", category="transient_rate_limit", retry_after_s=9e3, verdict=verdict)
    assert classify_exception(failed).daily_limit


def test_a_group_is_judged_by_its_gravest_member() -> None:
    network, limited = ConnectionResetError("cut"), errors.RateLimitedError("wait", retry_after_s=5)
    longer, needs_reauth = (
        errors.RateLimitedError("wait", retry_after_s=50),
        errors.ReauthRequiredError("gone"),
    )
    for limits in ([limited, longer], [longer, limited]):
        assert classify_exception(ExceptionGroup("g", [network, *limits])).hint_s == 50
    nested = ExceptionGroup("g", [network, ExceptionGroup("inner", [needs_reauth, limited])])
    assert classify_exception(nested).category is Category.PERMANENT_AUTH
    for leaves in ([ValueError("bug"), network], [network, ValueError("bug")]):
        assert classify_exception(ExceptionGroup("g", leaves)).code == "value_error"


def test_a_deep_group_is_no_stack_overflow() -> None:
    group: Exception = ValueError("bottom")
    for _ in range(5000):
        group = ExceptionGroup("g", [group])
    assert classify_exception(group).code == "value_error"


@pytest.mark.parametrize("status", [418, 404])
def test_a_call_that_no_rule_knew_is_flagged_and_no_other(status: int) -> None:
    verdict = classify(rules_of(load_profiles()["stripe"]), RawResponse(status, {}), now_epoch_s=0.0)
    failed = errors.CallFailedError("it failed", category=verdict.category, verdict=verdict)
    assert classify_exception(failed).unclassified is (status == 418)
    assert (
        classify_exception(errors.CallFailedError("it failed", category="transient_server")).unclassified
        is False
    )


def test_an_error_whose_text_fails_is_still_a_failure() -> None:
    class Broken(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no text")

    assert classify_exception(Broken()).reason == "Broken: <its text failed with RuntimeError>"


def test_the_reason_is_bounded_and_storable() -> None:
    reason = classify_exception(ValueError("\0\ud800" + "x" * 10_000_000)).reason
    assert len(reason.encode()) <= MAX_SAFE_BYTES
    assert "\0" not in reason
