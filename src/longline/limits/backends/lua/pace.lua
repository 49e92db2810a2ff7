-- The policy of pace.py, sum by sum in the same order, so that both round alike.
local ROUNDING = 1e-9
local CLOCK_ROUNDING = 1e-6
local GROWTH = 1.5
local LONGEST_MARGIN = 5.0
local KEPT = 600 -- seconds that a bucket is remembered after it is full again

local function read_pace()
  local rate, capacity = tonumber(ARGV[1]), tonumber(ARGV[2])
  return {
    rate = rate,
    capacity = capacity,
    margin = tonumber(ARGV[3]),
    interval = 1 / rate,
    slack = (capacity - 1) / rate,
  }
end

local function hold_of(pace, state)
  return math.min(math.max(pace.margin, state.margin), math.max(pace.slack, pace.interval / 10))
end

local function settle(pace, state, now)
  if now >= state.full_at + state.ahead + hold_of(pace, state) then
    return {full_at = now, ahead = 0, margin = state.margin / 2, barred = state.barred}
  end
  if now < state.full_at then
    return {full_at = now, ahead = state.ahead, margin = state.margin, barred = state.barred}
  end
  return state
end

local function bar(pace, state, till, now)
  local ahead = math.max(till, now) - state.full_at + pace.slack
  return {
    full_at = state.full_at,
    ahead = math.max(state.ahead, ahead),
    margin = state.margin,
    barred = math.max(state.barred, till),
  }
end

-- A domain of which nothing is known may have been asked until the last moment before that.
local function emptied(pace, at)
  return {full_at = at, ahead = pace.slack + pace.interval, margin = 0, barred = 0}
end

local function written(state)
  return exact(state.full_at) .. ' ' .. exact(state.ahead) .. ' ' .. exact(state.margin) .. ' '
    .. exact(state.barred)
end

local function load_text(key, life)
  local text = redis.call('GET', key)
  if not text then
    return nil
  end
  local written_in, rest = string.match(text, '^(%S+) (.+)$')
  return written_in == life and rest or nil
end

local function load_state(key, life)
  local text = load_text(key, life)
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

local function save_state(key, life, pace, state, now)
  local full = math.max(state.full_at + state.ahead + hold_of(pace, state), state.barred)
  local left = math.max(0, full - now) + KEPT
  redis.call('SET', key, life .. ' ' .. written(state), 'PX', milliseconds(left))
end
