-- What all scripts begin with: the laws that limits are counted by.
--
-- laws.LAW.look(key, cost, limit, window): whether a request passes; remaining, reset in us, retry in us
-- (-1: never), the mark (to what it is charged), and what charges it.
-- laws.LAW.settle(key, more, limit, window, mark): charges without a question, or gives back. What is given
-- back goes to where it was charged (the mark), or nowhere when that is over: it makes no room for others.
-- Of a bucket the limit is its interval in us (may be a fraction) and the window what it holds, in us.
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]

local function whole(n) return string.format('%.0f', n) end
local function ms(us) return whole(math.max(1, math.ceil(us / 1000))) end

-- Ends of windows are known by times to live and the clock, which a busy machine reads at different
-- moments. Another window ends a window later.
local function same_window(a, b, window)
  return math.abs(a - b) <= math.max(5000, math.min(window / 4, 1000000))
end

-- Debt is bounded: who got one dear answer is not shut out for ever, and a number that no count can hold
-- is none that stops all that comes with it.
local function owed(more, used, limit)
  return math.min(more, math.max(0, 10 * limit - used))
end

-- Of a log: twice what the largest one lets pass.
local most_logged = 2000

local laws = { fixed = {}, sliding = {}, log = {}, bucket = {} }

-- A number with a time to live: the window begins with its first request. Written as Apache APISIX
-- writes it, so that both can share it.
function laws.fixed.look(key, cost, limit, window)
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
    return false, math.max(0, limit - used), left, cost > limit and -1 or left, now + left
  end
  return true, limit - used - cost, left, 0, now + left, function()
    if fresh then
      redis.call('SET', key, whole(cost), 'PX', ms(window))
    else
      redis.call('INCRBY', key, whole(cost))
    end
  end
end

function laws.fixed.settle(key, more, limit, window, mark)
  local used = tonumber(redis.call('GET', key) or 0) or 0
  local left = redis.call('PTTL', key) * 1000
  if left <= 0 then
    if more > 0 then redis.call('SET', key, whole(owed(more, 0, limit)), 'PX', ms(window)) end
  elseif more > 0 then
    redis.call('INCRBY', key, whole(owed(more, used, limit)))
  elseif same_window(now + left, mark, window) then
    redis.call('INCRBY', key, whole(math.max(more, -used)))
  end
end

-- This window and a share of the one before.
function laws.sliding.kept(key, window)
  local number = math.floor(now / window)
  local left = window - (now - number * window)
  local kept = redis.call('HMGET', key, 'w', 'p', 'c')
  if tonumber(kept[1]) == number then
    return number, left, tonumber(kept[2]), tonumber(kept[3])
  elseif tonumber(kept[1]) == number - 1 then
    return number, left, tonumber(kept[3]), 0
  elseif tonumber(kept[1]) == number + 1 then
    -- The clock went back over the edge: the window that had begun goes on.
    return number + 1, window, tonumber(kept[2]), tonumber(kept[3])
  end
  return number, left, 0, 0
end

function laws.sliding.keep(key, number, before, count, ttl)
  redis.call('HSET', key, 'w', whole(number), 'p', whole(before), 'c', whole(count))
  redis.call('PEXPIRE', key, ms(ttl))
end

function laws.sliding.look(key, cost, limit, window)
  local number, left, before, count = laws.sliding.kept(key, window)
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
    return false, math.max(0, math.floor(limit - seen)), math.max(0, retry), retry, number
  end
  return true, math.floor(limit - seen - cost), left, 0, number, function()
    laws.sliding.keep(key, number, before, count + cost, left + window)
  end
end

function laws.sliding.settle(key, more, limit, window, mark)
  local number, left, before, count = laws.sliding.kept(key, window)
  if more > 0 then
    count = count + owed(more, count, limit)
  elseif mark == number then
    count = math.max(0, count + more)
  elseif mark == number - 1 then
    before = math.max(0, before + more)
  else
    return
  end
  laws.sliding.keep(key, number, before, count, left + window)
end

-- A time for each request. Those of one moment have different names, whichever of them were taken back.
function laws.log.add(key, many, window)
  redis.call('ZREMRANGEBYSCORE', key, '-inf', whole(now - window))
  local last = 0
  for _, name in ipairs(redis.call('ZRANGEBYSCORE', key, whole(now), whole(now))) do
    last = math.max(last, tonumber(string.match(name, ':(%d+)$')))
  end
  for i = 1, many do
    redis.call('ZADD', key, whole(now), whole(now) .. ':' .. whole(last + i))
  end
  redis.call('PEXPIRE', key, ms(window))
end

function laws.log.look(key, cost, limit, window)
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
    return false, math.max(0, limit - count), math.max(0, retry), retry, now
  end
  return true, limit - count - cost, window, 0, now, function()
    laws.log.add(key, cost, window)
  end
end

function laws.log.settle(key, more, limit, window, mark)
  if more < 0 then
    local many = whole(math.min(-more, most_logged))
    local mine = redis.call('ZRANGEBYSCORE', key, whole(mark), whole(mark), 'LIMIT', 0, many)
    if #mine > 0 then redis.call('ZREM', key, unpack(mine)) end
    return
  end
  -- Debt is bounded: who got one dear answer is not remembered without end.
  local count = redis.call('ZCOUNT', key, '(' .. whole(now - window), '+inf')
  laws.log.add(key, math.min(more, limit, math.max(0, 2 * limit - count)), window)
end

-- When the next request would be due if all came evenly.
function laws.bucket.look(key, cost, interval, holds)
  -- No debt is larger; what is comes from a time when the bucket was.
  local due = math.min(tonumber(redis.call('GET', key) or 0) or 0, now + 10 * holds)
  due = math.max(due, now)
  local new = due + cost * interval
  if new > now + holds then
    local never = cost * interval > holds
    local wait = math.ceil(new - holds - now)
    local left = math.max(0, math.floor((now + holds - due) / interval))
    return false, left, wait, never and -1 or wait, math.floor(due)
  end
  return true, math.floor((now + holds - new) / interval), math.ceil(new - now), 0, math.floor(new), function()
    redis.call('SET', key, string.format('%.3f', new), 'PX', ms(new - now))
  end
end

function laws.bucket.settle(key, more, interval, holds, mark)
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
