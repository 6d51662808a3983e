"""Imports run one way. Reads every module's syntax tree; runs nothing of the project."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = "swiftspec_daemon"
FOLDERS = {PACKAGE: ROOT / PACKAGE, f"{PACKAGE}.kernels": ROOT / "kernels"} | {
    f"{PACKAGE}.lsp": ROOT / "lsp"
}

COMMON = {"", "errors", "paths", "settings"}
ENGINE_FACE = {
    f"engine.{name}"
    for name in ("client", "config", "interface", "messages", "scripted", "timing", "toy", "tuned")
}
ALLOWED: dict[str, set[str]] = {
    # The bottom: used by all.
    "": set(),
    "errors": set(),
    "paths": {"errors"},
    "settings": {"errors", "paths", "settings_problems"},
    "settings_problems": {"errors"},
    "settings_docs": {"settings"},
    "logs": COMMON,
    # Rooms that import none of the others.
    "protocol": {""},
    "speculation": {"errors"},
    "kernels": set(),
    # Shared by daemon and bridge.
    "documents": COMMON | {"protocol"},
    # Daemon side: server -> completion -> engine -> speculation.
    "server": COMMON
    | {"completion", "documents", "engine", "logs", "models", "parallel", "protocol"},
    "completion": COMMON | {"documents", "engine", "models", "protocol", "speculation.counters"},
    "engine": COMMON | {"speculation", "parallel"},
    "engine.loading": COMMON | {"engine", "models"},
    "engine.tuning": COMMON | {"engine", "models"},
    "engine.timing_worker": COMMON | {"engine", "parallel"},
    "engine.worker": COMMON | {"engine", "parallel"},
    "engine.drafts.loading": COMMON | {"engine", "models", "speculation"},
    "engine.drafts.worker": COMMON | {"engine", "parallel", "speculation"},
    # Worker side: backends -> models, parallel -> kernels.
    "engine.backends": COMMON | {"engine.backend", "models", "parallel", "kernels"},
    "models": COMMON,
    "parallel": COMMON,
    # Client side: lsp, cli -> client -> protocol.
    "client": COMMON | {"documents", "protocol"},
    "lsp": COMMON | {"client", "documents", "protocol"},
    # The top: commands start everything else, and benchmarks measure it.
    "cli": COMMON
    | {"bench", "client", "documents", "kernels", "logs", "lsp", "models", "protocol", "server"}
    | {"engine.config", "engine.interface", "engine.tuned", "engine.tuning"},
    "bench": COMMON
    | ENGINE_FACE
    | {"client", "completion", "documents", "models", "protocol", "server"},
    "bench.decode": COMMON | {"bench", "engine", "models"},
    "bench.decode_engines": COMMON | {"bench", "engine", "speculation"},
    "bench.decode_worst": COMMON | {"bench", "engine", "speculation"},
    "bench.decode_trace": {"bench", "engine"},
    "bench.decode_figures": {"bench"},
    "bench.simulate": COMMON | {"bench", "speculation"},
    "bench.simulate_plots": {"bench"},
    "__main__": COMMON | {"cli", "lsp"},
}
"""Module or package (longest prefix wins) -> what it may import besides itself."""

TORCH_ONLY_IN = {"engine.backends.transformers", "engine.backends.hub_models"}
NO_NUMPY_IN = {"client", "protocol", "documents", "settings", "settings_problems", "errors"} | {
    "paths",
    "lsp",
}


def modules() -> list[tuple[str, Path]]:
    """Every module of the package: dotted name below the package, and its file."""
    found = []
    for name, folder in FOLDERS.items():
        for file in sorted(folder.rglob("*.py")):
            parts = [*name.split(".")[1:], *file.relative_to(folder).with_suffix("").parts]
            found.append((".".join(part for part in parts if part != "__init__"), file))
    return found


MODULES = modules()
NAMES = {name for name, _ in MODULES}


def imports(name: str, file: Path) -> Iterator[tuple[str, int]]:
    """Absolute dotted names that a module imports, and how relative they were spelled."""
    package = [PACKAGE, *name.split(".")] if name else [PACKAGE]
    if file.name != "__init__.py":
        package = package[:-1]
    for node in ast.walk(ast.parse(file.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            yield from ((alias.name, 0) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            source = ".".join([*base, *(node.module.split(".") if node.module else [])])
            for alias in node.names:
                below = f"{source}.{alias.name}".removeprefix(f"{PACKAGE}.")
                yield (f"{source}.{alias.name}" if below in NAMES else source), node.level


def rule(name: str) -> str:
    """The longest prefix of `name` in the table. The package itself is no room for its modules."""
    parts = name.split(".")
    for length in range(len(parts), 0, -1):
        if (prefix := ".".join(parts[:length])) in ALLOWED:
            return prefix
    return "no rule"


def below(name: str) -> str | None:
    """`name` without the package in front; None if it is of another project."""
    return name[len(PACKAGE) + 1 :] if name.split(".")[0] == PACKAGE else None


def covers(prefix: str, name: str) -> bool:
    return name == prefix or (prefix != "" and name.startswith(f"{prefix}."))


def test_the_tree_is_found():
    assert {"errors", "kernels.native", "lsp", "cli", "__main__"} <= NAMES


@pytest.mark.parametrize(("name", "file"), MODULES, ids=[name or PACKAGE for name, _ in MODULES])
def test_imports_run_one_way(name: str, file: Path):
    own = rule(name)
    assert own in ALLOWED, f"{name} has no rule yet: give its room a line in ALLOWED"
    for target, _ in imports(name, file):
        inner = below(target)
        if inner is None or rule(inner) == own:
            continue
        assert any(covers(prefix, inner) for prefix in ALLOWED[own]), f"{name} imports {target}"


@pytest.mark.parametrize(("name", "file"), MODULES, ids=[name or PACKAGE for name, _ in MODULES])
def test_kernels_and_lsp_are_spelled_right(name: str, file: Path):
    """Outside by their full names, never bare; inside relative among themselves."""
    room = name.split(".")[0]
    for target, level in imports(name, file):
        assert target.split(".")[0] not in {"kernels", "lsp"}, f"{name}: bare import of {target}"
        if room in {"kernels", "lsp"} and target.startswith(f"{PACKAGE}.{room}"):
            assert level > 0, f"{name} imports {target}, which should be relative"


@pytest.mark.parametrize(("name", "file"), MODULES, ids=[name or PACKAGE for name, _ in MODULES])
def test_heavy_libraries_stay_in_their_rooms(name: str, file: Path):
    libraries = {target.split(".")[0] for target, _ in imports(name, file)}
    if not any(covers(room, name) for room in TORCH_ONLY_IN):
        assert not libraries & {"torch", "transformers", "accelerate"}
    if any(covers(room, name) for room in NO_NUMPY_IN):
        assert not libraries & {"numpy", "rich", "typer"}


def test_the_rules_notice_a_wrong_import(tmp_path: Path):
    """The checks above can fail: an import against the stream is seen, however it is spelled."""
    file = tmp_path / "settings.py"
    file.write_text("def f():\n    from swiftspec_daemon import server\n    from .cli import app\n")
    targets = [below(target) for target, _ in imports("settings", file)]
    assert targets[0] == "server"
    assert targets[1] is not None
    assert targets[1].startswith("cli")
    assert not any(covers(prefix, "server") for prefix in ALLOWED["settings"])
