"""The rude issuer: an OAuth 2 token endpoint that keeps the truth and can be as nasty as a real one.

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
from typing import Self

from aiohttp import web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.http_parser import RawRequestMessage
from aiohttp.streams import StreamReader
from aiohttp.web_protocol import RequestHandler

from fairlead._core.clock import Clock
from fairlead.testing._kit.clock import SystemClock
from fairlead.testing._kit.request_barrier import Hold, Hook
from fairlead.testing.issuer.authorize import AuthorizationCodes
from fairlead.testing.issuer.config import ConnectionConfig, IssuerConfig, ProviderConfig
from fairlead.testing.issuer.entries import LedgerRecorder
from fairlead.testing.issuer.flow import TokenFlow
from fairlead.testing.issuer.issuer_control import IssuerControl
from fairlead.testing.issuer.quirks import Quirk, Rule
from fairlead.testing.issuer.record import LedgerWriter
from fairlead.testing.issuer.router import RequestRouter
from fairlead.testing.issuer.state import IssuedGrant, IssuerState
from fairlead.testing.issuer.token import TokenEndpoint
from fairlead.testing.ledger import Ledger, read_ledger

_MAX_BODY_BYTES = 4 << 20  # a refresh token of 1 MiB, percent-encoded, comes back
_STOP_S = 2.0


class Issuer:
    """One running issuer. *clock* (default: the real one) times lifetimes, grace, spells and slowness;
    *hooks* are awaited at each named point of each token request. Without ``ledger`` in *config* the
    ledger is a temporary file that goes when the ``async with`` block ends."""

    def __init__(
        self, config: IssuerConfig | None = None, *, clock: Clock | None = None, hooks: Iterable[Hook] = ()
    ) -> None:
        self._config = config or IssuerConfig()
        self._clock = clock or SystemClock()
        self._hooks: list[Hook] = list(hooks)
        self._stopping = asyncio.Event()
        self._runner: web.ServerRunner | None = None
        self._temporary = self._config.ledger is None
        self.ledger_path = self._config.ledger or _temporary_file()
        self._file = LedgerWriter(self.ledger_path, sync=self._config.sync, monotonic=self._clock.monotonic)
        self._entries = LedgerRecorder(self._file)
        self.world = IssuerState(self._config, self._clock, self._entries)
        self._control = IssuerControl(self.world, self._hooks, self._file.flush)
        codes = AuthorizationCodes(Random(f"{self._config.seed}:codes"))
        self._endpoint = TokenEndpoint(self.world, codes)
        flow = TokenFlow(self.world, self._endpoint, self._hooks)
        self._front = RequestRouter(self.world, flow, codes, self._control, self._stopping)
        self.url = ""

    # ---- life ------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Listen; `url` is known from here on. Raises OSError when the port is taken, InvalidConfigError or
        InvalidInputError when the configuration contradicts itself; nothing is left running then."""
        try:
            await self._listen()
            self._entries.started(self.url)
            self.world.fill(self._config)
            self._file.flush()
        except BaseException:
            await self.stop()
            raise

    async def _listen(self) -> None:
        server = web.Server(self._front.handle, request_factory=self._request, access_log=None)
        self._runner = web.ServerRunner(server, shutdown_timeout=_STOP_S)
        await self._runner.setup()
        await web.TCPSite(self._runner, self._config.host, self._config.port, backlog=1024).start()
        host, port = self._runner.addresses[0][:2]
        self.url = self._front.url = self._endpoint.issuer_url = f"http://{host}:{port}"

    async def stop(self) -> None:
        """End every wait and hold, close all connections, complete the ledger. Twice is no error."""
        self._stopping.set()
        self._control.release_all()
        runner, self._runner = self._runner, None
        if runner is not None:
            await runner.cleanup()
            if self.url:
                self._entries.stopped()
        self._file.close()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()
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
        """Play one more provider, or another policy for a known one (grants keep the one they have)."""
        self.world.play(provider, config)

    def register(self, provider: str, connection: str, **fields: object) -> IssuedGrant:
        """Give a connection its first tokens; *fields* as in `ConnectionConfig`.

        A connection that is known gets a new grant (the customer consented again); the old one dies.
        """
        data = {"provider": provider, "connection": connection, **fields}
        return self.world.register(ConnectionConfig.read(data, "the connection"))

    def revoke(self, provider: str, connection: str, reason: str = "revoked") -> None:
        """The customer withdraws the grant."""
        self.world.revoke(provider, connection, reason)

    def grant(self, provider: str, connection: str) -> IssuedGrant:
        """How a connection stands: what a correct vault holds."""
        return self.world.grant(provider, connection)

    def refuse_client(self, client_id: str, on: bool = True) -> None:
        """Answer ``invalid_client`` to this client id, or stop doing so."""
        self.world.refuse_client(client_id, on)

    # ---- rudeness --------------------------------------------------------------------------------

    def be_rude(self, quirk: Quirk | str, **where: object) -> int:
        """Put a quirk (or a name of `QUIRKS`) in force; *where* as in `Rule`. Gives the rule's number."""
        rule = Rule.read({"quirk": quirk, **where}, "the rule")
        return self.world.rules.add(rule, self._clock.monotonic())

    def be_polite(self, rule: int | None = None) -> None:
        """Take one rule out of force, or (None) all of them."""
        if rule is None:
            self.world.rules.clear()
        else:
            self.world.rules.remove(rule)

    def hold(
        self, point: str, *, provider: str | None = None, connection: str | None = None, times: int = 1
    ) -> Hold:
        """Park the next *times* matching requests at *point* (arrived, processed or answering)."""
        return self._control.hold(point, provider, connection, times)[1]

    # ---- truth -----------------------------------------------------------------------------------

    def ledger(self) -> Ledger:
        """Everything recorded so far, for `fairlead.testing.ledger.judge`."""
        self._file.flush()
        return read_ledger(self.ledger_path)


def _temporary_file() -> Path:
    handle, name = tempfile.mkstemp(prefix="fairlead-issuer-", suffix=".ndjson")
    os.close(handle)
    return Path(name)
