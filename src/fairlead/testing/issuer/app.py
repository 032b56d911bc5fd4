"""The test issuer: an OAuth 2 token endpoint with quirks, which records every request in a ledger.

    config = IssuerConfig(
        providers={"mercadolibre": ProviderConfig(policy="strict", ttl_s=(6, 12), dialect="mercadolibre")}
    )
    async with Issuer(config) as issuer:
        grant = issuer.register("mercadolibre", "acme")
        issuer.be_rude("cut_after", connection="acme", times=1)
        ...  # point the code under test at f"{issuer.url}/mercadolibre/token"
        verdict = judge(issuer.ledger())

Endpoints: ``POST /{provider}/token`` and ``/{provider}/revoke``, ``POST /admin/oauth/access_token``,
``GET /{provider}/resource`` (401 for a dead access token), ``GET /{provider}/authorize``, and the
control API. As a process: ``python -m fairlead.testing.issuer`` or `IssuerProcess`.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Iterable
from pathlib import Path
from random import Random
from types import TracebackType

from aiohttp import web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.http_parser import RawRequestMessage
from aiohttp.streams import StreamReader
from aiohttp.web_protocol import RequestHandler

from fairlead._core.clock import Clock
from fairlead.testing._kit.clock import SystemClock
from fairlead.testing._kit.request_barrier import Hold, Hook
from fairlead.testing._kit.server import LocalServer
from fairlead.testing.issuer.authorize import AuthorizationCodes
from fairlead.testing.issuer.config import ConnectionConfig, IssuerConfig, ProviderConfig
from fairlead.testing.issuer.entries import LedgerRecorder
from fairlead.testing.issuer.flow import TokenFlow
from fairlead.testing.issuer.issuer_control import issuer_control
from fairlead.testing.issuer.quirks import Quirk, Rule
from fairlead.testing.issuer.record import LedgerWriter
from fairlead.testing.issuer.router import RequestRouter
from fairlead.testing.issuer.state import IssuedGrant, IssuerState
from fairlead.testing.issuer.token import TokenEndpoint
from fairlead.testing.ledger import Ledger, read_ledger

_MAX_BODY_BYTES = 4 << 20  # a refresh token of 1 MiB, percent-encoded, comes back
_STOP_S = 2.0


class Issuer(LocalServer):
    """An issuer, used by ``async with``.

    Args:
        config: Without ``ledger`` the ledger is a temporary file, removed when the ``async with`` block ends.
        clock: Times lifetimes, grace, start and end of rules, and slowness (default: the real one).
        hooks: Awaited at each named point of each token request.
    """

    def __init__(
        self, config: IssuerConfig | None = None, *, clock: Clock | None = None, hooks: Iterable[Hook] = ()
    ) -> None:
        self._config = config or IssuerConfig()
        super().__init__(self._config.host, self._config.port, hooks)
        self._clock = clock or SystemClock()
        self._temporary = self._config.ledger is None
        self.ledger_path = self._config.ledger or _temporary_file()
        self._file = LedgerWriter(self.ledger_path, sync=self._config.sync, monotonic=self._clock.monotonic)
        self._recorder = LedgerRecorder(self._file)
        self.state = IssuerState(self._config, self._clock, self._recorder)
        codes = AuthorizationCodes(Random(f"{self._config.seed}:codes"))
        self._endpoint = TokenEndpoint(self.state, codes)
        flow = TokenFlow(self.state, self._endpoint, self._barriers)
        control = issuer_control(self.state, self._barriers, self._file.flush)
        self._router = RequestRouter(self.state, flow, codes, control, self._stopping)

    # ---- life ------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Listen, and register what the configuration names.

        Raises:
            OSError: The port is taken.
            InvalidConfigError, InvalidInputError: The configuration contradicts itself; nothing is left running.
        """
        try:
            await super().start()
            self._router.url = self._endpoint.issuer_url = self.url
            self._recorder.started(self.url)
            self.state.fill(self._config)
            self._file.flush()
        except BaseException:
            await self.stop()
            raise

    def _make_runner(self) -> web.ServerRunner:
        server = web.Server(self._router.handle, request_factory=self._request, access_log=None)
        return web.ServerRunner(server, shutdown_timeout=_STOP_S)

    async def stop(self) -> None:
        """End every wait and hold, close all connections, complete the ledger. A second call does nothing."""
        was_running = self._runner is not None and bool(self.url)
        await super().stop()
        if was_running:
            self._recorder.stopped()
        self._file.close()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await super().__aexit__(kind, error, trace)
        if self._temporary:
            self.ledger_path.unlink(missing_ok=True)

    @staticmethod
    def _request(
        message: RawRequestMessage,
        payload: StreamReader,
        protocol: RequestHandler,
        writer: AbstractStreamWriter,
        task: asyncio.Task[None],
    ) -> web.BaseRequest:
        loop = asyncio.get_running_loop()
        return web.BaseRequest(
            message, payload, protocol, writer, task, loop, client_max_size=_MAX_BODY_BYTES
        )

    # ---- grants ----------------------------------------------------------------------------------

    def play(self, provider: str, config: ProviderConfig) -> None:
        """Add a provider, or change its configuration; existing grants keep their policy."""
        self.state.play(provider, config)

    def register(self, provider: str, connection: str, **fields: object) -> IssuedGrant:
        """Give a connection its first tokens; *fields* as in `ConnectionConfig`.

        A known connection gets a new grant, as after a second consent, and its old grant is revoked.
        """
        data = {"provider": provider, "connection": connection, **fields}
        return self.state.register(ConnectionConfig.read(data, "the connection"))

    def revoke(self, provider: str, connection: str, reason: str = "revoked") -> None:
        """Withdraw the customer's grant."""
        self.state.revoke(provider, connection, reason)

    def grant(self, provider: str, connection: str) -> IssuedGrant:
        """Return the state of a connection, which a correct vault agrees with."""
        return self.state.grant(provider, connection)

    def refuse_client(self, client_id: str, on: bool = True) -> None:
        """Answer ``invalid_client`` to this client id, or stop doing so."""
        self.state.refuse_client(client_id, on)

    # ---- faults ----------------------------------------------------------------------------------

    def be_rude(self, quirk: Quirk | str, **where: object) -> int:
        """Put a quirk, or a name of `QUIRKS`, in force and return the rule's number; *where* as in `Rule`."""
        rule = Rule.read({"quirk": quirk, **where}, "the rule")
        return self.state.rules.add(rule, self._clock.monotonic())

    def be_polite(self, rule: int | None = None) -> None:
        """Remove one rule, or all of them (None)."""
        if rule is None:
            self.state.rules.clear()
        else:
            self.state.rules.remove(rule)

    def hold(
        self, point: str, *, provider: str | None = None, connection: str | None = None, times: int = 1
    ) -> Hold:
        """Park the next *times* matching requests at *point* (arrived, processed or answering)."""
        return self._barriers.hold(point, provider, connection, times)[1]

    # ---- ledger ----------------------------------------------------------------------------------

    def ledger(self) -> Ledger:
        """Return everything recorded so far, for `fairlead.testing.ledger.judge`."""
        self._file.flush()
        return read_ledger(self.ledger_path)


def _temporary_file() -> Path:
    handle, name = tempfile.mkstemp(prefix="fairlead-issuer-", suffix=".ndjson")
    os.close(handle)
    return Path(name)
