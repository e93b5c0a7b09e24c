-- Charges a request on all its limits, or on none.
-- KEYS: one for each limit. ARGV: for each of them: law, cost, limit, window in us.
-- Answer: for each limit: passed, remaining, reset in us, retry in us (-1: never), and the mark for
-- settle.lua.
local answer, writes, passed = {}, {}, true
for i = 1, #KEYS do
  local at = (i - 1) * 4
  local cost = tonumber(ARGV[at + 2])
  local ok, remaining, reset, retry, mark, write =
    laws[ARGV[at + 1]].look(KEYS[i], cost, tonumber(ARGV[at + 3]), tonumber(ARGV[at + 4]))
  passed = passed and ok
  if write and cost > 0 then writes[#writes + 1] = write end
  answer[#answer + 1] = ok and 1 or 0
  answer[#answer + 1] = remaining
  answer[#answer + 1] = reset
  answer[#answer + 1] = retry
  answer[#answer + 1] = ok and mark or 0
end
if passed then
  for _, write in ipairs(writes) do write() end
end
return answer
