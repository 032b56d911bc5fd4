"""The lines of the ledger: one method per event, so that the format can be read in one place.

    started    url, pid, wall (seconds since 1970, to relate t to other logs)
    family     change: registered | reconnected | authorized | revoked; policy, grace_s; reason
    arrived    req, generation presented, left_s (life left in the access token that came with it),
               client_id; and where they apply: at (revoke), grant (other than refresh_token),
               query (something stood in the URL), incomplete (the body never came)
    processed  kind: rotated | minted | replayed | unchanged | refused; successor; reason
    reuse      a spent token came back where the policy forbids it
    burnt      generation lost for good; cause: replay | lost_answer
    answered   status (absent: none), delivered (its last byte went to an open connection), tokens (the
               new tokens were in it, whole); every arrived line has one, unless the issuer was killed
    resource   status, why: live | expired | revoked | unknown; late_s
    stray      a request to a path that does not exist (a client that followed a redirect)
    stopped    a clean end

Tokens and secrets never stand in the ledger; generations do.
"""

from __future__ import annotations

import os
import time
from typing import Protocol

from fairlead.testing.issuer.families import Access, Family, RefreshGranted, RefreshRefused
from fairlead.testing.issuer.token_request import TokenRequestInfo


class LineSink(Protocol):
    """Where lines go: a file (record.LedgerWriter), or a list."""

    def write(self, ev: str, **fields: object) -> None:
        """Add one line. Fields that are None are left out."""
        ...


class LedgerRecorder:
    """Writes each event to *file*."""

    def __init__(self, file: LineSink) -> None:
        self._file = file
        self._write = file.write

    def started(self, url: str) -> None:
        """The issuer is ready."""
        self._write("started", url=url, pid=os.getpid(), wall=round(time.time(), 3))

    def stopped(self) -> None:
        """The issuer ends by itself."""
        self._write("stopped")

    def begun(self, family: Family, change: str) -> None:
        """A grant got its first tokens."""
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
        """A grant died."""
        self._write(
            "family",
            req=request,
            provider=family.provider,
            connection=family.connection,
            generation=family.current.number,
            change="revoked",
            reason=reason,
        )

    def arrived(self, visit: TokenRequestInfo, now: float, *, query: bool, complete: bool) -> None:
        """A request is here; nothing was done with it yet."""
        generation = visit.generation
        self._write(
            "arrived",
            req=visit.number,
            provider=visit.provider,
            connection=visit.connection,
            generation=visit.presented,
            left_s=None if generation is None else round(generation.access.expires_at - now, 3),
            client_id=visit.client_id,
            at=None if visit.endpoint == "token" else visit.endpoint,
            grant=None if visit.grant_type == "refresh_token" else visit.grant_type,
            query=query or None,
            incomplete=None if complete else True,
        )

    def processed(self, visit: TokenRequestInfo, outcome: RefreshGranted | RefreshRefused) -> None:
        """The token was presented; this is what became of it."""
        where = {
            "req": visit.number,
            "provider": visit.provider,
            "connection": visit.connection,
            "generation": visit.presented,
        }
        if isinstance(outcome, RefreshGranted):
            successor = None if outcome.successor is None else outcome.successor.number
            self._write("processed", **where, kind=outcome.kind, successor=successor)
            return
        self._write("processed", **where, kind="refused", reason=outcome.reason)
        if outcome.reuse:
            self._write("reuse", **where)
        if outcome.family_revoked and outcome.family is not None:
            self.revoked(outcome.family, "replay", visit.number)
        if outcome.burnt is not None:
            self._write("burnt", **{**where, "generation": outcome.burnt}, cause="replay")

    def answered(
        self,
        visit: TokenRequestInfo,
        *,
        status: int | None,
        delivered: bool,
        granted: RefreshGranted | None,
        whole: bool,
    ) -> None:
        """The issuer is done with the request. *whole*: what was granted stood in the answer."""
        tokens = None if granted is None else delivered and whole
        self._write(
            "answered",
            req=visit.number,
            provider=visit.provider,
            connection=visit.connection,
            generation=visit.presented,
            status=status,
            delivered=delivered,
            tokens=tokens,
        )
        if granted is None or tokens or granted.successor is None or granted.family.rules.policy.forgives:
            return
        self._write(
            "burnt",
            req=visit.number,
            provider=visit.provider,
            connection=visit.connection,
            generation=visit.presented,
            cause="lost_answer",
        )

    def resource(self, provider: str, access: Access | None, *, why: str, status: int, now: float) -> None:
        """Somebody used an access token."""
        self._write(
            "resource",
            provider=provider,
            connection=None if access is None else access.family.connection,
            status=status,
            why=why,
            late_s=round(now - access.expires_at, 3) if access is not None and why == "expired" else None,
        )

    def stray(self, method: str, path: str) -> None:
        """A request the issuer has no page for."""
        self._write("stray", method=method, path=path[:200])
