"""The table of what each response, outcome or fault may stop.

    a report of one connection, account or process stops only that one
    a shared thing closes only after `QUORUM` reports of its kind, without one to the contrary between them
    a fleet of one never closes a shared thing, because its own back-off is enough

The engine and the stores act on a `Reach`; nothing else decides what is stopped.
docs/explanation/blast-radius.md shows the table. Spec: R50.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from types import MappingProxyType
from typing import TYPE_CHECKING

from fairlead import errors
from fairlead.policy.calls.classify.verdict import LimitScope, Verdict
from fairlead.policy.failures.category import Category
from fairlead.policy.limits.breaker import DestinationHealth

if TYPE_CHECKING:
    from fairlead.policy.tokens.outcome import TokenOutcome

QUORUM = 2
"""How many connections, hosts or processes must agree before something shared closes."""


class LocalReach(StrEnum):
    """What stops at the connection, job or process that met it."""

    NOTHING = "nothing"
    ATTEMPT = "this attempt"
    CONNECTION = "this connection, for its back-off"
    ROUTE = "this connection at this host, once its breaker has counted enough"
    ROUTE_HERE = "this connection at this host in this process; in all once 2 processes agree"
    LIMIT = "this connection's group of jobs, and its account's limit"
    GRANT = "this connection, until its customer reconnects"
    PROCESS = "this process"


class Shared(StrEnum):
    """The shared things that may close."""

    NOTHING = "nothing"
    HOST = "the token endpoint of this host"
    RATE = "the app's rate at the token endpoint"
    APP = "the app at this host; the whole app once it is closed at as many hosts"


@dataclass(frozen=True, slots=True)
class Reach:
    """What an outcome or error stops.

    Attributes:
        local: What stops at once at the connection, job or process that met it.
        shared: What closes to others once `QUORUM` of its kind agree.
        lifts: The shared closures that this contradicts, and ends.
        by_process: Whether the process itself may be at fault, so that as many processes must agree, too.
    """

    local: LocalReach
    shared: Shared = Shared.NOTHING
    lifts: frozenset[Shared] = frozenset()
    by_process: bool = False

    @property
    def backs_off(self) -> bool:
        """Whether the connection waits before its next refresh."""
        return self.local is LocalReach.CONNECTION


_ANSWERED = frozenset({Shared.HOST})
_HOST_DOWN = Reach(LocalReach.CONNECTION, Shared.HOST)
_REFUSED = Reach(LocalReach.ATTEMPT, lifts=_ANSWERED)
_NOTHING, _ATTEMPT, _LIMIT = Reach(LocalReach.NOTHING), Reach(LocalReach.ATTEMPT), Reach(LocalReach.LIMIT)
_GRANT, _PROCESS = Reach(LocalReach.GRANT), Reach(LocalReach.PROCESS)

OWN_FAULT = _PROCESS
"""A fault of this process: out of descriptors, its resolver, its proxy."""

NEVER_SENT = _NOTHING
"""A permit without a sent request, for a reason of ours: a lost claim, an unavailable database."""
GRANTED = Reach(LocalReach.NOTHING, lifts=frozenset({Shared.HOST, Shared.RATE, Shared.APP}))
"""A token was given: its endpoint and its app are well."""

TOKEN: Mapping[str, Reach] = MappingProxyType(
    {
        "granted": GRANTED,
        "not_processed.transient_rate_limit": Reach(LocalReach.CONNECTION, Shared.RATE, _ANSWERED),
        "not_processed.transient_server": _HOST_DOWN,
        "transient_failure.transient_server": _HOST_DOWN,
        "transient_failure.transient_network": Reach(LocalReach.CONNECTION, lifts=_ANSWERED),
        "rejected.permanent_auth": Reach(LocalReach.GRANT, lifts=_ANSWERED),
        "rejected.permanent_config": _REFUSED,
        "rejected.permanent_permission": _REFUSED,
        "rejected.permanent_request": _REFUSED,
        "rejected.permanent_config.client": Reach(LocalReach.CONNECTION, Shared.APP, _ANSWERED),
        "unknown": _HOST_DOWN,
        "not_sent": Reach(LocalReach.CONNECTION, Shared.HOST, by_process=True),
        "not_sent.process": OWN_FAULT,
    }
)
"""Outcomes of a token request: class, category, and "client" where the client itself was refused,
"process" where the fault is the process's own."""

CALL: Mapping[Category | LimitScope | DestinationHealth, Reach] = MappingProxyType(
    {
        **dict.fromkeys(Category, _ATTEMPT),  # permanent_auth as well: only the token endpoint ends a grant
        Category.TRANSIENT_RATE_LIMIT: _LIMIT,
        LimitScope.CONNECTION: _LIMIT,
        LimitScope.DAY: _LIMIT,
        LimitScope.ENDPOINT: _ATTEMPT,
        LimitScope.OBJECT: _ATTEMPT,
        DestinationHealth.NEUTRAL: _NOTHING,
        DestinationHealth.HEALTHY: _NOTHING,
        DestinationHealth.RESPONDING: _NOTHING,
        DestinationHealth.UNHEALTHY: Reach(LocalReach.ROUTE),
        DestinationHealth.UNREACHED: Reach(LocalReach.ROUTE_HERE, by_process=True),
    }
)
"""Failed calls by category, or by the scope of the limit that refused; what an attempt says of its host."""

ERROR: Mapping[type[errors.FairleadError], Reach] = MappingProxyType(
    {
        errors.LimitExceededError: _LIMIT,
        **dict.fromkeys(
            (errors.ReauthRequiredError, errors.NoRefreshTokenError, errors.AccountMismatchError), _GRANT
        ),
        **dict.fromkeys(
            (errors.MasterKeyMissingError, errors.MasterKeyMismatchError, errors.MigrationRequiredError),
            _PROCESS,
        ),
        errors.MasterKeyElsewhereError: _PROCESS,
    }
)
"""What raising one of our errors stops, where it is more than this attempt; its response has a row above."""


def of_token(outcome: TokenOutcome) -> Reach:
    """Return what *outcome* of a token request stops."""
    return TOKEN[token_row(outcome)]


def token_row(outcome: TokenOutcome) -> str:
    """Return the key of *outcome* in `TOKEN`."""
    words = [_row_of(type(outcome).__name__)]
    words += [str(word) for word in (getattr(outcome, "category", None),) if word]
    words += [scope for scope in (getattr(outcome, "scope", None),) if scope in ("client", "process")]
    return ".".join(words)


@cache
def _row_of(kind: str) -> str:
    return "".join(f"_{sign.lower()}" if sign.isupper() else sign for sign in kind)[1:]


def of_call(verdict: Verdict) -> Reach:
    """Return what a failed call stops, by the limit that refused it, or else by its category."""
    word = verdict.scope or verdict.category
    return _NOTHING if word is None else CALL[word]


def of_error(error: errors.FairleadError) -> Reach:
    """Return what *error* stops."""
    return ERROR.get(type(error), _ATTEMPT)
