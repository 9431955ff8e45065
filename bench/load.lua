-- wrk's requests, from the file that FASTATTN_LOAD names: lines of path, body and the answer's own part (or nothing).
-- Answers come back with the id of their request where the server has ids: those that differ are counted.
local requests, expected = {}, {}
local count, at = 0, 0
different, compared, failed = 0, 0, 0
local threads = {}

function setup(thread)
  table.insert(threads, thread)
end

function init()
  for line in io.lines(os.getenv("FASTATTN_LOAD")) do
    local path, body, answer = line:match("^([^\t]*)\t([^\t]*)\t(.*)$")
    count = count + 1
    local headers = { ["Content-Type"] = "application/json", ["X-Request-ID"] = tostring(count) }
    requests[count] = wrk.format("POST", path, headers, body)
    expected[count] = answer
  end
end

function request()
  at = at % count + 1
  return requests[at]
end

function response(status, headers, body)
  if status ~= 200 then failed = failed + 1 end
  local number = tonumber(headers["x-request-id"])
  if number and expected[number] ~= "" then
    compared = compared + 1
    if body ~= expected[number] then different = different + 1 end
  end
end

function done(summary, latency, all)
  local sums = { different = 0, compared = 0, failed = 0 }
  for _, thread in ipairs(threads) do
    for name in pairs(sums) do sums[name] = sums[name] + thread:get(name) end
  end
  local errors = summary.errors
  io.write(string.format(
    '\n{"seconds": %f, "requests": %d, "p50_ms": %f, "p99_ms": %f, "failed": %d, "compared": %d, "different": %d}\n',
    summary.duration / 1e6, summary.requests, latency:percentile(50) / 1e3, latency:percentile(99) / 1e3,
    sums.failed + errors.connect + errors.read + errors.write + errors.timeout, sums.compared, sums.different))
end
