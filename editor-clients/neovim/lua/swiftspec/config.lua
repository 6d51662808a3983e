-- The options and their defaults. Knows nothing of what they are used for.

local M = {}

M.defaults = {
  -- The program that speaks the Language Server Protocol.
  cmd = { "swiftspec", "lsp" },
  -- Insert-mode keys; false sets no mapping.
  keys = {
    accept = "<Tab>", -- the whole suggestion; does what it did before when none is shown
    accept_word = "<M-w>",
    accept_line = "<M-l>",
    dismiss = "<C-]>",
  },
  -- Milliseconds to wait after a key before asking. The daemon cancels what is out of date, so
  -- that waiting only makes the answer later.
  debounce_ms = 0,
  -- Lines of a suggestion; nil leaves it to the daemon's settings.
  max_lines = nil,
  -- No suggestions in files with more bytes than this.
  max_file_bytes = 8 * 1024 * 1024,
  -- No suggestions in these file types.
  disabled_filetypes = { "help", "gitrebase", "TelescopePrompt" },
}

M.options = vim.deepcopy(M.defaults)

--- Take the user's options.
--- @param options table|nil
function M.set(options)
  M.options = vim.tbl_deep_extend("force", vim.deepcopy(M.defaults), options or {})
end

return M
