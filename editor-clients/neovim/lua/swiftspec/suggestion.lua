-- The suggestion of the current buffer: asked for, arriving, typed along, taken or dropped.
-- There is at most one, since there is one cursor. Knows buffers and text; the protocol is in
-- bridge.lua, the screen in ghost.lua.

local bridge = require("swiftspec.bridge")
local config = require("swiftspec.config")
local ghost = require("swiftspec.ghost")

local M = {}

-- The suggestion, or nil:
--   bufnr, row, col   where it was asked for (from 0, bytes)
--   head, tail        what stood before and behind that place, in its line
--   token, request    of the request; `request` is nil once it has ended
--   id                for feedback
--   raw, text         what has arrived, and the same with "\n" line ends
--   showable          whether the first line is whole
--   shown, accepted   what has been told as feedback
local current = nil
local next_token = 0
-- Whether the user wants none until the next key.
local dismissed = false
local timer = nil

--- The cursor, from 0.
local function cursor()
  local row, col = unpack(vim.api.nvim_win_get_cursor(0))
  return row - 1, col
end

local function in_insert_mode()
  return vim.api.nvim_get_mode().mode:sub(1, 1) == "i"
end

--- What has been typed since the suggestion was asked for, or nil if something else was changed.
local function typed(s)
  if s.bufnr ~= vim.api.nvim_get_current_buf() then
    return nil
  end
  local row, col = cursor()
  if row < s.row or (row == s.row and col < s.col) then
    return nil
  end
  local line = vim.api.nvim_get_current_line()
  local first = vim.api.nvim_buf_get_lines(s.bufnr, s.row, s.row + 1, false)[1]
  if first:sub(1, s.col) ~= s.head or line:sub(col + 1) ~= s.tail then
    return nil
  end
  return table.concat(vim.api.nvim_buf_get_text(s.bufnr, s.row, s.col, row, col, {}), "\n")
end

