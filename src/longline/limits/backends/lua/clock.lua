-- The time is Redis's own: one clock counts for all workers, however wrong theirs are.
local function clock()
  local time = redis.call('TIME')
  return tonumber(time[1]) + tonumber(time[2]) / 1e6
end
