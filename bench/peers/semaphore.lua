-- semaphore: a slot of so many, as one writes it by hand: a sorted set of who holds one, by when it ends.
-- Takes   KEYS[1]; ARGV: now (s), slots, when this one ends (s), who takes it
-- Gives   1: taken, 0: all are held
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', ARGV[1])
if redis.call('ZCARD', KEYS[1]) >= tonumber(ARGV[2]) then
  return 0
end
redis.call('ZADD', KEYS[1], ARGV[3], ARGV[4])
return 1
