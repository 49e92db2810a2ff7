-- The time of Redis: one clock for all workers, whatever theirs show.
local function clock()
  local time = redis.call('TIME')
  return tonumber(time[1]) + tonumber(time[2]) / 1e6
end
