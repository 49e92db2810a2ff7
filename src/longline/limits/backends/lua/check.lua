-- Return the seconds still to wait for a slot; without a second value, the slot is void.
-- KEYS: bucket, epoch; ARGV: rate, capacity, margin, time and hold of the slot, its epoch
local now = clock()
local epoch = current_epoch(KEYS[2], now)
local state = load_state(KEYS[1], epoch)
local at = tonumber(ARGV[4])
if not state or ARGV[6] ~= epoch or at < state.barred then
  return {exact(now)}
end
local hold = hold_of(read_limit(), state)
local due = at + math.max(0, hold - tonumber(ARGV[5]))
if hold > 0 and now - due > hold then
  return {exact(now)}
end
return {exact(now), due - now > CLOCK_ROUNDING and exact(due - now) or '0'}
