-- One has left.
-- KEYS: crowd; ARGV: token
redis.call('ZREM', KEYS[1], ARGV[1])
return {exact(clock())}
