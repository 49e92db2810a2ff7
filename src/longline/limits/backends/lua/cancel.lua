-- Undo an unused reservation, if no other was made since.
-- KEYS: bucket, epoch; ARGV: the states before and after it, its epoch
local now = clock()
local epoch = current_epoch(KEYS[2], now)
if ARGV[3] == epoch and load_text(KEYS[1], epoch) == ARGV[2] then
  redis.call('SET', KEYS[1], epoch .. ' ' .. ARGV[1], 'KEEPTTL')
end
return {exact(now)}
