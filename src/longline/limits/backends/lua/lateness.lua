-- A request left so many seconds after its slot: grow the margin when that was near it.
-- KEYS: bucket, born; ARGV: rate, capacity, margin, seconds
local now = clock()
local life = birth(KEYS[2], now)
local pace = read_pace()
local state = load_state(KEYS[1], life)
local seconds = tonumber(ARGV[4])
if state and seconds > math.max(pace.margin, state.margin) / 2 then
  state.margin = math.max(state.margin, math.min(GROWTH * seconds, LONGEST_MARGIN))
  save_state(KEYS[1], life, pace, state, now)
end
return {exact(now)}
