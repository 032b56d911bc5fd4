"""A text is searched for the very secrets that this process holds, in the spellings that others give them."""

from __future__ import annotations

import base64
import copy
import html
import json
import logging
import pickle
import time
import traceback
from collections.abc import Callable
from urllib.parse import quote, quote_plus
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import SecretStr

from fairlead._core.known_secrets import KNOWN_SECRETS, MOST, KnownSecrets
from fairlead._core.secret import Secret
from fairlead.adapters.postgres.job_rows import failure_text
from fairlead.adapters.vault.master import load_keyring
from fairlead.assembly.logs import LogHandler, _EventMessage, line_of
from fairlead.assembly.settings import DatabaseTable, ProviderAppTable
from fairlead.engine.ports import FailureRecord
from fairlead.errors import CallFailedError
from fairlead.events import TokenRefreshFailed
from fairlead.policy.calls.classify.classifier import classify
from fairlead.policy.calls.classify.rules import rules_of
from fairlead.policy.limits.feedback.raw_response import RawResponse
from fairlead.policy.providers.profile_load import load_profiles
from fairlead.policy.text.redact import redact
from fairlead.policy.text.safe import safe_text
from fairlead.policy.tokens.request import OAuthClient, code_request, token_request

SECRETS = {
    "letters": "kdjfhgkjsdhfgkjhsdkfjgh",
    "capital letters": "KDJFHGKJSDHFGKJHSDKFJGH",
    "digits": "48151623421234567890123456",
    "words": "correct-horse-battery-staple",
    "a sentence": "open sesame & goodbye",
    "short": "Zx9QpL2m",
    "no ASCII": "contraseña/ñandú+1",
}


def _base64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


SPELLINGS: dict[str, Callable[[str], str]] = {
    "as it is": str,
    "percent": lambda text: quote(text, safe=""),
    "a form's percent": quote_plus,
    "percent twice": lambda text: quote(quote(text, safe=""), safe=""),
    "every byte in percent": lambda text: "".join(f"%{byte:02X}" for byte in text.encode()),
    "every byte in lower percent": lambda text: "".join(f"%{byte:02x}" for byte in text.encode()),
    "base64": _base64,
    "base64url": lambda text: base64.urlsafe_b64encode(text.encode()).decode().rstrip("="),
    "base64 of user and password": lambda text: _base64(f"an app:{text}"),
    "base64 of percent": lambda text: _base64(f"app:{quote_plus(text)}"),
    "base64 in JSON of PHP": lambda text: _base64(text).replace("/", "\\/"),
    "JSON": json.dumps,
    "JSON in JSON": lambda text: json.dumps(json.dumps(text)),
    r"\u": lambda text: "".join(f"\\u{ord(sign):04X}" for sign in text),
    r"\u{}": lambda text: "".join(f"\\u{{{ord(sign):x}}}" for sign in text),
    r"\U": lambda text: "".join(f"\\U{ord(sign):08x}" for sign in text),
    "octal": lambda text: "".join(f"\\{byte:03o}" for byte in text.encode()),
    r"\x": lambda text: "".join(f"\\x{byte:02x}" for byte in text.encode()),
    "HTML": html.escape,
    "HTML, decimal": lambda text: "".join(f"&#{ord(sign)};" for sign in text),
    "HTML, hex": lambda text: "".join(f"&#x{ord(sign):X};" for sign in text),
    "hex": lambda text: text.encode().hex(),
    "HEX": lambda text: text.encode().hex().upper(),
}


@pytest.mark.parametrize("spelling", SPELLINGS.values(), ids=SPELLINGS)
@pytest.mark.parametrize("secret", SECRETS.values(), ids=SECRETS)
def test_known_secrets_are_masked_in_every_spelling(secret: str, spelling: Callable[[str], str]) -> None:
    told = spelling(secret)
    core = told.strip('"\\')
    held = Secret(secret)
    for before, after in (("", ""), ("the key ", " is bad"), ("<b>&lt;%41\\n ñ ", '"} \\u0041')):
        shown = KNOWN_SECRETS.masked(f"{before}{told}{after}")
        assert core not in shown
        assert shown.startswith(before)
        assert shown.endswith(after)
    assert held


@pytest.mark.parametrize("shift", range(4))
def test_a_secret_is_found_in_base64_wherever_its_run_begins(shift: int) -> None:
    Secret("correct-horse-battery-staple")
    assert (
        KNOWN_SECRETS.masked(f"/x{'y' * shift}{_base64('correct-horse-battery-staple').rstrip('=')}zz")
        == "***"
    )


def test_upper_and_lower_case_are_one() -> None:
    Secret("correct-horse-battery-staple")
    assert KNOWN_SECRETS.masked("CORRECT-Horse-battery-staple") == "***"


def test_secret_under_eight_characters_is_not_masked() -> None:
    Secret("token12")
    Secret("token123")
    assert KNOWN_SECRETS.masked("token12 token123") == "token12 ***"


@given(st.text(max_size=40), st.text(min_size=8, max_size=40), st.text(max_size=40))
def test_text_without_a_secret_stays(before: str, secret: str, after: str) -> None:
    known = KnownSecrets()
    known.add(secret)
    shown = known.masked(f"{before}{secret}{after}")
    assert secret not in shown or secret in f"{before}***{after}"
    assert KnownSecrets().masked(f"{before}{secret}{after}") == f"{before}{secret}{after}"


