-- Let one more in while there is room; the policy of concurrency.py.
-- KEYS: crowd, born; ARGV: token, limit, seconds of a lease, seconds to wait after a birth
local now = clock()
local life, born_at = birth(KEYS[2], now)
local lease = tonumber(ARGV[3])
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', exact(now))
-- The clock was set back: no lease is longer than one lease.
for _, token in ipairs(redis.call('ZRANGEBYSCORE', KEYS[1], '(' .. exact(now + lease), '+inf')) do
  redis.call('ZADD', KEYS[1], exact(now + lease), token)
end
if not redis.call('ZSCORE', KEYS[1], ARGV[1]) then
  local quiet = tonumber(ARGV[4]) - (now - born_at)
  if quiet > 0 then -- those who were inside before Redis forgot them will say so by then
    return {exact(now), 0, exact(quiet)}
  end
  if redis.call('ZCARD', KEYS[1]) >= tonumber(ARGV[2]) then
    local first = redis.call('ZRANGE', KEYS[1], 0, 0, 'WITHSCORES')
    return {exact(now), 0, exact(tonumber(first[2]) - now)}
  end
end
redis.call('ZADD', KEYS[1], exact(now + lease), ARGV[1])
redis.call('PEXPIRE', KEYS[1], milliseconds(2 * lease))
return {exact(now), 1, '0'}
