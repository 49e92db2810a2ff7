-- The policy of limits/rate_limit.py with sums in the same order, so that both round alike.
local ROUNDING = 1e-9
local CLOCK_ROUNDING = 1e-6
local GROWTH = 1.5
local LONGEST_MARGIN = 5.0
local KEPT = 600 -- seconds that a full bucket is kept

local function read_limit()
  local rate, capacity = tonumber(ARGV[1]), tonumber(ARGV[2])
  return {
    rate = rate,
    capacity = capacity,
    margin = tonumber(ARGV[3]),
    interval = 1 / rate,
    slack = (capacity - 1) / rate,
  }
end

local function hold_of(limit, state)
  return math.min(math.max(limit.margin, state.margin), math.max(limit.slack, limit.interval / 10))
end

local function refill(limit, state, now)
  if now >= state.full_at + state.ahead + hold_of(limit, state) then
    return {full_at = now, ahead = 0, margin = state.margin / 2, barred = state.barred}
  end
  if now < state.full_at then
    return {full_at = now, ahead = state.ahead, margin = state.margin, barred = state.barred}
  end
  return state
end

local function bar(limit, state, till, now)
  local ahead = math.max(till, now) - state.full_at + limit.slack
  return {
    full_at = state.full_at,
    ahead = math.max(state.ahead, ahead),
    margin = state.margin,
    barred = math.max(state.barred, till),
  }
end

-- An unknown domain may have received requests until the current epoch started.
local function empty_bucket(limit, at)
  return {full_at = at, ahead = limit.slack + limit.interval, margin = 0, barred = 0}
end

local function encode(state)
  return exact(state.full_at) .. ' ' .. exact(state.ahead) .. ' ' .. exact(state.margin) .. ' '
    .. exact(state.barred)
end

local function load_text(key, epoch)
  local text = redis.call('GET', key)
  if not text then
    return nil
  end
  local stored_epoch, rest = string.match(text, '^(%S+) (.+)$')
  return stored_epoch == epoch and rest or nil
end

local function load_state(key, epoch)
  local text = load_text(key, epoch)
  if not text then
    return nil
  end
  local full_at, ahead, margin, barred = string.match(text, '^(%S+) (%S+) (%S+) (%S+)$')
  return {
    full_at = tonumber(full_at),
    ahead = tonumber(ahead),
    margin = tonumber(margin),
    barred = tonumber(barred),
  }
end

local function save_state(key, epoch, limit, state, now)
  local full = math.max(state.full_at + state.ahead + hold_of(limit, state), state.barred)
  local left = math.max(0, full - now) + KEPT
  redis.call('SET', key, epoch .. ' ' .. encode(state), 'PX', milliseconds(left))
end
