-- Free a slot.
-- KEYS: requests in flight; ARGV: token
redis.call('ZREM', KEYS[1], ARGV[1])
return {exact(clock())}
