"""The plugin's colours and help, in a real Neovim."""

import shutil

import pytest

# --- colours --------------------------------------------------------------------------------------

COLOURS = """
vim.o.background = ...
local function resolved(name) return vim.api.nvim_get_hl(0, { name = name, link = false }) end
require("swiftspec.ghost").show(0, 0, 0, "x")
return { ghost = resolved("SwiftspecGhost"), text = resolved("Normal") }"""


@pytest.mark.parametrize("background", ["dark", "light"])
@pytest.mark.parametrize("scheme", ["default", "vim", "habamax", "quiet", "elflord", "none"])
def test_ghost_text_has_a_colour_of_its_own(session, background, scheme):
    session.nvim.command("highlight clear" if scheme == "none" else f"colorscheme {scheme}")
    try:
        found = session.lua(COLOURS, background)
        for key in ("fg", "ctermfg"):
            assert found["ghost"].get(key) is not None
            assert found["ghost"][key] != found["text"].get(key), (key, found)
    finally:
        session.nvim.command("set background=dark | colorscheme default")


def test_the_users_colour_is_kept(session):
    session.nvim.command("highlight SwiftspecGhost ctermfg=5 guifg=#123456")
    try:
        found = session.lua(COLOURS, "dark")["ghost"]
        assert found["fg"] == 0x123456
        assert found["ctermfg"] == 5
    finally:
        session.nvim.command("highlight clear SwiftspecGhost")


# --- help -----------------------------------------------------------------------------------------


def test_help_is_found_and_its_tags_are_up_to_date(session, plugin):
    session.nvim.command("help swiftspec")
    assert any("*swiftspec.txt*" in line for line in session.lines)
    copy = session.folder / "help" / "doc"
    shutil.copytree(plugin.doc, copy)
    (copy / "tags").unlink()
    session.nvim.command(f"helptags {copy}")
    assert (copy / "tags").read_text() == (plugin.doc / "tags").read_text()
