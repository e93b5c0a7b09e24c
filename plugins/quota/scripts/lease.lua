-- Hands out permits of a window: what a gateway takes it may spend without asking again.
-- KEYS[1]: the limit's key. ARGV: limit, window in us, node, number of the ask, wanted, given back, spent
-- beyond what was had, the window (its end) that the last two belong to.
-- Answer: permits, what is left to hand out, until the window's end in us, the window, nodes seen.
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local key, limit, window, node = KEYS[1], tonumber(ARGV[1]), tonumber(ARGV[2]), 'n:' .. ARGV[3]
local wanted, back, over = tonumber(ARGV[5]), tonumber(ARGV[6]), tonumber(ARGV[7])

local function whole(n) return string.format('%.0f', n) end

local kept = redis.call('HMGET', key, 'end', 'granted', 'nodes', 'before')
local last, granted = tonumber(kept[1]), tonumber(kept[2]) or 0
local nodes, before = tonumber(kept[3]) or 0, tonumber(kept[4]) or 0
-- One that ends later than it could was begun when windows were longer.
if not last or now >= last or last - now > window then
  -- A node that came in the last window is likely to come again: the first one must not take half.
  before = last and now < last + window and math.ceil(math.max(nodes, before) / 4) or 0
  last, granted, nodes = now + window, 0, 0
  redis.call('DEL', key)
  redis.call('HSET', key, 'end', whole(last), 'before', whole(before))
  redis.call('PEXPIRE', key, whole(math.ceil(2 * window / 1000)))
end

local function answer(permits)
  return { permits, math.max(0, limit - granted), last - now, last, math.max(nodes, before) }
end

-- The same ask once more, because its answer was lost: the same answer.
local had = redis.call('HGET', key, node)
local seq, permits = string.match(had or '', '^(%d+):(%d+)$')
if seq == ARGV[4] then return answer(tonumber(permits)) end

if tonumber(ARGV[8]) == last then
  granted = math.max(0, granted - back) + over
end
if not had then nodes = nodes + 1 end
local left = limit - granted
permits = 0
if left > 0 then
  permits = math.floor(left / (2 * math.max(nodes, before)))
  permits = math.min(left, math.max(1, math.min(permits, wanted)))
end
if wanted == 0 then permits = 0 end
granted = granted + permits
redis.call('HSET', key, 'granted', whole(granted), 'nodes', whole(nodes), node, ARGV[4] .. ':' .. whole(permits))
return answer(permits)
