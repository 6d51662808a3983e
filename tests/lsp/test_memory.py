"""The bridge's memory: at most 60 MB resident, plus twice the text that is open."""

import sys
from pathlib import Path

import pytest

LIMIT_BYTES = 60_000_000


def memory(pid: int) -> dict[str, int]:
    """Resident and proportional set size of a process, in bytes."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]
    fields = {name: value.split() for name, _, value in (line.partition(":") for line in lines)}
    return {name: int(fields[name][0]) * 1024 for name in ("Rss", "Pss")}


def mapped_files(pid: int) -> str:
    """What a process has loaded."""
    return Path(f"/proc/{pid}/maps").read_text()


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
async def test_memory_with_small_and_big_documents(daemon, editor, capsys):
    editor.open("file:///small", "x = 1\n")
    await use(editor, "file:///small", 200)
    small = memory(editor.process.pid)
    assert small["Rss"] <= LIMIT_BYTES
    mapped = mapped_files(editor.process.pid)
    assert "msgspec" in mapped
    assert not [name for name in ("numpy", "torch", "tokenizers") if name in mapped]

    texts = {
        "file:///lines": "    return value\n" * 100_000,
        "file:///line": "var a=1;" * 250_000,
        "file:///accents": "naïve = 'été'\n" * 50_000,
    }
    for uri, text in texts.items():
        editor.open(uri, text)
        await use(editor, uri, 50)
    opened = sum(len(text.encode()) for text in texts.values())
    big = memory(editor.process.pid)
    with capsys.disabled():
        figures = {name: f"{size / 1e6:.1f} MB" for name, size in small.items()}
        print(f"\nbridge: {figures}; with {opened / 1e6:.1f} MB open {big['Rss'] / 1e6:.1f} MB")
    assert big["Rss"] <= LIMIT_BYTES + 2 * opened


async def use(editor, uri: str, keys: int) -> None:
    for step in range(keys):
        editor.change(uri, 0, step, "x")
        assert (await editor.inline(uri, 0, step + 1))["items"]
