"""What a draft worker is told when it is started."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from swiftspec_daemon.engine.config import WorkerConfig


class DraftConfig(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """Passed as JSON on the draft worker's command line: no secrets, no text of the user's."""

    draft: str
    """As `SpeculationSettings.draft`."""
    target: WorkerConfig
    """The target whose tokenizer, embedding and context the draft shares."""
    threads: Annotated[int, Meta(ge=1)] = 1
    width: Annotated[int, Meta(ge=1, le=64)] = 8
    """Leaves that a pass expands, until the target says otherwise."""
    branching: Annotated[int, Meta(ge=1, le=64)] = 4
    """Children that an expanded leaf may get."""
    depth: Annotated[int, Meta(ge=1, le=64)] = 16
    """Depth of the tree at most."""
    nodes: Annotated[int, Meta(ge=1, le=1024)] = 192
    """Nodes of the tree at most."""
    trace: str = ""
    """A file that gets a line for each step: start and end by the system's monotonic clock, in
    nanoseconds. For benchmarks."""
