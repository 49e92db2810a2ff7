-- Renew leases; lost ones are added again.
-- KEYS: requests in flight, epoch; ARGV: seconds of a lease, tokens
local now = clock()
current_epoch(KEYS[2], now)
local till = exact(now + tonumber(ARGV[1]))
for n = 2, #ARGV do
  redis.call('ZADD', KEYS[1], till, ARGV[n])
end
redis.call('PEXPIRE', KEYS[1], milliseconds(2 * tonumber(ARGV[1])))
return {exact(now)}
