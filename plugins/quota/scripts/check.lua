-- Charges a request on all its limits, or on none.
-- KEYS: one for each limit. ARGV: for each of them: law, cost, limit, window in us. Of a bucket the limit
-- is its interval in us (may be a fraction) and the window what it holds, in us.
-- Answer: for each limit: passed, remaining, reset in us, retry in us (-1: never), and a mark that says to
-- what it was charged, for settle.lua.
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local answer, writes, passed = {}, {}, true

local function whole(n) return string.format('%.0f', n) end
local function ms(us) return whole(math.max(1, math.ceil(us / 1000))) end

local laws = {}

-- A number with a time to live: the window begins with its first request. Written as Apache APISIX
-- writes it, so that both can share it.
function laws.fixed(key, cost, limit, window)
  local used = tonumber(redis.call('GET', key) or 0) or 0
  local left = redis.call('PTTL', key) * 1000
  local fresh = left <= 0
  if fresh then used, left = 0, window end
  if left > window then
    -- Begun when the window was longer.
    left = window
    redis.call('PEXPIRE', key, ms(window))
  end
  if used + cost > limit then
    return false, math.max(0, limit - used), left, cost > limit and -1 or left
  end
  return true, limit - used - cost, left, 0, now + left, function()
    if fresh then
      redis.call('SET', key, whole(cost), 'PX', ms(window))
    else
      redis.call('INCRBY', key, whole(cost))
    end
  end
end

-- This window and a share of the one before.
function laws.sliding(key, cost, limit, window)
  local number = math.floor(now / window)
  local left = window - (now - number * window)
  local kept = redis.call('HMGET', key, 'w', 'p', 'c')
  local before, count = 0, 0
  if tonumber(kept[1]) == number then
    before, count = tonumber(kept[2]), tonumber(kept[3])
  elseif tonumber(kept[1]) == number - 1 then
    before = tonumber(kept[3])
  end
  local seen = before * left / window + count
  if seen + cost > limit then
    local retry = -1
    if cost <= limit then
      if count + cost <= limit then
        retry = left - (limit - count - cost) * window / before
      else
        retry = left + math.max(0, window - (limit - cost) * window / count)
      end
      retry = math.max(0, math.ceil(retry))
    end
    return false, math.max(0, math.floor(limit - seen)), math.max(0, retry), retry
  end
  return true, math.floor(limit - seen - cost), left, 0, number, function()
    redis.call('HSET', key, 'w', whole(number), 'p', whole(before), 'c', whole(count + cost))
    redis.call('PEXPIRE', key, ms(left + window))
  end
end

-- A time for each request.
function laws.log(key, cost, limit, window)
  local since = '(' .. whole(now - window)
  local count = redis.call('ZCOUNT', key, since, '+inf')
  if count + cost > limit then
    local retry = -1
    if cost <= limit then
      -- So many have to grow old first.
      local nth = count + cost - limit - 1
      local old = redis.call('ZRANGEBYSCORE', key, since, '+inf', 'WITHSCORES', 'LIMIT', nth, 1)
      retry = tonumber(old[2]) + window - now
    end
    return false, math.max(0, limit - count), math.max(0, retry), retry
  end
  return true, limit - count - cost, window, 0, now, function()
    redis.call('ZREMRANGEBYSCORE', key, '-inf', whole(now - window))
    for i = 1, cost do
      redis.call('ZADD', key, whole(now), whole(now) .. ':' .. whole(count + i))
    end
    redis.call('PEXPIRE', key, ms(window))
  end
end

-- When the next request would be due if all came evenly.
function laws.bucket(key, cost, interval, holds)
  -- No debt is larger; what is comes from a time when the bucket was.
  local due = math.min(tonumber(redis.call('GET', key) or 0) or 0, now + 10 * holds)
  due = math.max(due, now)
  local new = due + cost * interval
  if new > now + holds then
    local never = cost * interval > holds
    local wait = math.ceil(new - holds - now)
    return false, math.max(0, math.floor((now + holds - due) / interval)), wait, never and -1 or wait
  end
  return true, math.floor((now + holds - new) / interval), math.ceil(new - now), 0, math.floor(new), function()
    redis.call('SET', key, string.format('%.3f', new), 'PX', ms(new - now))
  end
end

for i = 1, #KEYS do
  local at = (i - 1) * 4
  local cost = tonumber(ARGV[at + 2])
  local ok, remaining, reset, retry, mark, write =
    laws[ARGV[at + 1]](KEYS[i], cost, tonumber(ARGV[at + 3]), tonumber(ARGV[at + 4]))
  passed = passed and ok
  if write and cost > 0 then writes[#writes + 1] = write end
  answer[#answer + 1] = ok and 1 or 0
  answer[#answer + 1] = remaining
  answer[#answer + 1] = reset
  answer[#answer + 1] = retry
  answer[#answer + 1] = mark or 0
end
if passed then
  for _, write in ipairs(writes) do write() end
end
return answer
