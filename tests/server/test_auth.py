"""The token file: private, kept, rotated."""

from __future__ import annotations

import logging
import os
import re
import stat
from concurrent.futures import ThreadPoolExecutor

import pytest

from swiftspec_daemon.errors import SettingsError
from swiftspec_daemon.server.auth import load_or_create_token, rotate_token

posix = pytest.mark.skipif(os.name != "posix", reason="permissions as on POSIX")


@pytest.fixture
def file(tmp_path):
    return tmp_path / "config" / "token"


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


def test_a_token_is_made_and_kept(file):
    token = load_or_create_token(file)
    assert re.fullmatch(r"[A-Za-z0-9_-]{43}", token)
    assert load_or_create_token(file) == token
    assert [path.name for path in file.parent.iterdir()] == ["token"]


def test_the_users_own_file_is_the_default(tmp_path, monkeypatch):
    monkeypatch.setenv("SWIFTSPEC_HOME", str(tmp_path))
    token = load_or_create_token()
    assert (tmp_path / "config" / "token").read_text().strip() == token


@posix
def test_only_its_owner_can_read_it(file):
    before = os.umask(0)
    try:
        load_or_create_token(file)
        assert (mode(file), mode(file.parent)) == (0o600, 0o700)
        rotate_token(file)
        assert mode(file) == 0o600
    finally:
        os.umask(before)


@posix
@pytest.mark.parametrize("open_mode", [0o644, 0o640, 0o660, 0o604])
def test_open_permissions_are_mended_and_told(file, open_mode, caplog):
    token = load_or_create_token(file)
    file.chmod(open_mode)
    with caplog.at_level(logging.WARNING):
        assert load_or_create_token(file) == token
    assert mode(file) == 0o600
    assert "private now" in caplog.text
    assert token not in caplog.text


def test_rotation_gives_another_token(file):
    first = load_or_create_token(file)
    second = rotate_token(file)
    assert second != first
    assert load_or_create_token(file) == second


def test_rotation_makes_a_file_that_is_not_there(file):
    token = rotate_token(file)
    assert load_or_create_token(file) == token


@pytest.mark.parametrize("content", [b"", b"short", b"\xff" * 40, b"two words " * 5, b"x" * 300])
def test_a_file_without_a_token_is_an_error(file, content):
    file.parent.mkdir()
    file.write_bytes(content)
    file.chmod(0o600)
    with pytest.raises(SettingsError, match="holds no token") as caught:
        load_or_create_token(file)
    assert "Delete" in caught.value.hint


def test_a_folder_in_its_place_is_an_error(file):
    file.mkdir(parents=True)
    with pytest.raises(SettingsError):
        load_or_create_token(file)


def test_two_daemons_at_once_agree(file):
    with ThreadPoolExecutor(8) as pool:
        tokens = set(pool.map(lambda _: load_or_create_token(file), range(8)))
    assert len(tokens) == 1


@posix
@pytest.mark.parametrize("content", [b"no token at all\n", b"x" * 43])
def test_a_link_is_refused_and_its_target_left_alone(file, content):
    file.parent.mkdir()
    target = file.parent / "another file of the user"
    target.write_bytes(content)
    target.chmod(0o644)
    file.symlink_to(target)
    with pytest.raises(SettingsError, match="is a link"):
        load_or_create_token(file)
    assert mode(target) == 0o644
    assert target.read_bytes() == content


@posix
def test_a_file_that_holds_no_token_keeps_its_permissions(file):
    file.parent.mkdir()
    file.write_text("something else\n")
    file.chmod(0o644)
    with pytest.raises(SettingsError, match="holds no token"):
        load_or_create_token(file)
    assert mode(file) == 0o644


@posix
def test_a_named_pipe_in_its_place_is_an_error(file):
    file.parent.mkdir()
    os.mkfifo(file)
    with pytest.raises(SettingsError, match="not a regular file"):
        load_or_create_token(file)
