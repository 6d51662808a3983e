-- The language server `swiftspec lsp`: starts it, and speaks its methods.
-- Knows the Language Server Protocol; knows nothing of suggestions or of the screen.

local config = require("swiftspec.config")

local M = {}

-- What the daemon last said of itself: { state = "ready", reason = "…" }.
M.status = { state = "connecting" }

-- Called when a request that had no answer may have one now. Set by suggestion.lua.
M.on_ready = function() end

-- Called with the parameters of each `swiftspec/delta`. Set by suggestion.lua.
M.on_delta = function() end

local RESTART_MS = 5000
local last_start = -RESTART_MS
local client_id = nil -- of the server that was started last
local said_missing = false

--- States in which the daemon takes requests; it answers them once its model is loaded.
local taking = { ready = true, loading = true }

--- Take in what the daemon says of itself.
local function set_status(status)
  local before = M.status.state
  M.status = status
  vim.cmd.redrawstatus({ bang = true }) -- for those who show it there
  local back = status.state == "unloaded" and (before == "connecting" or before == "unreachable")
  if status.state ~= before and (taking[status.state] or back) then
    M.on_ready()
  end
end

local handlers = {
  ["swiftspec/delta"] = function(_, params)
    M.on_delta(params)
  end,
  ["swiftspec/didChangeStatus"] = function(_, params)
    set_status(params)
  end,
}

--- Since 0.11 a client's functions are methods.
local function call(client, name, ...)
  if vim.fn.has("nvim-0.11") == 1 then
    return client[name](client, ...)
  end
  return client[name](...)
end

--- The server that was started last, also while it is still being initialized (get_clients() leaves
--- such a one out); nil if it has ended.
local function started()
  local client = client_id and vim.lsp.get_client_by_id(client_id)
  return client and not call(client, "is_stopped") and client or nil
end

--- The running server that this buffer is attached to, if it is ready.
--- @param bufnr integer
function M.client(bufnr)
  for _, client in ipairs(vim.lsp.get_clients({ name = "swiftspec", bufnr = bufnr })) do
    if client.initialized and not call(client, "is_stopped") then
      return client
    end
  end
end

--- Whether the program is there.
function M.executable()
  return vim.fn.executable(config.options.cmd[1]) == 1
end

--- Attach a buffer to the server; the first one starts it.
--- @param bufnr integer
function M.attach(bufnr)
  local running = started()
  if running and running.attached_buffers[bufnr] then
    return
  end
  local now = vim.uv.now()
  if not running and now - last_start < RESTART_MS then
    return -- it ended at once; do not start it at every key
  end
  if not running and not M.executable() then
    if not said_missing then
      said_missing = true
      local text = "swiftspec: cannot run %q. See :checkhealth swiftspec"
      vim.notify(text:format(config.options.cmd[1]), vim.log.levels.WARN)
    end
    return
  end
  if not running then
    last_start = now
  end
  client_id = vim.lsp.start({
    name = "swiftspec",
    cmd = config.options.cmd,
    handlers = handlers,
    -- Ghost text is ours; a second copy in the completion menu would only disturb.
    init_options = { plainCompletion = false },
    on_attach = function()
      M.on_ready() -- keys may have come before the server was there
    end,
    on_exit = vim.schedule_wrap(function()
      set_status({ state = "connecting" })
    end),
  }, {
    bufnr = bufnr,
    -- One server for all buffers, whatever their projects.
    reuse_client = function(client)
      return client.name == "swiftspec" and not call(client, "is_stopped")
    end,
  })
end

--- Ask for a completion at the cursor.
--- @param client table
--- @param bufnr integer
--- @param token integer names the deltas that belong to this request
--- @param callback fun(err: table|nil, result: table|nil)
--- @return integer|nil request
function M.complete(client, bufnr, token, callback)
  local params = vim.lsp.util.make_position_params(0, client.offset_encoding)
  params.partialToken = token
  params.triggerKind = 2
  params.maxLines = config.options.max_lines
  -- Neovim sends what has been edited before it sends a request.
  local ok, request = call(client, "request", "swiftspec/complete", params, callback, bufnr)
  return ok and request or nil
end

--- Stop a request.
function M.cancel(client, request)
  if not call(client, "is_stopped") then
    call(client, "cancel_request", request)
  end
end

--- Say what became of a completion.
--- @param bufnr integer
--- @param feedback table { id = …, kind = "shown"|"accepted"|"rejected", characters = …|nil }
function M.feedback(bufnr, feedback)
  local client = M.client(bufnr)
  if client then
    call(client, "notify", "swiftspec/feedback", feedback)
  end
end

--- End the server; it starts again at the next attach.
function M.stop()
  local client = started()
  if client then
    call(client, "stop")
  end
  last_start = -RESTART_MS
end

return M
