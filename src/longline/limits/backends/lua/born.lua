-- Since when this Redis remembers: "<name of this life> <moment>". What another life has written
-- down (before a restart, a flush, a failover) counts no longer: too much of it may be missing.
local BORN_FOR = 7 * 24 * 3600 * 1000 -- milliseconds

-- A number as text that loses no digit: Redis would cut a Lua number down to a whole one.
local function exact(number)
  return string.format('%.17g', number)
end

local function milliseconds(seconds)
  return string.format('%.0f', math.max(1, math.ceil(seconds * 1000)))
end

local function this_run()
  return string.match(redis.call('INFO', 'server'), 'run_id:(%w+)')
end

local function begin_life(key, now)
  local life = this_run() .. '@' .. exact(now)
  redis.call('SET', key, life .. ' ' .. exact(now), 'PX', BORN_FOR)
  return life, now
end

local function birth(key, now)
  local life, at = string.match(redis.call('GET', key) or '', '^(%S+) (%S+)$')
  if not life then
    return begin_life(key, now)
  end
  at = tonumber(at)
  if at > now then -- the clock was set back: nobody was born in the future
    at = now
    redis.call('SET', key, life .. ' ' .. exact(at))
  end
  redis.call('PEXPIRE', key, BORN_FOR)
  return life, at
end
