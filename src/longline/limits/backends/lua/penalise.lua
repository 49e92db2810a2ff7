-- Bar a domain for so many seconds, and begin again then with an empty bucket.
-- KEYS: bucket, born; ARGV: rate, capacity, margin, seconds
local now = clock()
local life, born_at = birth(KEYS[2], now)
local pace = read_pace()
local state = settle(pace, load_state(KEYS[1], life) or emptied(pace, born_at), now)
state = bar(pace, state, now + tonumber(ARGV[4]), now)
save_state(KEYS[1], life, pace, state, now)
return {exact(now), written(state)}
