-- The public functions of the plugin. See :help swiftspec.

local bridge = require("swiftspec.bridge")
local config = require("swiftspec.config")
local keys = require("swiftspec.keys")
local suggestion = require("swiftspec.suggestion")

local M = {}

local is_set_up = false

local function set_mappings()
  local chosen = config.options.keys
  local visible = suggestion.visible
  local function map(lhs, name, desc)
    keys.map(lhs, visible, ('require("swiftspec").%s()'):format(name), "swiftspec: " .. desc)
  end
  map(chosen.accept, "accept", "accept the suggestion")
  map(chosen.accept_word, "accept_word", "accept a word of the suggestion")
  map(chosen.accept_line, "accept_line", "accept a line of the suggestion")
  map(chosen.dismiss, "dismiss", "dismiss the suggestion")
end

--- The server is there before the first key. Not at once: a buffer that `:edit` has just filled
--- still loses what was attached to it before.
local function attach_soon()
  vim.schedule(function()
    local bufnr = vim.api.nvim_get_current_buf()
    if suggestion.wanted(bufnr) then
      bridge.attach(bufnr)
    end
  end)
end

local function set_autocommands()
  local group = vim.api.nvim_create_augroup("swiftspec", {})
  local function on(events, callback)
    vim.api.nvim_create_autocmd(events, { group = group, callback = callback })
  end
  on({ "InsertEnter", "TextChangedI", "TextChangedP", "CursorMovedI", "CompleteDone" }, function()
    -- Insert mode is not yet there in InsertEnter; elsewhere it comes to the same.
    vim.schedule(function()
      if vim.api.nvim_get_mode().mode:sub(1, 1) == "i" then
        suggestion.update()
      end
    end)
  end)
  on({ "InsertLeave", "BufLeave" }, suggestion.dismiss)
  on({ "BufEnter", "FileType" }, attach_soon)
end

--- Set options and start. May be called again.
--- @param options table|nil see :help swiftspec-options
function M.setup(options)
  is_set_up = true
  config.set(options)
  set_mappings()
  set_autocommands()
  attach_soon()
end

--- Start with the defaults unless setup() was called.
function M.setup_once()
  if not is_set_up then
    M.setup()
  end
end

--- Accept all that is shown. Returns whether something was.
function M.accept()
  return suggestion.take(function(left)
    return left
  end)
end

--- Accept the next word, with the blanks before it.
function M.accept_word()
  return suggestion.take(function(left)
    -- Bytes from 128 on are parts of characters beyond ASCII.
    return left:match("^%s*[%w_\128-\255]+") or left:match("^%s*[^%w%s_\128-\255]+") or left
  end)
end

--- Accept up to the end of the line, or the whole next line at the end of one.
function M.accept_line()
  return suggestion.take(function(left)
    return left:match("^\n?[^\n]*")
  end)
end

--- Hide the suggestion until the next key.
function M.dismiss()
  suggestion.dismiss()
end

--- Is ghost text on the screen?
function M.visible()
  return suggestion.visible()
end

--- Turn suggestions on or off, everywhere or in one buffer.
--- @param on boolean
--- @param bufnr integer|nil 0 for the current buffer
function M.enable(on, bufnr)
  M.setup_once()
  if bufnr then
    vim.b[bufnr].swiftspec_enabled = on
  else
    suggestion.enabled = on
  end
  if not on then
    suggestion.dismiss()
  end
end

--- What the daemon is doing, in a few words for a status line; "" where there are no suggestions.
function M.statusline()
  if not suggestion.enabled or not suggestion.wanted(vim.api.nvim_get_current_buf()) then
    return ""
  end
  local status = bridge.status
  local percent = status.progress and ("%d%%"):format(100 * status.progress)
  local state = status.state == "unreachable" and "not reachable" or status.state
  return table.concat({ "swiftspec:", state, percent }, " ")
end

--- Say in one line what the daemon is doing, and why there may be no suggestions.
function M.status()
  local bufnr = vim.api.nvim_get_current_buf()
  local text
  if not suggestion.enabled or vim.b[bufnr].swiftspec_enabled == false then
    text = "disabled"
  elseif not suggestion.wanted(bufnr) then
    text = "not in this buffer"
  elseif not bridge.client(bufnr) then
    text = bridge.executable() and "the language server is not running (it starts in insert mode)"
      or ("cannot run " .. config.options.cmd[1])
  else
    local status = bridge.status
    text = table.concat(
      vim.tbl_filter(function(part)
        return part and part ~= ""
      end, { status.state, status.model, status.reason, status.hint }),
      " · "
    )
  end
  vim.notify("swiftspec: " .. text)
  return text
end

return M
