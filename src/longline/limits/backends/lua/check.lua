-- How long does the holder of a slot wait on? No second answer: the slot is void.
-- KEYS: bucket, born; ARGV: rate, capacity, margin, moment and hold of the slot, its life
local now = clock()
local life = birth(KEYS[2], now)
local state = load_state(KEYS[1], life)
local at = tonumber(ARGV[4])
if not state or ARGV[6] ~= life or at < state.barred then
  return {exact(now)}
end
local hold = hold_of(read_pace(), state)
local due = at + math.max(0, hold - tonumber(ARGV[5]))
if hold > 0 and now - due > hold then
  return {exact(now)}
end
return {exact(now), due - now > CLOCK_ROUNDING and exact(due - now) or '0'}
