-- Charges afterwards, or gives back, without a question: what a request really cost.
-- KEYS: one for each limit. ARGV: for each of them: law, difference, limit, window, as in check.lua.
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]

local function whole(n) return string.format('%.0f', n) end
local function ms(us) return whole(math.max(1, math.ceil(us / 1000))) end

local laws = {}

function laws.fixed(key, more, _, window)
  local used = tonumber(redis.call('GET', key) or 0) or 0
  if redis.call('PTTL', key) > 0 then
    -- Never below nothing: what is given back makes no room that was not there.
    redis.call('INCRBY', key, whole(math.max(more, -used)))
  elseif more > 0 then
    redis.call('SET', key, whole(more), 'PX', ms(window))
  end
end

function laws.sliding(key, more, _, window)
  local number = math.floor(now / window)
  local left = window - (now - number * window)
  local kept = redis.call('HMGET', key, 'w', 'p', 'c')
  local before, count = 0, 0
  if tonumber(kept[1]) == number then
    before, count = tonumber(kept[2]), tonumber(kept[3])
  elseif tonumber(kept[1]) == number - 1 then
    before = tonumber(kept[3])
    -- It was charged to the window that has just ended.
    if more < 0 then before, more = math.max(0, before + more), 0 end
  elseif more < 0 then
    return
  end
  redis.call('HSET', key, 'w', whole(number), 'p', whole(before), 'c', whole(math.max(0, count + more)))
  redis.call('PEXPIRE', key, ms(left + window))
end

function laws.log(key, more, _, window)
  if more < 0 then
    redis.call('ZPOPMAX', key, whole(-more))
    return
  end
  local count = redis.call('ZCARD', key)
  for i = 1, more do
    redis.call('ZADD', key, whole(now), whole(now) .. ':' .. whole(count + i))
  end
  redis.call('PEXPIRE', key, ms(window))
end

function laws.bucket(key, more, interval, holds)
  local due = math.max(tonumber(redis.call('GET', key) or 0) or 0, now)
  -- Debt is bounded: who got one dear answer is not shut out for ever.
  local new = math.min(math.max(due + more * interval, now), now + 10 * holds)
  if new > now then
    redis.call('SET', key, string.format('%.3f', new), 'PX', ms(new - now))
  else
    redis.call('DEL', key)
  end
end

for i = 1, #KEYS do
  local at = (i - 1) * 4
  laws[ARGV[at + 1]](KEYS[i], tonumber(ARGV[at + 2]), tonumber(ARGV[at + 3]), tonumber(ARGV[at + 4]))
end
return #KEYS
