-- What is counted, without counting.
-- KEYS[1]: the count, KEYS[2]: the book of permits taken ahead. ARGV: law, limit, window in us.
-- Answer: passes now, remaining, reset in us, retry in us, gateways that took permits, permits that they
-- may hold.
local law, limit, window = laws[ARGV[1]], tonumber(ARGV[2]), tonumber(ARGV[3])
local _, remaining, reset = law.look(KEYS[1], 0, limit, window)
local passes, _, _, retry = law.look(KEYS[1], 1, limit, window)
local kept, nodes, held = redis.call('HGETALL', KEYS[2]), 0, 0
local counted = redis.call('EXISTS', KEYS[1]) == 1
for i = 1, #kept, 2 do
  local out, ends = string.match(kept[i + 1], '^%d+:%d+:(%d+):(%d+)$')
  if out and tonumber(ends) > now and (counted or ARGV[1] ~= 'fixed') then
    nodes, held = nodes + 1, held + tonumber(out)
  end
end
return { passes and 1 or 0, remaining, reset, passes and 0 or retry, nodes, held }
