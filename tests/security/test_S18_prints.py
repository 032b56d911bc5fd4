"""S18, S13: nothing that holds a secret, or what a stranger said, shows it when it is printed.

Every type of the product is looked at, so that a new field is shown on purpose or not at all.
"""

from __future__ import annotations

import dataclasses
import importlib
import json
import pickle
import pkgutil
import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from functools import cache
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import SecretStr

import fairlead
from fairlead._core.secret import Secret
from fairlead.adapters.http.exchange import RawRequest
from fairlead.adapters.postgres.connection_setup import DatabaseSettings
from fairlead.assembly.settings import (
    DatabaseTable,
    NotificationsTable,
    ProviderAppTable,
    RedisTable,
    Settings,
    VaultTable,
)
from fairlead.engine.calls.request import Call, CallResult
from fairlead.engine.ports import ConnectionKey, HttpRequest, HttpResponse, TokenCall, Webhook
from fairlead.engine.tokens.connection_grant import Grant
from fairlead.policy.calls.classify.verdict import Result, Step, Verdict
from fairlead.policy.limits.feedback.raw_response import RawResponse
from fairlead.policy.providers.pagination import PageRequest
from fairlead.policy.providers.profile_load import load_profiles
from fairlead.policy.tokens.outcome import Granted, classify_token_response
from fairlead.policy.tokens.parse import parse_token_response
from fairlead.policy.tokens.token import TokenSet, merge, sanitise

CANARY = "canary-9f2c71"
VERDICT = Verdict(Result.OK, "status 200", Step.STATUS, "it was done")

# What a field is called that holds a secret in clear, or words of a stranger, or of a user.
_TELLING = re.compile(
    r"(^|_)(secret|password|dsn|url|verifier|body|headers|text|content|raw|form|fields|plain|variables)$"
)
_CLEAR = ("str", "bytes", "object", "Any", "Mapping", "Sequence", "dict")
# Data that ships, or that users write in files.
_PROFILES = ("policy.providers.profile", "policy.providers.call_settings")
SHOWN: Mapping[str, str] = {
    "adapters.embedded.layout.Endpoints.database_url": "a socket of this machine; it has no password",
    "adapters.embedded.layout.Endpoints.redis_url": "a socket of this machine; it has no password",
    "adapters.postgres.migration_files.Migration.text": "a statement of ours",
    "assembly.config.Config.unknown_variables": "names of variables, never their values",
    "adapters.postgres.statements.Statement.text": "a statement of ours",
    "adapters.redis.scripts.Script.text": "a script of ours",
    "engine.ports.sending.TokenCall.url": "an address of the profile: secrets never stand in it (S29)",
    "policy.reasons.reason.Reason.text": "a sentence of ours about the code",
    "policy.tokens.request.TokenRequest.url": "an address of the profile: secrets never stand in it (S29)",
}


@cache
def types() -> dict[str, type]:
    """Every type of the product by its full name. What stands in fairlead.testing plays strangers."""
    types_by_name: dict[str, type] = {}
    for module in pkgutil.walk_packages(fairlead.__path__, "fairlead."):
        if not module.name.endswith("__main__") and not module.name.startswith("fairlead.testing"):
            for thing in vars(importlib.import_module(module.name)).values():
                if isinstance(thing, type) and thing.__module__ == module.name:
                    types_by_name[f"{module.name.removeprefix('fairlead.')}.{thing.__qualname__}"] = thing
    return types_by_name


def shown_fields(kind: type) -> Iterator[tuple[str, str]]:
    """Names and types of the fields that *kind* prints."""
    if dataclasses.is_dataclass(kind) and kind.__dataclass_params__.repr:
        yield from ((field.name, str(field.type)) for field in dataclasses.fields(kind) if field.repr)
    elif issubclass(kind, tuple) and hasattr(kind, "_fields") and "__repr__" not in vars(kind):
        yield from ((name, str(kind.__annotations__[name])) for name in kind._fields)
    elif hasattr(kind, "model_fields"):
        yield from ((name, str(field.annotation)) for name, field in kind.model_fields.items())


def telling(kinds: Mapping[str, type]) -> set[str]:
    """The fields that would show what they should not."""
    return {
        f"{name}.{field}"
        for name, kind in kinds.items()
        for field, of_type in shown_fields(kind)
        if _TELLING.search(field) and any(word in of_type for word in _CLEAR) and "Secret" not in of_type
    }


