-- Acquire a slot while fewer than the limit are in use; the policy of limits/concurrency.py.
-- KEYS: requests in flight, epoch; ARGV: token, limit, seconds of a lease, seconds to wait in a new epoch
local now = clock()
local epoch, started_at = current_epoch(KEYS[2], now)
local lease = tonumber(ARGV[3])
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', exact(now))
-- After the clock was set back, no lease may be longer than one lease.
for _, token in ipairs(redis.call('ZRANGEBYSCORE', KEYS[1], '(' .. exact(now + lease), '+inf')) do
  redis.call('ZADD', KEYS[1], exact(now + lease), token)
end
if not redis.call('ZSCORE', KEYS[1], ARGV[1]) then
  local quiet = tonumber(ARGV[4]) - (now - started_at)
  if quiet > 0 then -- requests in flight from the epoch before renew their leases by then
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
