"""The lock between processes."""

from __future__ import annotations

import threading
from pathlib import Path

from swiftspec_daemon.models.locking import locked


def test_the_second_says_that_it_waits_and_goes_on(tmp_path: Path) -> None:
    said: list[str] = []
    waiting, entered = threading.Event(), threading.Event()

    def progress(phase: str, fraction: float) -> None:
        said.append(phase)
        waiting.set()

    def second() -> None:
        with locked(tmp_path / "lock", progress):
            entered.set()

    thread = threading.Thread(target=second)
    with locked(tmp_path / "lock", progress):
        thread.start()
        assert waiting.wait(30)
        assert not entered.is_set()
    thread.join(30)
    assert entered.is_set()
    assert said == ["waiting for another process"]
