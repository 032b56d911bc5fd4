"""The lines of the ledger, with one method for each event.

    started    url, pid, wall (seconds since 1970, to relate t to other logs)
    family     change: registered | reconnected | authorized | revoked; policy, grace_s; reason
    arrived    req, presented generation, left_s (remaining life of its access token), client_id; and where
               they apply: at (revoke), grant (other than refresh_token), query (the URL has a query),
               incomplete (the body never came)
    processed  kind: rotated | minted | replayed | unchanged | refused; successor; reason
    reuse      a spent token was presented although the policy forbids it
    burnt      generation lost for good; cause: replay | lost_answer
    answered   status (absent: none), delivered (its last byte went to an open connection), tokens (it had the
               new tokens, complete); every arrived line has one, unless the issuer was killed
    resource   status, why: live | expired | revoked | unknown; late_s
    stray      a request to a path that does not exist (a client that followed a redirect)
    stopped    a clean end

The ledger contains generations, never tokens or secrets.
"""

from __future__ import annotations

import os
import time
from typing import Protocol

from fairlead.testing.issuer.families import Access, Family, RefreshGranted, RefreshRefused
from fairlead.testing.issuer.token_request import TokenRequestInfo


class LineSink(Protocol):
    """A file (record.LedgerWriter) or a list that takes lines."""

    def write(self, ev: str, **fields: object) -> None:
        """Add one line. Fields that are None are left out."""
        ...


class LedgerRecorder:
    """The writer of events to *sink*."""

    def __init__(self, sink: LineSink) -> None:
        self._write = sink.write

    def started(self, url: str) -> None:
        """Record that the issuer is ready."""
        self._write("started", url=url, pid=os.getpid(), wall=round(time.time(), 3))

    def stopped(self) -> None:
        """Record that the issuer ends by itself."""
        self._write("stopped")

    def registered(self, family: Family, change: str) -> None:
        """Record that a grant got its first tokens."""
        self._write(
            "family",
            provider=family.provider,
            connection=family.connection,
            generation=family.current.number,
            change=change,
            policy=family.rules.policy.value,
            grace_s=family.rules.grace_s or None,
        )

    def revoked(self, family: Family, reason: str, request: int | None = None) -> None:
        """Record that a grant was revoked."""
        self._write(
            "family",
            req=request,
            provider=family.provider,
            connection=family.connection,
            generation=family.current.number,
            change="revoked",
            reason=reason,
        )

    def arrived(self, token_request: TokenRequestInfo, now: float, *, query: bool, complete: bool) -> None:
        """Record a request before it is processed."""
        generation = token_request.generation
        self._write(
            "arrived",
            req=token_request.number,
            provider=token_request.provider,
            connection=token_request.connection,
            generation=token_request.presented,
            left_s=None if generation is None else round(generation.access.expires_at - now, 3),
            client_id=token_request.client_id,
            at=None if token_request.endpoint == "token" else token_request.endpoint,
            grant=None if token_request.grant_type == "refresh_token" else token_request.grant_type,
            query=query or None,
            incomplete=None if complete else True,
        )

    def processed(self, token_request: TokenRequestInfo, outcome: RefreshGranted | RefreshRefused) -> None:
        """Record what became of the presented token."""
        where = {
            "req": token_request.number,
            "provider": token_request.provider,
            "connection": token_request.connection,
            "generation": token_request.presented,
        }
        if isinstance(outcome, RefreshGranted):
            successor = None if outcome.successor is None else outcome.successor.number
            self._write("processed", **where, kind=outcome.kind, successor=successor)
            return
        self._write("processed", **where, kind="refused", reason=outcome.reason)
        if outcome.reuse:
            self._write("reuse", **where)
        if outcome.family_revoked and outcome.family is not None:
            self.revoked(outcome.family, "replay", token_request.number)
        if outcome.burnt is not None:
            self._write("burnt", **{**where, "generation": outcome.burnt}, cause="replay")

    def answered(
        self,
        token_request: TokenRequestInfo,
        *,
        status: int | None,
        delivered: bool,
        granted: RefreshGranted | None,
        complete: bool,
    ) -> None:
        """Record the response; *complete*: the granted tokens were in it."""
        tokens = None if granted is None else delivered and complete
        self._write(
            "answered",
            req=token_request.number,
            provider=token_request.provider,
            connection=token_request.connection,
            generation=token_request.presented,
            status=status,
            delivered=delivered,
            tokens=tokens,
        )
        if granted is None or tokens or granted.successor is None or granted.family.rules.policy.forgives:
            return
        self._write(
            "burnt",
            req=token_request.number,
            provider=token_request.provider,
            connection=token_request.connection,
            generation=token_request.presented,
            cause="lost_answer",
        )

    def resource(self, provider: str, access: Access | None, *, why: str, status: int, now: float) -> None:
        """Record the use of an access token."""
        self._write(
            "resource",
            provider=provider,
            connection=None if access is None else access.family.connection,
            status=status,
            why=why,
            late_s=round(now - access.expires_at, 3) if access is not None and why == "expired" else None,
        )

    def stray(self, method: str, path: str) -> None:
        """Record a request for an unknown path."""
        self._write("stray", method=method, path=path[:200])
