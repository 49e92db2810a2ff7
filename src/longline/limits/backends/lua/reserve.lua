-- Reserve the next slot of a domain.
-- KEYS: bucket, epoch; ARGV: rate, capacity, margin, seconds of a penalty that the caller knows of
local now = clock()
local epoch, started_at = current_epoch(KEYS[2], now)
local limit = read_limit()
local before = load_state(KEYS[1], epoch)
if before then
  before = refill(limit, before, now)
else
  before = refill(limit, empty_bucket(limit, started_at), now)
  local penalty = tonumber(ARGV[4])
  if penalty > 0 then -- the site asked for it, and Redis has lost it
    before = bar(limit, before, now + penalty, now)
  end
end
local hold = hold_of(limit, before)
local ready = before.ahead - limit.slack
local offset = math.max(now - before.full_at, ready > ROUNDING and ready + hold or 0)
offset = math.max(offset, before.barred - before.full_at)
local after = {
  full_at = before.full_at,
  ahead = math.max(before.ahead, offset) + limit.interval,
  margin = before.margin,
  barred = before.barred,
}
local at = math.max(before.full_at + offset, before.barred)
save_state(KEYS[1], epoch, limit, after, now)
local wait = math.max(0, at - now)
return {exact(now), exact(at), exact(wait), exact(hold), encode(before), encode(after), epoch}