def test_the_oldest_secrets_are_forgotten_and_the_newest_half_is_known() -> None:
    known = KnownSecrets(most=100)
    for number in range(1000):
        known.add(f"secret-number-{number:04}")
    assert known.masked("secret-number-0000") == "secret-number-0000"
    assert {known.masked(f"secret-number-{number:04}") for number in range(950, 1000)} == {"***"}


def test_secrets_of_the_settings_are_never_forgotten_nor_is_the_password_of_a_url() -> None:
    DatabaseTable(url=SecretStr("postgresql://app:hunter%2Fphrase@db/x?ssl=require"))
    ProviderAppTable(client_secret=SecretStr("correcthorsebattery"))
    load_keyring(Secret(f"k1:{'0123456789abcdef' * 4}"))
    for number in range(MOST + 1):
        Secret(f"{number:08}")
    for told in ("hunter/phrase", "hunter%2Fphrase", "correcthorsebattery", "0123456789ABCDEF" * 4):
        assert KNOWN_SECRETS.masked(f"it says {told} is bad") == "it says *** is bad"
    DatabaseTable(url=SecretStr("postgresql://postgres:postgres@db/x"))
    assert KNOWN_SECRETS.masked("postgres is away") == "postgres is away", "a word that its URL repeats"


@pytest.mark.parametrize(
    "pump", ["correct-horse-battery-stapl ", "aaaaaaaa", "eyJ-", "%41", "\\\\", "&#97;", "QUFB"]
)
def test_masking_takes_time_that_grows_with_the_text_alone(pump: str) -> None:
    for length in range(8, 300):
        Secret("a" * length + "b")  # all alike in the middle, all different
    Secret("correct-horse-battery-staple")
    took = []
    for size in (20_000, 80_000):
        text = pump * (size // len(pump))
        began = time.process_time()
        redact(text)
        took.append(time.process_time() - began)
    assert took[1] < 12 * took[0] + 0.05


def test_a_text_that_is_made_to_be_compared_too_often_is_masked_whole() -> None:
    known = KnownSecrets()
    for length in range(20_000, 20_100):
        known.add("a" * length + "b")
    assert max(map(len, known._new.values())) <= 2 * 65, "of secrets alike only the newest are looked for"
    assert known.masked("a" * 1000) == "a" * 1000
    assert known.masked("a" * 30_000) == "***"


def test_errors_and_stored_texts_hold_no_known_secret() -> None:
    Secret("hunterpassphrase")
    error = CallFailedError("it says hunterpassphrase")
    assert "hunter" not in f"{error} {error!r} {vars(error)} {safe_text(ValueError('hunterpassphrase'))}"


def test_a_key_that_is_a_word_of_ours_hides_no_code_and_changes_no_decision() -> None:
    words = (
        "backed_off",
        "may_have_acted",
        "REQUEST_LIMIT_EXCEEDED",
        "token_refresh_failed",
        "globex-corp",
        "transient_server",
    )
    event = TokenRefreshFailed(
        "globex-corp", "xero", "b", UUID(int=1), "may_have_acted", words[-1], "backed_off"
    )
    record = logging.LogRecord("fairlead", logging.WARNING, "", 0, _EventMessage(event), (), None)
    before = LogHandler(json.dumps, lambda line: None).text_of(line_of(record))
    for word in words:
        Secret(word)
    assert LogHandler(json.dumps, lambda line: None).text_of(line_of(record)) == before
    assert CallFailedError("no", reason="backed_off").reason == "backed_off"
    record_of_job = FailureRecord("transient_server", "may_have_acted", "no", 0.1, 1, None)
    assert json.loads(failure_text(record_of_job))["code"] == "may_have_acted"
    reply = RawResponse(400, {}, {"code": "REQUEST_LIMIT_EXCEEDED"})
    assert (
        classify(rules_of(load_profiles()["xero"]), reply, now_epoch_s=None).code == "REQUEST_LIMIT_EXCEEDED"
    )


def test_a_secret_that_a_provider_gives_for_its_code_is_no_code() -> None:
    Secret("correcthorsebattery")
    reply = RawResponse(
        400, {}, {"errors": [{"message": "no", "extensions": {"code": "correcthorsebattery"}}], "data": None}
    )
    assert classify(rules_of(load_profiles()["shopify"]), reply, now_epoch_s=None).code == "http_400"


def test_a_failed_call_leaves_its_answer_behind_when_it_is_pickled() -> None:
    error = CallFailedError("no", response=["the key"], raw_response=["the key"], attempts=3, tenant="acme")
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), again.attempts, again.response, again.raw_response) == (str(error), 3, None, None)


def test_serialisers_get_no_state_of_a_secret() -> None:
    secret = Secret("hunterpassphrase")
    assert secret.__getstate__() is None
    assert copy.deepcopy([secret])[0] is secret


def test_frames_on_the_way_to_a_token_request_hold_no_secret_in_clear() -> None:
    code, secret = Secret("the-code-in-clear"), Secret("the-secret-in-clear")
    profile, client = load_profiles()["mercadolibre"], OAuthClient("app\n", secret)
    builds: list[Callable[[], object]] = [
        lambda: code_request(
            profile, {}, client, code=code, redirect_uri="https://a.example/", code_verifier=code
        ),
        lambda: token_request(profile, {}, client, refresh_token=code),
        lambda: token_request(
            profile, {}, OAuthClient("app", Secret("the-secret-in-clear\n")), refresh_token=code
        ),
    ]
    for build in builds:
        with pytest.raises(Exception, match="line break") as caught:
            build()
        frames = traceback.TracebackException.from_exception(caught.value, capture_locals=True)
        assert "in-clear" not in "".join(frames.format())
