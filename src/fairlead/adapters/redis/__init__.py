"""Redis or Valkey: what may be lost."""

from __future__ import annotations

from fairlead.adapters.redis.facts import RedisFacts, redis_facts

__all__ = ["RedisFacts", "redis_facts"]
