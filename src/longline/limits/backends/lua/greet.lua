-- Asked on every new connection: is this still the Redis that wrote down when it was born?
-- KEYS: born
local now = clock()
local life = birth(KEYS[1], now)
if string.match(life, '^(%w+)@') ~= this_run() then
  begin_life(KEYS[1], now)
end
return {exact(now)}
