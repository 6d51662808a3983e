"""`swiftspec models ...` as people and programs see it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer as Library
from tokenizers import models as library_models
from tokenizers import pre_tokenizers
from typer.testing import CliRunner

from swiftspec_daemon.cli.models import app
from swiftspec_daemon.errors import DownloadError, ModelError, ModelNotFound, UsageError
from swiftspec_daemon.models import catalog, default, hub


def run(*arguments: str) -> str:
    """Standard output of a command that succeeds."""
    result = CliRunner().invoke(app, list(arguments))
    if result.exception is not None:
        raise result.exception
    return result.stdout


@pytest.fixture
def tiny(saved: Callable[..., tuple[Any, Path]]) -> Path:
    """A tiny model among the fetched ones, as org/tiny."""
    _, folder = saved("qwen2", vocab_size=300)
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Library(library_models.BPE({c: i for i, c in enumerate(alphabet)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.add_special_tokens(
        ["<|endoftext|>", "<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>", "<|file_sep|>"]
    )
    tokenizer.save(str(folder / "tokenizer.json"))
    target = catalog.hub_dir() / "org" / "tiny"
    shutil.copytree(folder, target)
    return target


def test_list_without_models_says_what_to_do() -> None:
    assert "swiftspec models fetch" in run("list")
    assert json.loads(run("list", "--json")) == []


def test_list(tiny: Path) -> None:
    broken = catalog.hub_dir() / "org" / "half"
    broken.mkdir()
    text = run("list")
    assert "org/tiny" in text
    assert "qwen2" in text
    rows = {row["name"]: row for row in json.loads(run("list", "--json"))}
    assert rows["org/tiny"]["architecture"] == "qwen2"
    assert rows["org/tiny"]["backend"] == "native, transformers"
    assert rows["org/tiny"]["file_bytes"] > 0
    assert "config.json" in rows["org/half"]["problem"]


def test_inspect(tiny: Path) -> None:
    text = run("inspect", "org/tiny")
    for expected in ("qwen2", "byte-level, 261 tokens", "<|fim_prefix|> 257", "<|endoftext|> 256"):
        assert expected in text
    facts = json.loads(run("inspect", "org/tiny", "--json"))
    assert facts["spec"]["hidden"] == 64
    assert facts["native"] is True
    assert facts["tensor_types"] == {"F32": 27}
    assert facts["parameters"] == facts["int8_bytes"]
    assert facts["kv_bytes_per_position"] == 2 * 4 * 2 * 2 * 16
    assert facts["fill_in"] == {
        "<|fim_prefix|>": 257, "<|fim_suffix|>": 258, "<|fim_middle|>": 259,
    }  # fmt: skip
    assert facts["repository"] == {"<|file_sep|>": 260}


def test_inspect_of_a_model_for_transformers(tiny: Path) -> None:
    config = json.loads((tiny / "config.json").read_text())
    (tiny / "config.json").write_text(json.dumps(config | {"architectures": ["OtherForCausalLM"]}))
    assert "OtherForCausalLM" in run("inspect", "org/tiny")
    assert json.loads(run("inspect", "org/tiny", "--json"))["spec"] is None


@pytest.mark.parametrize("command", [["list"], ["inspect", "NAME"], ["verify", "NAME"]])
def test_pipes_get_plain_lines_that_are_not_cut(tiny: Path, command: list[str]) -> None:
    long = tiny.with_name("n" * 120)
    tiny.rename(long)
    name = f"org/{long.name}"
    text = run(*(name if word == "NAME" else word for word in command))
    assert name in text or command[0] == "verify"
    assert str(long) in text or command[0] != "inspect"
    assert text.isascii()
    assert all(line == line.rstrip() for line in text.splitlines())


def test_verify(tiny: Path) -> None:
    checks = json.loads(run("verify", "org/tiny", "--json"))
    assert [(check["name"], check["passed"]) for check in checks] == [
        ("weights", True), ("tokenizer", True),
    ]  # fmt: skip
    assert "ok" in run("verify", "org/tiny")


def test_verify_fails_where_something_is_wrong(tiny: Path) -> None:
    config = json.loads((tiny / "config.json").read_text())
    (tiny / "config.json").write_text(json.dumps(config | {"intermediate_size": 95}))
    result = CliRunner().invoke(app, ["verify", "org/tiny"])
    assert isinstance(result.exception, ModelError)
    assert "WRONG" in result.stdout


def test_fetch_of_the_default_model(monkeypatch: pytest.MonkeyPatch, tiny: Path) -> None:
    phases: list[str] = []

    def fetch(progress: Any) -> Path:
        progress("downloading", 0.5)
        phases.append("downloading")
        raise DownloadError("No network.", "Put the file there.")

    monkeypatch.setattr(default, "fetch", fetch)
    result = CliRunner().invoke(app, ["fetch"])
    assert isinstance(result.exception, DownloadError)
    assert phases == ["downloading"]
    assert "downloading" in result.stderr


def test_fetch_of_a_hub_model(monkeypatch: pytest.MonkeyPatch, tiny: Path) -> None:
    asked: list[Any] = []

    def fetch(name: str, **options: Any) -> Path:
        options.pop("progress")
        asked.append((name, options))
        return tiny

    monkeypatch.setattr(hub, "fetch", fetch)
    assert str(tiny) in run("fetch", "org/tiny", "--revision", "v2").replace("\n", "")
    assert asked == [("org/tiny", {"revision": "v2", "file": None})]
    answer = json.loads(run("fetch", "org/tiny", "--json"))
    assert answer == {"name": "org/tiny", "path": str(tiny), "native": True}


def test_errors_are_ours() -> None:
    with pytest.raises(UsageError):
        run("fetch", "--revision", "x")
    with pytest.raises(ModelNotFound):
        run("inspect", "nobody/nothing")
