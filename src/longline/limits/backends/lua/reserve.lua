-- Take the next slot of a domain.
-- KEYS: bucket, born; ARGV: rate, capacity, margin, seconds of rest that the caller knows of
local now = clock()
local life, born_at = birth(KEYS[2], now)
local pace = read_pace()
local before = load_state(KEYS[1], life)
if before then
  before = settle(pace, before, now)
else
  before = settle(pace, emptied(pace, born_at), now)
  local rest = tonumber(ARGV[4])
  if rest > 0 then -- the site asked for it, and only Redis has forgotten
    before = bar(pace, before, now + rest, now)
  end
end
local hold = hold_of(pace, before)
local ready = before.ahead - pace.slack
local offset = math.max(now - before.full_at, ready > ROUNDING and ready + hold or 0)
offset = math.max(offset, before.barred - before.full_at)
local after = {
  full_at = before.full_at,
  ahead = math.max(before.ahead, offset) + pace.interval,
  margin = before.margin,
  barred = before.barred,
}
local at = math.max(before.full_at + offset, before.barred)
save_state(KEYS[1], life, pace, after, now)
local wait = math.max(0, at - now)
return {exact(now), exact(at), exact(wait), exact(hold), written(before), written(after), life}
