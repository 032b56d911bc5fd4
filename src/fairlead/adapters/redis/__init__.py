"""Redis or Valkey: what may be lost."""

from __future__ import annotations

from fairlead.adapters.redis.redis_info import APPEND_ADVICE, RedisInfo, redis_info, redis_info_by_server

__all__ = ["APPEND_ADVICE", "RedisInfo", "redis_info", "redis_info_by_server"]
