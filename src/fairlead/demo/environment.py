"""The environment of the demo: a folder with its own servers, the issuer, 200 connections, two workers.

    folder > issuer > settings > servers and schema > workers > connections

Everything is in one folder and ends with the demo, in the reverse order. Your own fairlead is neither read nor
changed.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
import time
from contextlib import AsyncExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from fairlead.app import Fairlead
from fairlead.assembly.config import load
from fairlead.assembly.runtime import Runtime
from fairlead.assembly.stores import stop_servers
from fairlead.demo.demo_plan import ACCOUNTS, TENANTS, DemoAccount, DemoPlan
from fairlead.demo.profile import settings, write_settings
from fairlead.demo.worker import STOP_S, WorkerProcess
from fairlead.engine.ports import SessionView
from fairlead.errors import DependencyUnavailableError
from fairlead.testing.issuer import IssuerProcess, Policy
from fairlead.testing.ledger import Ledger

WORKERS = 2
READY_S = 60.0
ACTOR = "demo"


class DemoEnvironment:
    """Everything that runs while the demo runs; *keep* leaves the folder behind."""

    def __init__(self, plan: DemoPlan, *, keep: bool) -> None:
        self.plan = plan
        self.home = Path(tempfile.mkdtemp(prefix="fairlead-demo-"))
        self._keep = keep
        self._stack = AsyncExitStack()
        self._pem, self._public_pem = _key_pair()
        self.issuer = IssuerProcess(plan.issuer(), ledger=self.home / "ledger.ndjson", sync=True)
        self.workers: list[WorkerProcess] = []

    async def __aenter__(self) -> Self:
        try:
            if os.geteuid() == 0:  # PostgreSQL runs as another user, which must be able to enter
                self.home.chmod(0o711)
            self._stack.callback(self._remove_home)
            self._stack.push_async_callback(self.issuer.stop)
            await self.issuer.start()
            await self._open_fairlead()
        except BaseException:
            await self._stack.aclose()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.aclose()

    async def _open_fairlead(self) -> None:
        self.config_file = self.home / "fairlead.toml"
        write_settings(self.config_file, settings(self.home, self.issuer.url))
        config = load({}, self.config_file)
        self._stack.push_async_callback(asyncio.to_thread, stop_servers, config.settings)
        self.fairlead = Fairlead(config)
        await self._stack.enter_async_context(self.fairlead)
        self._stack.push_async_callback(self._end_workers)

    @property
    def runtime(self) -> Runtime:
        """The demo's own fairlead, which takes samples and serves the callers."""
        return self.fairlead.runtime

    # ---- workers -------------------------------------------------------------------------------

    async def start_worker(self) -> WorkerProcess:
        """Start a worker process and return it."""
        name = f"worker {len(self.workers) + 1}"
        worker = WorkerProcess(name, self.config_file, self.home / f"{name.replace(' ', '-')}.log")
        self.workers.append(worker)
        await worker.start()
        return worker

    async def session_of(self, worker: WorkerProcess) -> SessionView | None:
        """Return the session of *worker*, or None before it has one."""
        sessions = await self.runtime.sessions.search()
        return next((session for session in sessions if session.identity.pid == worker.pid), None)

    async def wait_working(self, worker: WorkerProcess) -> SessionView:
        """Return the session of *worker* once it works; raise DependencyUnavailableError after a minute."""
        until_mono = time.monotonic() + READY_S
        while time.monotonic() < until_mono:
            worker.check()
            session = await self.session_of(worker)
            if session is not None:
                return session
            await asyncio.sleep(0.05)
        raise DependencyUnavailableError(f"{worker.name} of the demo does not start:\n{worker.log_tail()}")

    async def stop_workers(self) -> dict[str, int]:
        """Ask all workers to drain, and return their exit codes by name."""
        running = [worker for worker in self.workers if worker.is_running]
        for worker in running:
            worker.terminate()
        codes = await asyncio.gather(*(worker.wait(STOP_S) for worker in running))
        return dict(zip((worker.name for worker in running), codes, strict=True))

    async def _end_workers(self) -> None:
        await asyncio.gather(*(worker.kill() for worker in self.workers if worker.is_running))

    # ---- customers -----------------------------------------------------------------------------

    async def connect(self) -> None:
        """Register every connection at the issuer and store its grant in fairlead, a tenant at a time."""
        for tenant in TENANTS:
            accounts = [account for account in ACCOUNTS if account.key.tenant == tenant]
            consented_mono = time.monotonic()
            result = await self.issuer.control(
                "register",
                connections=[
                    account.at_issuer(self._public_pem).model_dump(exclude_defaults=True)
                    for account in accounts
                ],
            )
            await asyncio.gather(
                *(
                    self._connect_one(account, grant, consented_mono)
                    for account, grant in zip(accounts, result["grants"], strict=True)
                )
            )

    async def _connect_one(self, account: DemoAccount, grant: dict[str, Any], consented_mono: float) -> None:
        own_app = account.provider.policy is Policy.ASSERTION
        # the life of the token counts from before the consent
        remaining_s = grant["expires_in_s"] - (time.monotonic() - consented_mono)
        await self.fairlead.connections.upsert(
            account.key.tenant,
            account.key.provider,
            account=account.key.account,
            variant=account.provider.variant,
            endpoint=account.endpoint,
            account_id=account.account_id,
            access_token=grant["access_token"],
            refresh_token=grant["refresh_token"] or None,
            expires_in_s=max(remaining_s, 0.0),
            scope=grant["scope"],
            client_id=account.client_id if own_app else "",
            private_key=self._pem if own_app else None,
            actor=ACTOR,
        )

    # ---- the end -------------------------------------------------------------------------------

    async def end_issuer(self) -> Ledger:
        """Stop the issuer and return its complete ledger."""
        await self.issuer.stop()
        return self.issuer.ledger()

    def _remove_home(self) -> None:
        if not self._keep:
            shutil.rmtree(self.home, ignore_errors=True)


def _key_pair() -> tuple[str, str]:
    """Return the private and the public key of the machine-to-machine app as PEM."""
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import rsa

    key = rsa.generate_private_key(public_exponent=65537, key_size=3072)
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    public = key.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    return private.decode(), public.decode()
