-- Hands out permits: what a gateway takes it may spend without asking again. They are charged like
-- requests (KEYS[1], by check.lua's laws) before they are spent; a book (KEYS[2]) knows who may hold some.
-- ARGV: law, limit, window in us, node, number of the ask, wanted, given back, spent beyond what was had,
-- the mark that the last two belong to, still held, the most that all may hold (0: no bound), for how
-- long permits are good in us (where no window ends), now in us (empty: the server's clock).
-- Answer: permits, left to hand out, reset in us, retry in us, good for in us, the mark, gateways seen,
-- permits that others may hold.
local key, book = KEYS[1], KEYS[2]
local law, limit, window = laws[ARGV[1]], tonumber(ARGV[2]), tonumber(ARGV[3])
local me, number, wanted = 'n:' .. ARGV[4], tonumber(ARGV[5]), tonumber(ARGV[6])
local back, over, of = tonumber(ARGV[7]), tonumber(ARGV[8]), tonumber(ARGV[9])
local held, most, keeps = tonumber(ARGV[10]), tonumber(ARGV[11]), tonumber(ARGV[12])
if ARGV[13] ~= '' then now = tonumber(ARGV[13]) end
local windows = ARGV[1] == 'fixed'

-- Who was seen, what they were granted last and what they may hold until when.
local kept, before, last = redis.call('HGETALL', book), 0, nil
local nodes, seen, others, mine = {}, 0, 0, nil
for i = 1, #kept, 2 do
  if kept[i] == 'before' then before = tonumber(kept[i + 1])
  elseif kept[i] == 'end' then last = tonumber(kept[i + 1])
  else nodes[kept[i]] = kept[i + 1] end
end
if windows then
  local _, free, left, _, mark = law.look(key, 0, limit, window)
  if wanted == 0 and over == 0 and redis.call('EXISTS', key) == 0 then
    -- No window runs, and none begins because of what is given back to another.
    return { 0, free, left, 0, math.max(0, left - 1000), mark, 0, 0 }
  end
  if redis.call('EXISTS', key) == 0 or not last or not same_window(mark, last, window) then
    -- Another window. A node that came in the last one is likely to come again: the first must not
    -- take half.
    local count = 0
    for _ in pairs(nodes) do count = count + 1 end
    local fresh = last and now < last + window
    before = fresh and math.ceil(math.max(count, before) / 4) or 0
    nodes, last = {}, mark
    redis.call('DEL', book)
  end
  -- Times to live are known to a millisecond: permits end before their window does.
  keeps = math.max(0, math.min(left, last - now) - 1000)
end
for node, record in pairs(nodes) do
  local n, permits, out, ends = string.match(record, '^(%d+):(%d+):(%d+):(%d+)$')
  if not windows and tonumber(ends) <= now then
    redis.call('HDEL', book, node)
  elseif node == me then
    mine = { tonumber(n), tonumber(permits), tonumber(out), tonumber(ends) }
    seen = seen + 1
  else
    others = others + tonumber(out)
    seen = seen + 1
  end
end

local function answer(permits, ends)
  local _, left, reset = law.look(key, 0, limit, window)
  local _, _, _, retry = law.look(key, 1, limit, window)
  local good = windows and keeps or math.max(0, ends - now)
  return { permits, left, reset, retry, good, of, math.max(seen, before), others }
end

-- The same ask once more, because its answer was lost: the same answer. An older one, which was under
-- way for long: its gateway does not wait for it any more.
if mine and number <= mine[1] then
  local _, _, _, _, mark = law.look(key, 0, limit, window)
  of = windows and last or mark
  return answer(number == mine[1] and mine[2] or 0, mine[4])
end

if back > 0 then law.settle(key, -back, limit, window, of) end
if over > 0 then law.settle(key, over, limit, window, of) end
if not mine then seen = seen + 1 end
local _, left = law.look(key, 0, limit, window)
local permits = 0
if wanted > 0 and left > 0 then
  permits = math.floor(left / (2 * math.max(seen, before)))
  permits = math.min(left, math.max(1, math.min(permits, wanted)))
  if most > 0 then permits = math.max(0, math.min(permits, most - others - held)) end
end
local _, _, _, _, mark, write = law.look(key, permits, limit, window)
if write and permits > 0 then write() end
of = windows and last or mark
local ends = now + keeps
local record = { whole(number), whole(permits), whole(held + permits), whole(ends) }
redis.call('HSET', book, me, table.concat(record, ':'))
if windows then redis.call('HSET', book, 'end', whole(last), 'before', whole(before)) end
-- Others may hold for longer than this one does.
local lasts = ms(windows and 2 * window or 2 * keeps)
if redis.call('PTTL', book) < tonumber(lasts) then redis.call('PEXPIRE', book, lasts) end
return answer(permits, ends)
