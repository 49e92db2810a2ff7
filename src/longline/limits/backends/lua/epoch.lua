-- The epoch of this Redis, stored as "<epoch id> <start time>": since when it remembers. Values of
-- another epoch (before a restart, a flush, a failover) are ignored: parts may be missing.
local EPOCH_TTL = 7 * 24 * 3600 * 1000 -- milliseconds

-- A number as text without loss of digits: Redis would truncate a Lua number to an integer.
local function exact(number)
  return string.format('%.17g', number)
end

local function milliseconds(seconds)
  return string.format('%.0f', math.max(1, math.ceil(seconds * 1000)))
end

local function run_id()
  return string.match(redis.call('INFO', 'server'), 'run_id:(%w+)')
end

local function start_epoch(key, now)
  local epoch = run_id() .. '@' .. exact(now)
  redis.call('SET', key, epoch .. ' ' .. exact(now), 'PX', EPOCH_TTL)
  return epoch, now
end

local function current_epoch(key, now)
  local epoch, at = string.match(redis.call('GET', key) or '', '^(%S+) (%S+)$')
  if not epoch then
    return start_epoch(key, now)
  end
  at = tonumber(at)
  if at > now then -- the clock was set back: no epoch starts in the future
    at = now
    redis.call('SET', key, epoch .. ' ' .. exact(at))
  end
  redis.call('PEXPIRE', key, EPOCH_TTL)
  return epoch, at
end
