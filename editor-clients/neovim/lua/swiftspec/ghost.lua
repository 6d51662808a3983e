-- Ghost text: one extmark in a buffer. Knows the screen; knows nothing of where text comes from.

local M = {}

M.namespace = vim.api.nvim_create_namespace("swiftspec")

local MARK = 1
local HIGHLIGHT = "SwiftspecGhost"

--- A grey of the terminal's palette, whatever its background is.
local function terminal_grey()
  local colors = tonumber(vim.api.nvim_eval("&t_Co")) or 256
  return colors >= 256 and 244 or colors >= 16 and 8 or 4
end

--- Define the highlight group, unless the user or the colour scheme does. Each time, since a colour
--- scheme clears it.
local function set_highlight()
  local like = vim.api.nvim_get_hl(0, { name = "NonText", link = false })
  if like.ctermfg then
    vim.api.nvim_set_hl(0, HIGHLIGHT, { link = "NonText", default = true })
    return
  end
  -- Neovim's own scheme gives NonText no colour outside 'termguicolors'.
  like.default = true
  like.ctermfg = terminal_grey()
  vim.api.nvim_set_hl(0, HIGHLIGHT, like)
end

--- Virtual text does not expand tabs itself.
--- @param text string one line
--- @param column integer display column that it starts at, from 0
local function expand_tabs(text, column, tabstop)
  if not text:find("\t", 1, true) then
    return text
  end
  local pieces = {}
  for piece, tab in text:gmatch("([^\t]*)(\t?)") do
    column = column + vim.fn.strdisplaywidth(piece, column)
    pieces[#pieces + 1] = piece
    if tab ~= "" then
      local width = tabstop - column % tabstop
      pieces[#pieces + 1] = (" "):rep(width)
      column = column + width
    end
  end
  return table.concat(pieces)
end

--- Show `text` at a byte position; it moves what is there, or lies behind and below the line's end.
--- @param bufnr integer
--- @param row integer from 0
--- @param col integer bytes from 0
--- @param text string with "\n" between lines
function M.show(bufnr, row, col, text)
  set_highlight()
  local tabstop = vim.bo[bufnr].tabstop
  local lines = vim.split(text, "\n", { plain = true })
  local before = vim.api.nvim_buf_get_text(bufnr, row, 0, row, col, {})[1]
  local mark = { id = MARK, hl_mode = "combine", undo_restore = false }
  if lines[1] ~= "" then
    local shown = expand_tabs(lines[1], vim.fn.strdisplaywidth(before), tabstop)
    mark.virt_text = { { shown, HIGHLIGHT } }
    mark.virt_text_pos = "inline"
  end
  if #lines > 1 then
    mark.virt_lines = {}
    for index = 2, #lines do
      mark.virt_lines[index - 1] = { { expand_tabs(lines[index], 0, tabstop), HIGHLIGHT } }
    end
  end
  vim.api.nvim_buf_set_extmark(bufnr, M.namespace, row, col, mark)
end

--- Show nothing.
--- @param bufnr integer
function M.clear(bufnr)
  if vim.api.nvim_buf_is_valid(bufnr) then
    vim.api.nvim_buf_clear_namespace(bufnr, M.namespace, 0, -1)
  end
end

return M
