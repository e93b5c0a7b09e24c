-- Charges afterwards, or gives back, without a question: what a request really cost.
-- KEYS: one for each limit. ARGV: for each of them: law, difference, limit, window, mark, as in check.lua.
for i = 1, #KEYS do
  local at = (i - 1) * 5
  local number = function(n) return tonumber(ARGV[at + n]) end
  laws[ARGV[at + 1]].settle(KEYS[i], number(2), number(3), number(4), number(5))
end
return #KEYS
