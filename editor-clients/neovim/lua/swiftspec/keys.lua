-- Mappings that do what the key did before when there is nothing to accept.
-- Knows Neovim's mappings; knows nothing of suggestions.

local M = {}

--- What `lhs` did before, as the value of an expression mapping.
local function fallback(old, lhs)
  if vim.tbl_isempty(old) then
    return lhs
  end
  if old.callback then
    if old.expr == 1 then
      return old.callback() or ""
    end
    vim.schedule(old.callback)
    return ""
  end
  if old.expr == 1 then
    return vim.api.nvim_eval(old.rhs)
  end
  local keys = vim.api.nvim_replace_termcodes(old.rhs, true, true, true)
  vim.api.nvim_feedkeys(keys, old.noremap == 1 and "n" or "m", false)
  return ""
end

--- Map an insert-mode key.
--- @param lhs string|false
--- @param visible fun(): boolean whether the key is ours now
--- @param action string Lua code that does the work
function M.map(lhs, visible, action, desc)
  if not lhs then
    return
  end
  local old = vim.fn.maparg(lhs, "i", false, true)
  if old.desc == desc then
    return -- ours already
  end
  vim.keymap.set("i", lhs, function()
    if visible() then
      return ("<Cmd>lua %s<CR>"):format(action)
    end
    return fallback(old, lhs)
  end, { expr = true, desc = desc })
end

return M
