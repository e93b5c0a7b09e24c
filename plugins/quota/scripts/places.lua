-- Places for requests under way. Each is a member of a sorted set, with the time until which it counts: who
-- holds it says so again before then, so that the places of a gateway that died are free soon.
-- ARGV[1]: what is asked. ARGV[2]: for how long a place counts, in ms; ARGV[3]: for how long one may count
-- whoever holds it. Only the server's clock counts.
-- enter: KEYS: one for each limit. ARGV[4]: who comes; ARGV[5..]: for each key how many may be there.
--   All have room, or nobody enters. Answer: let in or not, then for each key how many are there (with
--   this one, if it was let in). Asked once more, the same who has the same place.
-- keep: KEYS[1]. ARGV[4..]: who is still there. Answer: how many are there.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local life, longest = tonumber(ARGV[2]), tonumber(ARGV[3])

local function whole(n) return string.format('%.0f', n) end

local function there(key)
  redis.call('ZREMRANGEBYSCORE', key, '-inf', whole(now))
  -- Far beyond what a place can last: from before this server's clock was turned back by more than a life.
  redis.call('ZREMRANGEBYSCORE', key, '(' .. whole(now + 2 * longest), '+inf')
  return redis.call('ZCARD', key)
end

local function stay(key, who)
  redis.call('ZADD', key, whole(now + life), who)
end

local function last(key)
  -- Others may count for longer than this one does.
  redis.call('PEXPIRE', key, whole(longest))
end

if ARGV[1] == 'keep' then
  for i = 4, #ARGV do stay(KEYS[1], ARGV[i]) end
  last(KEYS[1])
  return { redis.call('ZCARD', KEYS[1]) }
end

local answer = { 1 }
for i, key in ipairs(KEYS) do
  local count = there(key)
  -- It came before, and its answer was lost.
  if redis.call('ZSCORE', key, ARGV[4]) then count = count - 1 end
  if count >= tonumber(ARGV[4 + i]) then answer[1] = 0 end
  answer[1 + i] = count
end
if answer[1] == 1 then
  for i, key in ipairs(KEYS) do
    stay(key, ARGV[4])
    last(key)
    answer[1 + i] = answer[1 + i] + 1
  end
else
  -- Whoever is refused holds nothing.
  for _, key in ipairs(KEYS) do redis.call('ZREM', key, ARGV[4]) end
end
return answer
