-- Read a value or, if it is unchanged since the caller read it, replace it.
-- Each value is preceded by its writer's mark. A caller that finds its own mark has already written
-- the value: only the reply was lost.
-- KEYS: value; ARGV: nothing, or the mark it had ('' for none), the new mark, value, milliseconds
local now = clock()
local held = redis.call('GET', KEYS[1]) or ''
local mark = string.match(held, '^%S*')
if ARGV[2] and mark == ARGV[2] then
  return {exact(now), 1, ''}
end
if ARGV[2] and mark == ARGV[1] then
  redis.call('SET', KEYS[1], ARGV[2] .. ' ' .. ARGV[3], 'PX', ARGV[4])
  return {exact(now), 1, ''}
end
return {exact(now), 0, held}
