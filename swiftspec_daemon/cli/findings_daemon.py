"""What `swiftspec doctor` finds about the project itself: kernels, model, daemon, settings, paths.

Looks only: starts nothing, fetches nothing. Knows nothing of how findings are shown.
"""

from __future__ import annotations

import os
import socket
import stat
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from swiftspec_daemon import __version__, paths, settings
from swiftspec_daemon.cli.findings import Report
from swiftspec_daemon.errors import SwiftSpecError
from swiftspec_daemon.protocol.speculation import SpeculationStatus
from swiftspec_daemon.settings import Settings

_PATHS: dict[str, Callable[[], Path]] = {
    "settings": paths.settings_file,
    "token": paths.token_file,
    "state": paths.state_dir,
    "logs": paths.log_dir,
    "models": paths.models_dir,
}


def look_at_settings(report: Report) -> Settings:
    """Every setting in force and where it comes from. Defaults, if they cannot be read."""
    sources: dict[str, str] = {}
    try:
        loaded, sources = settings.load_with_sources()
    except SwiftSpecError as error:
        report.problem(error.message, error.hint or "Correct the setting.")
        loaded = Settings()
    for section in loaded.__struct_fields__:
        for name in getattr(loaded, section).__struct_fields__:
            dotted = f"{section}.{name}"
            value = getattr(getattr(loaded, section), name)
            report.fact("settings", dotted, f"{value} ({sources.get(dotted, 'default')})")
    return loaded


def look_at_paths(report: Report) -> None:
    """Where files live, and whether they can be written."""
    for name, find in _PATHS.items():
        try:
            path = find()
        except OSError as error:
            report.problem(
                f"The folder for {name} cannot be made: {error}.",
                "Mend its permissions, or set SWIFTSPEC_HOME to another folder.",
            )
            continue
        report.fact("paths", name, str(path) if path.exists() else f"{path} (not there yet)")
        folder = path if path.is_dir() else path.parent
        if not os.access(folder, os.W_OK):
            report.problem(
                f"{folder} cannot be written.",
                "Mend its permissions, or set SWIFTSPEC_HOME to another folder.",
            )
    token = paths.token_file()
    if sys.platform != "win32" and token.exists():
        mode = stat.S_IMODE(token.stat().st_mode)
        if mode & 0o077:
            report.problem(
                f"The token in {token} can be read by others (mode {mode:o}).",
                f"Run `chmod 600 {token}` and `swiftspec token rotate`.",
            )


def look_at_daemon(report: Report, loaded: Settings) -> None:
    """Whether a daemon runs, what it says, and else whether its port is free."""
    from swiftspec_daemon.client import discovery

    report.fact("daemon", "version", __version__)
    try:
        endpoint = discovery.find()
    except SwiftSpecError as error:
        report.problem(error.message, error.hint)
        return
    if endpoint is None:
        report.fact("daemon", "running", "no")
        _look_at_port(report, loaded)
        return
    report.fact("daemon", "running", f"pid {endpoint.pid}, {endpoint.address}")
    if endpoint.version != __version__:
        report.problem(
            f"The daemon that runs has version {endpoint.version}, this is {__version__}.",
            "Run `swiftspec stop`; the next client starts the new one.",
        )
    try:
        status = discovery.read_status(endpoint)
    except SwiftSpecError as error:
        report.problem(f"The daemon does not answer as it should: {error.message}", error.hint)
        return
    model = status.model
    report.fact("daemon", "model", f"{model.name}: {model.state}")
    report.fact("daemon", "backend", ", ".join(filter(None, (model.backend, model.kernels))))
    if status.speculation is not None:
        _look_at_speculation(report, status.speculation)
    if model.state == "failed":
        report.problem(f"The daemon's model failed: {model.message}", model.hint or "See the log.")


def _look_at_speculation(report: Report, status: SpeculationStatus) -> None:
    from swiftspec_daemon.cli.speculation import status_rows

    for name, line in status_rows(status).items():
        report.fact("daemon", name, line)
    cure = "Look at `swiftspec logs`; requests go on without it."
    if status.message:
        report.problem(f"No draft model is used: {status.message}", cure)
    for draft in status.drafts:
        if draft.state == "failed":
            report.problem(f"The draft {draft.name} is lost: {draft.message}", cure)


def look_at_kernels(report: Report) -> None:
    """Which build of the native kernels there is."""
    from swiftspec_daemon.kernels.native import library

    report.fact("kernels", "native", library.describe())
    try:
        library.load()
    except library.LibraryUnavailable as error:
        what, _, cure = str(error).partition(". ")
        report.problem(f"{what}: models run on NumPy, very slowly.", cure or "Install again.")


def look_at_model(report: Report, loaded: Settings) -> None:
    """The target model's files, whether they are converted, and how prompts are laid out."""
    from swiftspec_daemon.models import catalog, default

    name = loaded.model.target
    report.fact("model", "target", name)
    if name == default.NAME and not default.is_there():
        report.fact("model", "files", "not fetched yet (the daemon fetches them when it starts)")
        return
    try:
        model = catalog.resolve(name)
    except SwiftSpecError as error:
        report.problem(error.message, error.hint)
        return
    report.fact("model", "files", str(model.path))
    if model.spec is None:
        report.fact("model", "architecture", f"not native: {model.reason}")
    else:
        spec = model.spec
        report.fact("model", "architecture", spec.architecture)
        report.fact("model", "parameters", f"{spec.parameters / 1e6:.0f} million")
    packed = sorted((paths.models_dir() / "packed").glob("*.packed"))
    report.fact("model", "converted copies", ", ".join(file.name for file in packed) or "none yet")
    try:
        tokenizer = catalog.open_tokenizer(model)
    except SwiftSpecError as error:
        report.problem(error.message, error.hint)
        return
    report.fact("model", "template", describe_template(tokenizer.special_tokens))


def look_at_tuning(report: Report, loaded: Settings) -> None:
    """Whether the long measurement was made for this machine, model and draft."""
    from swiftspec_daemon.cli.tune import describe
    from swiftspec_daemon.engine import tuning
    from swiftspec_daemon.engine.config import WorkerConfig

    found, note = tuning.find(WorkerConfig.from_settings(loaded.model, loaded.speculation))
    chosen = None if found is None else found.setup(found.mode)
    if found is not None and chosen is not None:
        report.fact("model", "tuned", f"{found.measured.made[:10]}: {describe(chosen)}")
    else:
        report.fact("model", "tuned", f"no (`swiftspec tune` does it). {note}".strip())


def describe_template(special_tokens: Mapping[str, int]) -> str:
    """How prompts are laid out for a vocabulary."""
    from swiftspec_daemon.models import fill_in

    family = fill_in.fill_in_family(special_tokens)
    return (
        f"prefix with token healing (the vocabulary has {family or 'no'} fill-in-the-middle tokens)"
    )


def _look_at_port(report: Report, loaded: Settings) -> None:
    from swiftspec_daemon.server.lifecycle import port_holder

    host, port = loaded.server.host, loaded.server.port
    if port == 0:
        report.fact("daemon", "port", "any free one")
        return
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        if sys.platform != "win32":
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            holder = port_holder(port) or error.strerror
            report.fact("daemon", "port", f"{port}: not free ({holder})")
            report.problem(
                f"Port {port} cannot be used: {holder}.",
                "Choose another one: `port = N` under [server] in settings.toml.",
            )
        else:
            report.fact("daemon", "port", f"{port}: free")
