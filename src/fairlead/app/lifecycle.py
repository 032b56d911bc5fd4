"""Opening, running and closing a Fairlead, on its stores or on those of a test."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from importlib import import_module
from pathlib import Path
from types import TracebackType
from typing import Self

from fairlead._core import forks
from fairlead.app.registry import JobRegistry
from fairlead.app.stores import Stores
from fairlead.app.threads import Threads
from fairlead.assembly.config import Config, load
from fairlead.assembly.offline import OfflineServices, offline_services
from fairlead.assembly.providers import ProfileRegistry
from fairlead.assembly.runtime import Roles, Runtime
from fairlead.errors import FairleadError, InvalidConfigError
from fairlead.policy.text.safe import safe_text

_log = logging.getLogger("fairlead.assembly.config")


class Lifecycle(JobRegistry):
    """The base of `Fairlead`: its settings, and its runtime while it is open."""

    def __init__(self, config: Config, *, include: Sequence[str] = ()) -> None:
        super().__init__()
        self._config = config
        self._include = include
        self._runtime: Runtime | None = None
        self._memory: Stores | None = None

    @classmethod
    def from_env(
        cls,
        environ: Mapping[str, str] | None = None,
        *,
        config: Path | str | None = None,
        include: Sequence[str] = (),
    ) -> Self:
        """Return a Fairlead with settings from *environ* (default: this process's) and a file.

        Nothing is connected before it is opened.

        Raises:
            InvalidConfigError: A setting is not valid; the message names all problems.
        """
        loaded = load(os.environ if environ is None else environ, config)
        if loaded.warning:
            _log.warning(loaded.warning)
        return cls(loaded, include=include)

    async def __aenter__(self) -> Self:
        if self._runtime is not None or self._memory is not None:
            raise InvalidConfigError("this Fairlead is already open", hint="open it once, and share it")
        self.load_modules()
        self._threads = Threads()
        self._runtime = await Runtime.open(self._config, self.handlers, self._subscribers, self.schedules)
        forks.forget_in_children(self)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        runtime, self._runtime = self._runtime, None
        forks.closed(self)
        try:
            if runtime is not None:
                await runtime.close()
        finally:
            self._close_threads()

    def forked(self) -> object:
        """Close this in a forked child, which may open it again; return what is open in the parent."""
        parent, self._runtime, self._threads = (self._runtime, self._threads), None, None
        return parent

    async def run(self, roles: Roles | None = None) -> None:
        """Work until ``stop``: fire schedules, run jobs, rescue jobs. You may use this object meanwhile."""
        await self.runtime.run(roles or Roles())

    def stop(self) -> None:
        """End ``run``: claim no more jobs, let running jobs end within the grace, then hand back the rest.

        A second call ends it at once.
        """
        self.runtime.stop()

    @property
    def runtime(self) -> Runtime:
        """The open runtime.

        Raises:
            InvalidConfigError: It is not open, or a test uses stores in memory.
        """
        if self._memory is not None:
            message = "a MemoryFairlead has jobs in memory, no calls, connections or limits"
            hint = "test these on a database and Redis, against fairlead.testing.api, or hand in a fake"
            raise InvalidConfigError(message, hint=hint)
        if self._runtime is None:
            raise InvalidConfigError("this Fairlead is not open", hint="use it inside `async with`")
        return self._runtime

    @property
    def in_memory(self) -> bool:
        """True if a test has replaced the stores with stores in memory."""
        return self._memory is not None

    def _use_memory_stores(self, memory: Stores | None) -> None:
        """Use these stores for `fairlead.testing`; None ends that."""
        if memory is not None and (self._runtime is not None or self._memory is not None):
            raise InvalidConfigError("this Fairlead is already open", hint="open it once, and share it")
        self._memory = memory
        self._close_threads()
        if memory is not None:
            self.load_modules()
            self._threads = Threads()

    @property
    def _stores(self) -> Stores:
        return self._memory or self.runtime

    @property
    def _outside(self) -> Stores | OfflineServices:
        return self._memory or self._runtime or self._without_runtime

    @cached_property
    def _profiles(self) -> ProfileRegistry:
        return self._runtime.profiles if self._runtime else ProfileRegistry(self._config.settings)

    @cached_property
    def _without_runtime(self) -> OfflineServices:
        return offline_services(self._config.settings)

    def _check_in_time(self, declaration: str) -> None:
        if self._runtime is not None or self._memory is not None:
            hint = "declare it before; name its module in include=[...] of the Fairlead"
            raise InvalidConfigError(f"{declaration} is too late: this Fairlead is open", hint=hint)

    def _close_threads(self) -> None:
        if self._threads is not None:
            self._threads.close()
            self._threads = None

    def load_modules(self) -> None:
        """Import what *include* names, and the module of a KMS hook."""
        if hook := self._config.settings.vault.kms:
            with suppress(Exception):  # opening reports what is wrong with it
                import_module(hook.partition(":")[0])
        for name in self._include:
            try:
                import_module(name)
            except FairleadError:
                raise
            except Exception as error:
                message = (
                    f"include {name!r} cannot be imported ({type(error).__name__}: {safe_text(str(error))})"
                )
                raise InvalidConfigError(message, hint="name modules as `import` does") from error
