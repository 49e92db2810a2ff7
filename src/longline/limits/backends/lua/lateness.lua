-- A request left late: grow the margin when it was nearly a margin, or more, after its slot.
-- KEYS: bucket, epoch; ARGV: rate, capacity, margin, seconds
local now = clock()
local epoch = current_epoch(KEYS[2], now)
local limit = read_limit()
local state = load_state(KEYS[1], epoch)
local seconds = tonumber(ARGV[4])
if state and seconds > math.max(limit.margin, state.margin) / 2 then
  state.margin = math.max(state.margin, math.min(GROWTH * seconds, LONGEST_MARGIN))
  save_state(KEYS[1], epoch, limit, state, now)
end
return {exact(now)}
