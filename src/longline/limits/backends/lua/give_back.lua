-- Undo a reservation that nobody used, if none was made since.
-- KEYS: bucket, born; ARGV: the states before and after it, its life
local now = clock()
local life = birth(KEYS[2], now)
if ARGV[3] == life and load_text(KEYS[1], life) == ARGV[2] then
  redis.call('SET', KEYS[1], life .. ' ' .. ARGV[1], 'KEEPTTL')
end
return {exact(now)}
