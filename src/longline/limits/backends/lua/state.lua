-- What is known of a domain; no second answer: nothing.
-- KEYS: bucket, born
local now = clock()
local life = birth(KEYS[2], now)
return {exact(now), load_text(KEYS[1], life)}
