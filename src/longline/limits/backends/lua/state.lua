-- Return the bucket of a domain; without a second value, there is none.
-- KEYS: bucket, epoch
local now = clock()
local epoch = current_epoch(KEYS[2], now)
return {exact(now), load_text(KEYS[1], epoch)}
