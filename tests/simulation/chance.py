"""All chance of a seed, in streams of their own: a draw more in one of them moves nothing in the others."""

from __future__ import annotations

from random import Random


class Chance:
    """The streams of *seed*. A text seeds the same numbers in every interpreter, whatever its hash seed."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self.sched = self._stream("sched")
        """Which ready callback runs next."""
        self.swarm = self._stream("swarm")
        """Which faults there are, and how strong."""
        self.faults = self._stream("faults")
        """When, and whom they strike."""
        self.points = self._stream("points")
        """At which passes of a fault point a process dies."""
        self.latency = self._stream("latency")
        self.workload = self._stream("workload")
        self.vendors = self._stream("vendors")
        """Whose customer each tenant is."""
        self.customer = self._stream("customer")
        """What the customer does besides ordering work."""
        self.issuer = self._stream("issuer")
        self.upstream = self._stream("upstream")
        self.redis = self._stream("redis")

    def product(self, label: str) -> Random:
        """What one life of a process draws for itself."""
        return self._stream(f"product:{label}")

    def clock(self, host: str) -> Random:
        """How the time of day of a machine is off."""
        return self._stream(f"clock:{host}")

    def _stream(self, name: str) -> Random:
        return Random(f"{self._seed}:{name}")