--- What is left of the suggestion behind the cursor; nil if the user went another way.
local function rest(s)
  local along = typed(s)
  if along and s.text:sub(1, #along) == along then
    return s.text:sub(#along + 1)
  end
end

--- Forget the suggestion, and stop it if it is still arriving.
local function drop()
  local s = current
  current = nil
  if not s then
    return
  end
  ghost.clear(s.bufnr)
  if s.request then
    local client = bridge.client(s.bufnr)
    if client then
      bridge.cancel(client, s.request)
    end
  end
  if s.shown and not s.accepted then
    bridge.feedback(s.bufnr, { id = s.id, kind = "rejected" })
  end
end

local function menu_is_open()
  return vim.fn.pumvisible() == 1
end

--- Show what is left, if there is something to show.
local function paint(s)
  local left = rest(s)
  if not left or left == "" or not s.showable or menu_is_open() then
    ghost.clear(s.bufnr)
    return
  end
  local row, col = cursor()
  ghost.show(s.bufnr, row, col, left)
  if not s.shown then
    s.shown = true
    bridge.feedback(s.bufnr, { id = s.id, kind = "shown" })
  end
end

--- Take in more text.
local function extend(s, raw)
  s.raw = raw
  -- A file with DOS line ends has none in its buffer; half a line end waits for its other half.
  s.text = raw:gsub("\r\n", "\n"):gsub("\r$", "")
end

--- May suggestions be shown in this buffer?
function M.wanted(bufnr)
  local options = config.options
  if not M.enabled or vim.b[bufnr].swiftspec_enabled == false then
    return false
  end
  if not vim.api.nvim_buf_is_loaded(bufnr) then
    return false -- as while Neovim starts
  end
  if vim.bo[bufnr].buftype ~= "" or not vim.bo[bufnr].modifiable or vim.bo[bufnr].readonly then
    return false
  end
  if vim.tbl_contains(options.disabled_filetypes, vim.bo[bufnr].filetype) then
    return false
  end
  local lines = vim.api.nvim_buf_line_count(bufnr)
  return vim.api.nvim_buf_get_offset(bufnr, lines) <= options.max_file_bytes
end

M.enabled = true

local function ask()
  local bufnr = vim.api.nvim_get_current_buf()
  local client = bridge.client(bufnr)
  if not client or not in_insert_mode() or menu_is_open() then
    return
  end
  drop()
  next_token = next_token + 1
  local row, col = cursor()
  local line = vim.api.nvim_get_current_line()
  local s = {
    bufnr = bufnr,
    row = row,
    col = col,
    head = line:sub(1, col),
    tail = line:sub(col + 1),
    token = next_token,
    raw = "",
    text = "",
  }
  current = s
  s.request = bridge.complete(client, bufnr, s.token, function(err, result)
    s.request = nil
    if current ~= s then
      return
    end
    if err or not result or result.text == "" then
      drop()
      return
    end
    s.id = result.id
    s.showable = true
    extend(s, result.text)
    paint(s)
  end)
end

--- Ask as soon as Neovim has worked through the keys that it has, or after the debounce.
local function ask_soon()
  if timer then
    timer:stop()
  end
  timer = timer or vim.uv.new_timer()
  timer:start(config.options.debounce_ms, 0, vim.schedule_wrap(ask))
end

bridge.on_delta = function(delta)
  local s = current
  if not s or s.token ~= delta.token then
    return
  end
  s.id = delta.id
  s.showable = s.showable or delta.firstLine or false
  if delta.text ~= "" then
    extend(s, s.raw .. delta.text)
  end
  paint(s)
end

bridge.on_ready = function()
  local bufnr = vim.api.nvim_get_current_buf()
  if not current and not dismissed and in_insert_mode() and M.wanted(bufnr) then
    ask_soon()
  end
end

--- Something was typed, or the cursor was moved.
function M.update()
  dismissed = false
  local bufnr = vim.api.nvim_get_current_buf()
  if not M.wanted(bufnr) then
    drop()
    return
  end
  bridge.attach(bufnr)
  if menu_is_open() then
    drop()
    return
  end
  local s = current
  local left = s and rest(s)
  if s and left and (left ~= "" or s.request) and (s.text ~= "" or typed(s) == "") then
    paint(s) -- typing along, or still at the place that was asked for
    return
  end
  drop()
  ask_soon()
end

--- Show nothing more until the next key.
function M.dismiss()
  dismissed = true
  if timer then
    timer:stop()
  end
  drop()
end

--- Is ghost text on the screen?
function M.visible()
  local left = current and current.showable and rest(current)
  return left ~= nil and left ~= false and left ~= "" and not menu_is_open()
end

--- Is a suggestion still arriving?
function M.arriving()
  return current ~= nil and current.request ~= nil
end

--- Code points of what stands in the buffer of the suggestion now.
local function characters_taken(s)
  local taken = typed(s) or ""
  local count = vim.fn.strchars(taken)
  if s.raw:find("\r\n", 1, true) then
    count = count + select(2, taken:gsub("\n", ""))
  end
  return count
end

--- Put a piece of the suggestion into the buffer.
--- @param choose fun(left: string): string the part to take, from its start
function M.take(choose)
  local s = current
  if not s or not M.visible() then
    return false
  end
  local left = rest(s)
  local piece = choose(left)
  local lines = vim.split(piece, "\n", { plain = true })
  local row, col = cursor()
  vim.bo.undolevels = vim.bo.undolevels -- what is taken is undone on its own
  ghost.clear(s.bufnr)
  vim.api.nvim_buf_set_text(s.bufnr, row, col, row, col, lines)
  local last = #lines == 1 and col + #piece or #lines[#lines]
  vim.api.nvim_win_set_cursor(0, { row + #lines, last })
  s.accepted = true
  local all = piece == left and not s.request
  local characters = not all and characters_taken(s) or nil
  bridge.feedback(s.bufnr, { id = s.id, kind = "accepted", characters = characters })
  M.update()
  return true
end

return M