def test_S18_no_type_prints_what_it_should_not() -> None:
    names = {name for name in telling(types()) if not name.startswith(_PROFILES)}
    assert names - set(SHOWN) == set(), "say repr=False, hold a Secret, or say in SHOWN why it may be seen"
    assert set(SHOWN) - names == set(), "SHOWN names what is not there any more"


def test_S18_the_search_bites() -> None:
    @dataclasses.dataclass
    class Loose:
        body: bytes
        token_url: str = ""
        secret: Secret | None = None
        quiet_text: str = dataclasses.field(default="", repr=False)

    assert telling({"Loose": Loose}) == {"Loose.body", "Loose.token_url"}


def holders() -> Iterator[Any]:
    """One of each type that holds secrets, filled with canaries."""
    secret, raw, headers = Secret(CANARY), CANARY.encode(), {"authorization": (CANARY,)}
    key = ConnectionKey("acme", "shopify")
    answer, reply = HttpResponse(200, headers, raw, 0.1), RawResponse(200, headers, {"t": CANARY}, CANARY)
    url = f"https://api.example/{CANARY}"
    yield from (secret, answer, reply, CallResult(answer, reply, VERDICT, 1, 0.0))
    yield RawRequest("GET", f"/{CANARY}", f"Authorization: {CANARY}\r\n", raw)
    yield HttpRequest("GET", url, {"authorization": secret, "x": CANARY}, raw, 1.0, 1)
    yield Call(key, "GET", url, {"x": CANARY}, raw)
    yield TokenCall("https://t.example", {"a": secret}, {"f": secret}, 1.0, False)
    yield Webhook("1", "acme", None, raw)
    yield PageRequest(url, {"cursor": CANARY}, {"after": CANARY})
    yield DatabaseSettings(f"postgresql://u:{CANARY}@h/d")
    tokens = TokenSet(secret, secret, other=Secret(json.dumps({"x": CANARY})))
    yield from (tokens, sanitise(tokens), Grant(secret, secret))
    hidden = SecretStr(CANARY)
    yield Settings(
        database=DatabaseTable(url=hidden),
        redis=RedisTable(url=hidden),
        vault=VaultTable(master_key=hidden),
        notifications=NotificationsTable(webhook_url=hidden, webhook_secret=hidden),
        providers={"shopify": ProviderAppTable(client_id="id", client_secret=hidden)},
    )


@pytest.mark.parametrize("holder", list(holders()), ids=lambda holder: type(holder).__name__)
def test_S18_printing_shows_no_secret(holder: Any) -> None:
    texts = [repr(holder), str(holder), f"{holder}", f"{holder!s:>20}", "%s %r" % (holder, holder)]  # noqa: UP031
    if hasattr(holder, "model_dump_json"):
        texts += [holder.model_dump_json(), repr(holder.model_dump())]
    if dataclasses.is_dataclass(holder) and not isinstance(holder, type) and isinstance(holder, TokenSet):
        texts.append(repr(dataclasses.asdict(holder)))
    assert not [text for text in texts if CANARY in text]


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_S18_a_secret_is_not_pickled(protocol: int) -> None:
    for holder in (Secret(CANARY), TokenSet(Secret(CANARY))):
        with pytest.raises(TypeError):
            pickle.dumps(holder, protocol)


# ---- what is handed out is built new, from five names

PROFILES = load_profiles()
SECRET_NAMES = st.sampled_from(
    ["refresh_token", "Refresh_Token", "refreshToken", "client_secret", "id_token", "ID_TOKEN", "private_key",
     "assertion", "code_verifier", "password", "__class__", "__dict__", "other", "api_key", "generation "]
)  # fmt: skip
NESTED = st.recursive(
    st.just(CANARY),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(SECRET_NAMES, inner, max_size=4),
)


@given(st.dictionaries(SECRET_NAMES, NESTED, max_size=8))
def test_S18_other_fields_of_a_token_response_stay_in_the_vault(more: dict[str, object]) -> None:
    body = json.dumps({**more, "access_token": "at", "token_type": "Bearer", "expires_in": 60}).encode()
    answer = parse_token_response(200, {"content-type": ("application/json",)}, body)
    outcome = classify_token_response(PROFILES["generic_oauth2"], answer)
    if not isinstance(outcome, Granted):
        assert CANARY not in repr(outcome)
        return
    public = sanitise(merge(None, outcome, datetime.now(UTC)), 1).as_dict()
    assert set(public) == {"access_token", "token_type", "expires_at", "scope", "account_id"}
    assert CANARY not in json.dumps(public)
