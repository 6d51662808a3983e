"""Neovim's own `vim.lsp.inline_completion` (0.12) against the bridge, without our plugin."""

from swiftspec_daemon.protocol import messages as wire

SETUP = """
vim.lsp.config("swiftspec", {{ cmd = {command} }})
vim.lsp.enable("swiftspec")
vim.lsp.inline_completion.enable()
vim.keymap.set("i", "<Tab>", function()
  if not vim.lsp.inline_completion.get() then
    return "<Tab>"
  end
end, {{ expr = true }})
"""
NAMESPACE = "nvim.lsp.inline_completion"


def test_ghost_text_and_accept(newest_neovim, scripted, daemon, start_neovim, plugin):
    command = plugin.command(start_daemon=False)
    session = start_neovim(newest_neovim, SETUP.format(command=command), daemon.home)
    session.open("a.py")
    session.until_attached()
    session.input("idef fib")
    session.until_ghost("(n):\n    return n", NAMESPACE)
    session.input("<Tab>")
    session.until_lines(["def fib(n):", "    return n"])
    scripted.until(lambda: daemon.of_kind(wire.Accepted))
    assert daemon.hellos[-1].client.startswith("Neovim/0.12")
    # The ghost text's request or a later one of the same place: Neovim asks again by itself.
    assert "def fib" in {before for _, before in daemon.seen}


def test_characters_of_several_bytes(newest_neovim, daemon, start_neovim, plugin):
    command = plugin.command(start_daemon=False)
    session = start_neovim(newest_neovim, SETUP.format(command=command), daemon.home)
    daemon.text = "𝒳é"
    session.open("a.py")
    session.until_attached()
    session.input('ix = "語𝒳')
    session.until(lambda: 'x = "語𝒳' in {before for _, before in daemon.seen}, "never asked")
    session.until_ghost("𝒳é", NAMESPACE)
    session.input("<Tab>")
    session.until_lines(['x = "語𝒳𝒳é'])
