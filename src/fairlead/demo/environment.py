"""The demo's world: a home with its own servers, the rude issuer, two hundred connections, two workers.

    home > issuer > settings > servers and schema > workers > connections

Everything lives in one folder and ends with the demo, in the reverse order; nothing of the user's own
fairlead is read or touched.
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
from fairlead.demo.worker import WorkerProcess
from fairlead.engine.ports import SessionView
from fairlead.errors import DependencyUnavailableError
from fairlead.testing.issuer import IssuerProcess, Policy
from fairlead.testing.ledger import Ledger

WORKERS = 2
READY_S = 60.0
ACTOR = "demo"


class DemoEnvironment:
    """Everything that runs while the demo runs; *keep* leaves the folder when it is over."""

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
            if os.geteuid() == 0:  # PostgreSQL will run as somebody else, who must be able to pass
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
        """The demo's own fairlead, which watches and plays callers."""
        return self.fairlead.runtime

    # ---- workers -------------------------------------------------------------------------------

    async def start_worker(self) -> WorkerProcess:
        """One more worker process."""
        name = f"worker {len(self.workers) + 1}"
        worker = WorkerProcess(name, self.config_file, self.home / f"{name.replace(' ', '-')}.log")
        self.workers.append(worker)
        await worker.start()
        return worker

    async def session_of(self, worker: WorkerProcess) -> SessionView | None:
        """The session of *worker*, once it has one."""
        sessions = await self.runtime.sessions.search()
        return next((each for each in sessions if each.identity.pid == worker.pid), None)

    async def at_work(self, worker: WorkerProcess) -> SessionView:
        """The session of *worker*; DependencyUnavailableError if it does not begin to work within a minute."""
        until = time.monotonic() + READY_S
        while time.monotonic() < until:
            worker.check()
            session = await self.session_of(worker)
            if session is not None:
                return session
            await asyncio.sleep(0.05)
        raise DependencyUnavailableError(f"{worker.name} of the demo does not begin:\n{worker.last_words()}")

    async def stop_workers(self) -> dict[str, int]:
        """Ask all workers to drain; their exit codes once they have."""
        running = [worker for worker in self.workers if worker.running]
        for worker in running:
            worker.terminate()
        codes = await asyncio.gather(*(worker.ended() for worker in running))
        return dict(zip((worker.name for worker in running), codes, strict=True))

    async def _end_workers(self) -> None:
        await asyncio.gather(*(worker.kill() for worker in self.workers if worker.running))

    # ---- customers -----------------------------------------------------------------------------

    async def connect(self) -> None:
        """Let every customer consent, and bring the grants to fairlead, a tenant at a time."""
        for tenant in TENANTS:
            own = [account for account in ACCOUNTS if account.key.tenant == tenant]
            consented_s = time.monotonic()
            answer = await self.issuer.control(
                "register",
                connections=[
                    each.at_issuer(self._public_pem).model_dump(exclude_defaults=True) for each in own
                ],
            )
            await asyncio.gather(
                *(
                    self._connect_one(account, grant, consented_s)
                    for account, grant in zip(own, answer["grants"], strict=True)
                )
            )

    async def _connect_one(self, account: DemoAccount, given: dict[str, Any], consented_s: float) -> None:
        own_app = account.role.policy is Policy.ASSERTION
        # the life of the token is counted from before the consent, never from now
        left_s = given["expires_in_s"] - (time.monotonic() - consented_s)
        await self.fairlead.connections.upsert(
            account.key.tenant,
            account.key.provider,
            account=account.key.account,
            variant=account.role.variant,
            endpoint=account.endpoint,
            account_id=account.account_id,
            access_token=given["access_token"],
            refresh_token=given["refresh_token"] or None,
            expires_in_s=max(left_s, 0.0),
            scope=given["scope"],
            client_id=account.client_id if own_app else "",
            private_key=self._pem if own_app else None,
            actor=ACTOR,
        )

    # ---- the end -------------------------------------------------------------------------------

    async def end_issuer(self) -> Ledger:
        """Stop the issuer; its complete ledger."""
        await self.issuer.stop()
        return self.issuer.ledger()

    def _remove_home(self) -> None:
        if not self._keep:
            shutil.rmtree(self.home, ignore_errors=True)


def _key_pair() -> tuple[str, str]:
    """The key of the machine-to-machine app: PEM of the private and of the public part."""
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
