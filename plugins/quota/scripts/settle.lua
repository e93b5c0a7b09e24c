-- Charges afterwards, or gives back, without a question: what a request really cost.
-- KEYS: one for each limit. ARGV: for each of them: law, difference, limit, window, mark, as in check.lua.
-- What is given back goes to where it was charged (the mark), or nowhere when that is over: it makes no
-- room for others.
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]

local function whole(n) return string.format('%.0f', n) end
local function ms(us) return whole(math.max(1, math.ceil(us / 1000))) end

local laws = {}

function laws.fixed(key, more, _, window, mark)
  local used = tonumber(redis.call('GET', key) or 0) or 0
  local left = redis.call('PTTL', key) * 1000
  if left <= 0 then
    if more > 0 then redis.call('SET', key, whole(more), 'PX', ms(window)) end
  elseif more > 0 then
    redis.call('INCRBY', key, whole(more))
  elseif math.abs(now + left - mark) <= 5000 then
    -- The same end: times to live are known to a millisecond or two.
    redis.call('INCRBY', key, whole(math.max(more, -used)))
  end
end

function laws.sliding(key, more, _, window, mark)
  local number = math.floor(now / window)
  local left = window - (now - number * window)
  local kept = redis.call('HMGET', key, 'w', 'p', 'c')
  local before, count = 0, 0
  if tonumber(kept[1]) == number then
    before, count = tonumber(kept[2]), tonumber(kept[3])
  elseif tonumber(kept[1]) == number - 1 then
    before = tonumber(kept[3])
  end
  if more > 0 or mark == number then
    count = math.max(0, count + more)
  elseif mark == number - 1 then
    before = math.max(0, before + more)
  else
    return
  end
  redis.call('HSET', key, 'w', whole(number), 'p', whole(before), 'c', whole(count))
  redis.call('PEXPIRE', key, ms(left + window))
end

function laws.log(key, more, limit, window, mark)
  if more < 0 then
    local mine = redis.call('ZRANGEBYSCORE', key, whole(mark), whole(mark), 'LIMIT', 0, whole(-more))
    if #mine > 0 then redis.call('ZREM', key, unpack(mine)) end
    return
  end
  local count = redis.call('ZCARD', key)
  -- More than the limit says no more than the limit.
  for i = 1, math.min(more, limit) do
    redis.call('ZADD', key, whole(now), whole(now) .. ':' .. whole(count + i))
  end
  redis.call('PEXPIRE', key, ms(window))
end

function laws.bucket(key, more, interval, holds, mark)
  local due = math.max(tonumber(redis.call('GET', key) or 0) or 0, now)
  -- Of a charge that has drained in part, only the rest can be given back.
  local back = math.max(more * interval, math.min(0, now - mark))
  -- Debt is bounded: who got one dear answer is not shut out for ever.
  local new = math.min(math.max(due + back, now), now + 10 * holds)
  if new > now then
    redis.call('SET', key, string.format('%.3f', new), 'PX', ms(new - now))
  else
    redis.call('DEL', key)
  end
end

for i = 1, #KEYS do
  local at = (i - 1) * 5
  local number = function(n) return tonumber(ARGV[at + n]) end
  laws[ARGV[at + 1]](KEYS[i], number(2), number(3), number(4), number(5))
end
return #KEYS
