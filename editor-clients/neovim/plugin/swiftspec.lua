-- Loaded by Neovim at start: only commands, and the set-up at the first insert mode.
-- Everything else is in lua/swiftspec/ and is loaded when it is needed.

if vim.g.loaded_swiftspec or vim.fn.has("nvim-0.10") == 0 then
  return
end
vim.g.loaded_swiftspec = 1

local command = vim.api.nvim_create_user_command

command("SwiftspecStatus", function()
  require("swiftspec").status()
end, { desc = "Say what the completion daemon is doing" })

command("SwiftspecEnable", function(call)
  require("swiftspec").enable(true, call.bang and 0 or nil)
end, { bang = true, desc = "Show completions (!: in this buffer)" })

command("SwiftspecDisable", function(call)
  require("swiftspec").enable(false, call.bang and 0 or nil)
end, { bang = true, desc = "Show no completions (!: in this buffer)" })

-- Without a call of setup() the defaults are used.
vim.api.nvim_create_autocmd("InsertEnter", {
  once = true,
  callback = function()
    require("swiftspec").setup_once()
  end,
})
