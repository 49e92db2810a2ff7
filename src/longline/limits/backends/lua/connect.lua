-- Run on every new connection: start a new epoch if the server was restarted.
-- KEYS: epoch
local now = clock()
local epoch = current_epoch(KEYS[1], now)
if string.match(epoch, '^(%w+)@') ~= run_id() then
  start_epoch(KEYS[1], now)
end
return {exact(now)}
