"""What every file of the repository keeps to: sizes, first lines, docs that name what exists."""

import ast
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
MAX_LINES = 500
MAX_FUNCTION = 70
URL_HOSTS = {
    "127.0.0.1",
    "localhost",
    "[::1]",
    "github.com",
    "arxiv.org",
    "huggingface.co",
    "json-schema.org",
    "keepachangelog.com",
    "microsoft.github.io",
    "neovim.io",
    "packaging.python.org",
    "peps.python.org",
    "semver.org",
    "www.apache.org",
}
"""Hosts that addresses in the repository may name, apart from reserved names for examples."""
RESERVED = (".example", ".test", ".invalid", ".localhost", "example.com", "example.org")
RESERVED_ADDRESSES = ("192.0.2.", "198.51.100.", "203.0.113.")
PRIVATE_PATH = re.compile(r"(?<![\w.])/(?:root|work|opt/\w+|mnt)/[\w.-]+")


def tracked() -> list[Path]:
    """The repository's files; without git (an unpacked sdist) all that is not ignored."""
    try:
        listed = subprocess.run(
            ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
            cwd=ROOT,
            capture_output=True,
            check=True,
        ).stdout.decode()
        files = [ROOT / name for name in listed.split("\0") if name]
    except (OSError, subprocess.CalledProcessError):
        skipped = re.compile(r"(^|/)(\.[^/]+|build|dist|__pycache__|[^/]+\.egg-info)/")
        files = [
            file
            for file in ROOT.rglob("*")
            if file.is_file() and not skipped.search(f"/{file.relative_to(ROOT).as_posix()}")
        ]
    return sorted(file for file in files if file.is_file())


def relative(file: Path) -> str:
    return file.relative_to(ROOT).as_posix()


FILES = tracked()
PYTHON = [file for file in FILES if file.suffix == ".py"]
PACKAGE = [
    file
    for file in PYTHON
    if relative(file).split("/")[0] in {"swiftspec_daemon", "kernels", "lsp"}
]
CODE = [file for file in FILES if file.suffix in {".py", ".cpp", ".h", ".hpp", ".lua", ".sh"}]


def texts() -> dict[str, str]:
    found = {}
    for file in FILES:
        try:
            found[relative(file)] = file.read_text("utf-8")
        except UnicodeDecodeError:
            continue
    return found


TEXTS = texts()


@pytest.mark.parametrize("file", PYTHON, ids=relative)
def test_modules_say_what_they_know(file: Path):
    source = file.read_text("utf-8")
    if source.strip():
        assert ast.get_docstring(ast.parse(source)), "no docstring in the first lines"


@pytest.mark.parametrize("file", CODE, ids=relative)
def test_files_have_one_subject(file: Path):
    assert len(file.read_text("utf-8").splitlines()) <= MAX_LINES


@pytest.mark.parametrize("file", PACKAGE, ids=relative)
def test_functions_fit_a_screen(file: Path):
    for node in ast.walk(ast.parse(file.read_text("utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert (node.end_lineno or 0) - node.lineno < MAX_FUNCTION, node.name


def test_licence_and_changelog():
    assert "Apache License" in TEXTS["LICENSE"]
    assert "## [Unreleased]" in TEXTS["CHANGELOG.md"]


def test_structures_names_every_module():
    named = set(re.findall(r"`([\w./-]+\.(?:py|cpp|h|hpp|lua))`", TEXTS["docs/structures.md"]))
    modules = {relative(file) for file in PACKAGE if file.read_text("utf-8").strip()}
    modules |= {name for name in map(relative, CODE) if name.endswith((".cpp", ".h", ".hpp"))}
    assert sorted(modules - named) == [], "no line in docs/structures.md"
    assert sorted(name for name in named if "/" in name and not (ROOT / name).exists()) == []


def test_links_lead_somewhere():
    for name, text in TEXTS.items():
        if name.endswith(".md"):
            for target in re.findall(r"\]\((?!https?:|#|mailto:)([^)#\s]+)", text):
                assert ((ROOT / name).parent / target).exists(), f"{name} links to {target}"


def test_the_readme_fits_100_columns():
    wide = [line for line in TEXTS["README.md"].splitlines() if len(line) > 100]
    assert wide == []


def test_documented_make_targets_exist():
    targets = set(re.findall(r"^([a-z]+):", TEXTS["Makefile"], re.MULTILINE))
    for name, text in TEXTS.items():
        if name.endswith(".md"):
            named = set(re.findall(r"^(?:\$ )?make ([a-z]+)|`make ([a-z]+)", text, re.MULTILINE))
            assert {target for pair in named for target in pair if target} <= targets, name


def test_documented_commands_exist():
    from typer.main import get_command

    from swiftspec_daemon.cli.app import app

    command = get_command(app)
    known = set(getattr(command, "commands", {}))
    assert "serve" in known
    for name, text in TEXTS.items():
        if name.endswith(".md"):
            named = set(re.findall(r"(?:^|\$ |`)swiftspec ([a-z]+)", text, re.MULTILINE))
            assert named <= known, name


def test_addresses_are_public():
    for name, text in TEXTS.items():
        for host in re.findall(r"\b(?:https?|wss?)://(\[[0-9a-f:]+\]|[\w.-]*\w)", text):
            known = host in URL_HOSTS or host.endswith(RESERVED) or "." not in host
            assert known or host.startswith(RESERVED_ADDRESSES), (name, host)


def test_no_private_paths():
    for name, text in TEXTS.items():
        if name != relative(Path(__file__)):
            assert (found := PRIVATE_PATH.search(text)) is None, (name, found)
