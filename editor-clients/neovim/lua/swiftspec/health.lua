-- :checkhealth swiftspec

local M = {}

function M.check()
  local bridge = require("swiftspec.bridge")
  local config = require("swiftspec.config")
  local health = vim.health

  health.start("swiftspec")
  if vim.fn.has("nvim-0.10") == 1 then
    health.ok("Neovim " .. tostring(vim.version()))
  else
    health.error("Neovim 0.10 or later is needed")
  end

  local program = config.options.cmd[1]
  if not bridge.executable() then
    health.error(("cannot run %q"):format(program), {
      "Install swiftspec-daemon, or",
      'name the program: require("swiftspec").setup({ cmd = { "/path/to/swiftspec", "lsp" } })',
    })
    return
  end
  health.ok(vim.fn.exepath(program))

  if #vim.lsp.get_clients({ name = "swiftspec" }) == 0 then
    health.info("the language server is not running; it starts with insert mode")
  else
    local status = bridge.status
    local text = "daemon: " .. status.state
    if status.reason and status.state ~= "connecting" then
      text = text .. ": " .. status.reason -- "connecting" says it all
    end
    if status.state == "ready" or status.state == "unloaded" then
      health.ok(text)
    else
      health.warn(text, status.hint and { status.hint } or nil)
    end
  end

  for name, lhs in pairs(config.options.keys) do
    local map = lhs and vim.fn.maparg(lhs, "i", false, true)
    if map and not vim.tbl_isempty(map) and not vim.startswith(map.desc or "", "swiftspec") then
      health.warn(("%s (%s) is mapped by something else"):format(lhs, name))
    end
  end
  health.info("more: run `swiftspec doctor` in a terminal")
end

return M
