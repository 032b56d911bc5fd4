"""Redis or Valkey: what may be lost."""

from __future__ import annotations

from fairlead.adapters.redis.redis_info import APPEND_ADVICE, RedisInfo, facts_of_each, redis_facts

__all__ = ["APPEND_ADVICE", "RedisInfo", "facts_of_each", "redis_facts"]
