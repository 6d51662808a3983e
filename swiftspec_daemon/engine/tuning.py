"""For which machine, kernels and files a measurement holds, and what a worker makes of one.

Knows models' files and the kernels' build; the file of measurements is `tuned`'s.
"""

from __future__ import annotations

import logging

from swiftspec_daemon.engine import toy, tuned
from swiftspec_daemon.engine.config import WorkerConfig
from swiftspec_daemon.engine.drafts.loading import names
from swiftspec_daemon.engine.tuned import Tuned, TunedKey
from swiftspec_daemon.errors import SwiftSpecError
from swiftspec_daemon.models import catalog, draft

log = logging.getLogger(__name__)


def key_of(config: WorkerConfig) -> TunedKey:
    """What a measurement of this target and its first draft holds for.

    Raises ModelError where the target's files are not there. A draft that cannot be used has none.
    """
    from swiftspec_daemon.engine.backends import native

    asked = next(iter(names(config)), "")
    if config.model.startswith(toy.PREFIX):
        kernels, model_id, draft_id = "python", config.model, asked
    else:
        kernels = native.kernels_build()
        model = catalog.resolve(config.model)
        model_id = catalog.packed_file(model, native.LAYOUT).name
        draft_id = ""
        if asked:
            try:
                found = draft.resolve(asked)
                draft_id = catalog.packed_file(found.model, native.LAYOUT, model).name
            except SwiftSpecError:
                draft_id = ""
    return TunedKey(
        processor=tuned.processor(),
        cores=tuned.usable_cores(),
        kernels=kernels,
        backend=config.backend,
        model=model_id,
        draft=draft_id,
    )


def find(config: WorkerConfig) -> tuple[Tuned | None, str]:
    """What was found for this target, and a sentence for people where it cannot be used."""
    try:
        return tuned.find(key_of(config), config.model)
    except SwiftSpecError:
        return None, ""


def with_tuning(config: WorkerConfig) -> WorkerConfig:
    """`config` with what was found for it, unless it has measurements already."""
    if config.measured is not None:
        return config
    found, note = find(config)
    if note:
        log.warning("%s Run it again.", note)
    return config if found is None else tuned.applied(config, found)
