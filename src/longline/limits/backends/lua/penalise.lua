-- Bar a domain for some seconds, and start again then with an empty bucket.
-- KEYS: bucket, epoch; ARGV: rate, capacity, margin, seconds
local now = clock()
local epoch, started_at = current_epoch(KEYS[2], now)
local limit = read_limit()
local state = refill(limit, load_state(KEYS[1], epoch) or empty_bucket(limit, started_at), now)
state = bar(limit, state, now + tonumber(ARGV[4]), now)
save_state(KEYS[1], epoch, limit, state, now)
return {exact(now), encode(state)}
