-- semaphore: take one of some slots, as written by hand: a sorted set of holders by the end of their lease.
-- Takes   KEYS[1]; ARGV: now (s), slots, the end of this lease (s), its holder
-- Returns   1: taken, 0: all are held
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', ARGV[1])
if redis.call('ZCARD', KEYS[1]) >= tonumber(ARGV[2]) then
  return 0
end
redis.call('ZADD', KEYS[1], ARGV[3], ARGV[4])
return 1
