"""`models fetch ORG/NAME` against a stand-in for the hub on loopback."""

from __future__ import annotations

import hashlib
import http.server
import json
import re
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import huggingface_hub
import pytest

from swiftspec_daemon.errors import DownloadError, ModelError, ModelNotFound, UnsupportedModel
from swiftspec_daemon.models import catalog, hub

COMMIT = "0123456789abcdef0123456789abcdef01234567"


class Hub(http.server.ThreadingHTTPServer):
    """The few answers of the hub that a download needs."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.repositories: dict[str, dict[str, bytes]] = {}
        self.refusals: dict[str, tuple[int, str]] = {}
        """Repository to status and error code."""
        self.broken_files: set[str] = set()
        """Files whose connection is cut in the middle, once each."""
        self.served: list[tuple[str, str]] = []
        """File and Range header of each GET."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Hub

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        path = urlsplit(self.path).path
        api = re.fullmatch(r"/api/models/([^/]+/[^/]+)(/.*)?", path)
        file = re.fullmatch(r"/([^/]+/[^/]+)/resolve/[^/]+/(.+)", path)
        match = api or file
        if match is None:
            return self.answer(404, b"")
        if match[1] in self.server.refusals:
            status, code = self.server.refusals[match[1]]
            return self.answer(status, b"{}", {"X-Error-Code": code, "X-Error-Message": code})
        files = self.server.repositories.get(match[1])
        if files is None:
            return self.answer(404, b"{}", {"X-Error-Code": "RepoNotFound"})
        if api:
            return self.answer(200, json.dumps(self.describe(match[1], api[2], files)).encode())
        return self.send_file(match[2], files)

    def describe(self, name: str, rest: str | None, files: dict[str, bytes]) -> Any:
        if rest and rest.startswith("/tree"):
            return [
                {"type": "file", "path": path, "size": len(data), "oid": digest(data)}
                for path, data in files.items()
            ]
        siblings = [{"rfilename": path} for path in files]
        return {"id": name, "modelId": name, "sha": COMMIT, "siblings": siblings}

    def send_file(self, path: str, files: dict[str, bytes]) -> None:
        if path not in files:
            return self.answer(404, b"", {"X-Error-Code": "EntryNotFound"})
        data, headers = files[path], {"ETag": f'"{digest(files[path])}"', "X-Repo-Commit": COMMIT}
        if self.command == "HEAD":
            return self.answer(200, data, headers)
        asked = self.headers.get("Range", "")
        self.server.served.append((path, asked))
        part = re.fullmatch(r"bytes=(\d+)-", asked)
        if path in self.server.broken_files:
            self.server.broken_files.discard(path)
            self.send_response(200)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data[: len(data) // 2])
            self.close_connection = True
            return None
        if part and int(part[1]):
            start = int(part[1])
            headers["Content-Range"] = f"bytes {start}-{len(data) - 1}/{len(data)}"
            return self.answer(206, data[start:], headers)
        return self.answer(200, data, headers)

    def answer(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for key, value in ({"Content-Length": str(len(body))} | (headers or {})).items():
            self.send_header(key, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


def digest(data: bytes) -> str:
    return hashlib.sha1(data).hexdigest()


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    server = Hub()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    monkeypatch.setenv("HF_ENDPOINT", server.url)
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def files(saved: Callable[..., tuple[Any, Path]]) -> dict[str, bytes]:
    """A complete model, with files beside it that nobody needs."""
    _, folder = saved("llama", max_shard_size="60KB")
    files = {path.name: path.read_bytes() for path in folder.iterdir()}
    byte_level = {
        "type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True,
    }  # fmt: skip
    tokenizer = {
        "pre_tokenizer": byte_level,
        "added_tokens": [],
        "model": {"type": "BPE", "vocab": {"a": 0}, "merges": []},
    }
    return files | {
        "tokenizer.json": json.dumps(tokenizer).encode(),
        "LICENSE": b"terms",
        "pytorch_model.bin": b"pickled",
        "onnx/model.onnx": b"other",
        "consolidated.safetensors": b"the same again",
    }


def test_fetches_what_is_needed_and_no_more(server: Hub, files: dict[str, bytes]) -> None:
    server.repositories["org/tiny"] = files
    folder = hub.fetch("org/tiny")
    unneeded = {"pytorch_model.bin", "onnx/model.onnx", "consolidated.safetensors"}
    there = {
        str(path.relative_to(folder))
        for path in folder.rglob("*")
        if path.is_file() and ".cache" not in path.parts
    }
    assert there == set(files) - unneeded
    for name in there:
        assert (folder / name).read_bytes() == files[name]
    model = catalog.resolve("org/tiny")
    assert model.spec is not None
    catalog.open_weights(model)
    assert catalog.list_models() == ["org/tiny"]


def test_a_second_fetch_downloads_nothing(server: Hub, files: dict[str, bytes]) -> None:
    server.repositories["org/tiny"] = files
    hub.fetch("org/tiny")
    served = len(server.served)
    hub.fetch("org/tiny")
    assert len(server.served) == served


def test_pickled_weights_where_there_are_no_others(server: Hub, files: dict[str, bytes]) -> None:
    server.repositories["org/old"] = {
        name: data for name, data in files.items() if "safetensors" not in name
    }
    folder = hub.fetch("org/old")
    assert (folder / "pytorch_model.bin").exists()
    assert catalog.resolve("org/old").spec is None


def test_one_gguf_of_several(server: Hub) -> None:
    server.repositories["org/ggufs"] = {"a.gguf": b"GGUFa", "b.gguf": b"GGUFb", "x.txt": b""}
    with pytest.raises(ModelNotFound, match="--file") as caught:
        hub.fetch("org/ggufs")
    assert "a.gguf, b.gguf" in caught.value.hint
    with pytest.raises(ModelNotFound, match=r"no file c\.gguf"):
        hub.fetch("org/ggufs", file="c.gguf")
    folder = hub.fetch("org/ggufs", file="b.gguf")
    assert [path.name for path in folder.glob("*.*f")] == ["b.gguf"]


def test_no_weights_at_all(server: Hub) -> None:
    server.repositories["org/data"] = {"README.md": b"hello"}
    with pytest.raises(UnsupportedModel, match="no weights"):
        hub.fetch("org/data")


def test_an_unknown_model(server: Hub) -> None:
    with pytest.raises(ModelNotFound, match="no model org/none"):
        hub.fetch("org/none")


def test_a_gated_model(server: Hub) -> None:
    server.refusals["org/gated"] = (401, "GatedRepo")
    with pytest.raises(DownloadError, match="gated") as caught:
        hub.fetch("org/gated")
    assert "HF_TOKEN" in caught.value.hint


def test_an_unauthorized_answer(server: Hub) -> None:
    server.refusals["org/private"] = (401, "")
    with pytest.raises(ModelError) as caught:
        hub.fetch("org/private")
    assert "HF_TOKEN" in caught.value.hint


def test_a_failing_server(server: Hub) -> None:
    server.refusals["org/x"] = (418, "")
    with pytest.raises(DownloadError, match="status 418"):
        hub.fetch("org/x")


@pytest.mark.parametrize("name", ["tiny", "a/b/c", "../x", "org/", "/x", "a b/c"])
def test_names_that_cannot_be(name: str, server: Hub) -> None:
    with pytest.raises(ModelNotFound, match="no name of a model"):
        hub.fetch(name)


def test_nobody_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Hub()
    monkeypatch.setenv("HF_ENDPOINT", server.url)
    server.server_close()
    with pytest.raises(DownloadError, match="cannot be reached") as caught:
        hub.fetch("org/tiny")
    assert "HF_ENDPOINT" in caught.value.hint


def test_an_interrupted_download_goes_on(
    server: Hub, files: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    # What has arrived is written chunk by chunk; these files are smaller than a usual chunk.
    monkeypatch.setattr(huggingface_hub.constants, "DOWNLOAD_CHUNK_SIZE", 1000)
    server.repositories["org/tiny"] = files
    broken = next(name for name in files if name.startswith("model-"))
    server.broken_files.add(broken)
    try:
        folder = hub.fetch("org/tiny")
    except DownloadError:
        folder = hub.fetch("org/tiny")
    assert (folder / broken).read_bytes() == files[broken]
    ranges = [asked for name, asked in server.served if name == broken]
    assert len(ranges) == 2
    kept = int(ranges[1].removeprefix("bytes=").removesuffix("-"))
    assert kept > len(files[broken]) // 2 - 1000


def test_files_that_cannot_be_written(server: Hub, files: dict[str, bytes]) -> None:
    server.repositories["org/tiny"] = files
    catalog.hub_dir().mkdir()
    (catalog.hub_dir() / "org").write_text("a file where the folder should be")
    with pytest.raises(DownloadError, match="cannot be written"):
        hub.fetch("org/tiny")
