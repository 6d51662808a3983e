"""Every setting of the project, once: defaults < settings.toml < environment < flags.

The environment spells `server.port` as SWIFTSPEC_SERVER__PORT. Values are checked by msgspec;
`settings_problems` says what is wrong with one. Knows nothing of what the settings are used for.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from swiftspec_daemon import paths
from swiftspec_daemon.errors import SettingsError

LEAST_SEED, MOST_SEED = -(2**63), 2**63 - 1
"""What crosses to the engine as one number."""
ENVIRONMENT_PREFIX = "SWIFTSPEC_"


class ServerSettings(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """Where the daemon listens. Always a loopback address."""

    host: Literal["127.0.0.1", "::1", "localhost"] = "127.0.0.1"
    port: Annotated[int, Meta(ge=0, le=65535)] = 17817
    """0 lets the system choose; clients find the port in the daemon's record."""
    max_message_bytes: Annotated[int, Meta(ge=65536)] = 16 * 1024 * 1024
    allowed_origins: list[str] = []
    """Web pages, as scheme://host:port, that may open a websocket (with the token)."""


class ModelSettings(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """The target model and how it is run."""

    target: str = "default"
    """"default", a name from `swiftspec models list`, a folder of the hub's format, a GGUF file."""
    backend: Literal["auto", "native", "transformers"] = "auto"
    context: Annotated[int, Meta(ge=64)] | None = None
    """Positions to make room for; the model's own, at most 4096, if absent."""
    threads: Annotated[int, Meta(ge=0, le=256)] = 0
    """Compute threads; 0 takes the physical cores, at most 8."""
    kv_slots: Annotated[int, Meta(ge=1, le=64)] = 4
    """Documents whose keys and values are kept between requests."""
    idle_unload_s: Annotated[float, Meta(ge=0)] = 1800.0
    """Free the model's memory after this many idle seconds; 0 never does."""


class SpeculationSettings(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """How tokens are guessed ahead of the model. It changes the speed, never the text."""

    mode: Literal["auto", "off", "ngram", "serial", "async"] = "auto"
    """"ngram": look-up in the text alone; "serial": a draft model too, in the target's process;
    "async": a draft model in a process of its own, which works while the target verifies; "auto":
    what was found fastest."""
    draft: str = "default"
    """"default": the project's own draft where the target is the default model, none elsewhere;
    "none"; or a folder of the hub's format whose tokenizer is the target's."""
    more_drafts: list[str] = []
    """Further drafts, whose trees are merged with the first one's (not in "async")."""
    draft_threads: Annotated[int, Meta(ge=1, le=256)] = 1
    """Compute threads of a draft in a process of its own."""
    max_rows: Annotated[int, Meta(ge=2, le=64)] = 16
    """Tokens that one pass of the target verifies at most, its own included."""
    width: Annotated[int, Meta(ge=1, le=64)] = 8
    """Leaves of the tree that one pass of the draft expands at most."""
    branching: Annotated[int, Meta(ge=1, le=64)] = 4
    """Continuations of one leaf that the tree takes in."""
    depth: Annotated[int, Meta(ge=1, le=64)] = 16
    """How deep a tree may grow."""
    acceptance: Literal["keyed", "multi-step"] = "keyed"
    """"keyed": the same text as without speculation, for any seed; "multi-step": SpecInfer's rule,
    the same distribution only. It takes effect where a temperature is above 0, in "serial" (or
    "auto") with exactly one draft model, whose samples are then all verified, whether that pays or
    not; elsewhere "keyed" holds."""


class CompletionSettings(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """What a completion may be."""

    max_tokens: Annotated[int, Meta(ge=1, le=4096)] = 64
    max_lines: Annotated[int, Meta(ge=1, le=1000)] = 8
    prompt_tokens: Annotated[int, Meta(ge=16, le=1_000_000)] = 1536
    """At most this many tokens of text before the cursor; fewer where the context is smaller.
    Reading them takes time whenever the cursor jumps."""
    temperature: Annotated[float, Meta(ge=0, le=10)] = 0.0
    seed: Annotated[int, Meta(ge=LEAST_SEED, le=MOST_SEED)] = 0


class LogSettings(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """Log files. They hold no text of the user's, at any level."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    max_bytes: Annotated[int, Meta(ge=10_000)] = 2_000_000
    backups: Annotated[int, Meta(ge=0, le=100)] = 3


class Settings(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """All settings, by section."""

    server: ServerSettings = ServerSettings()
    model: ModelSettings = ModelSettings()
    speculation: SpeculationSettings = SpeculationSettings()
    completion: CompletionSettings = CompletionSettings()
    log: LogSettings = LogSettings()


def load(
    flags: Mapping[str, Any] | None = None,
    *,
    file: Path | None = None,
    environment: Mapping[str, str] | None = None,
) -> Settings:
    """The settings in force.

    `flags` maps dotted names ("server.port") to values; None values are left out. `file` defaults
    to the user's settings.toml, which need not exist; a file that is named must.
    Raises SettingsError.
    """
    return load_with_sources(flags, file=file, environment=environment)[0]


def load_with_sources(
    flags: Mapping[str, Any] | None = None,
    *,
    file: Path | None = None,
    environment: Mapping[str, str] | None = None,
) -> tuple[Settings, dict[str, str]]:
    """As `load`, and where each value comes from that is not the default, by dotted name."""
    values: dict[str, Any] = {}
    source: dict[str, str] = {}
    chosen = file if file is not None else paths.settings_file()
    _merge(values, source, _read_file(chosen, must_exist=file is not None), str(chosen))
    # the file can tell a number from a text, which the environment and flags cannot
    _convert(values, _by_dotted_name(source), strict=True)
    for name, value in (os.environ if environment is None else environment).items():
        # without a section it is a switch of its own, as SWIFTSPEC_HOME
        if name.startswith(ENVIRONMENT_PREFIX) and "__" in name:
            dotted = name.removeprefix(ENVIRONMENT_PREFIX).lower().replace("__", ".")
            origin = f"environment variable {name}"
            _merge(values, source, _nest(dotted, _from_text(dotted, value, origin)), origin)
    for dotted, value in (flags or {}).items():
        if value is not None:
            origin = f"flag for {dotted}"
            plain = _from_text(dotted, value, origin) if isinstance(value, str) else value
            _merge(values, source, _nest(dotted, plain), origin)
    named = _by_dotted_name(source)
    return _convert(values, named, strict=False), named


def _from_text(dotted: str, value: str, origin: str) -> str | list[str]:
    """A value as the environment or a flag spells it; of a list, the items between commas."""
    try:
        value.encode()
    except UnicodeEncodeError:
        raise SettingsError(f"{dotted} ({origin}) is not valid UTF-8.", "Correct it.") from None
    section, _, name = dotted.partition(".")
    sections = {field.name: field.type for field in msgspec.structs.fields(Settings)}
    if section in sections:
        kinds = {field.name: field.type for field in msgspec.structs.fields(sections[section])}
        if kinds.get(name) == list[str]:
            return [item.strip() for item in value.split(",") if item.strip()]
    return value


def schema() -> dict[str, Any]:
    """JSON schema of the settings file, for the docs."""
    return msgspec.json.schema(Settings)


def _read_file(file: Path, *, must_exist: bool) -> dict[str, Any]:
    try:
        with file.open("rb") as stream:
            return tomllib.load(stream)
    except FileNotFoundError:
        if must_exist:
            raise SettingsError(f"There is no settings file {file}.") from None
        return {}
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingsError(f"{file} is not valid TOML: {error}.", "Correct the file.") from None
    except RecursionError:
        raise SettingsError(f"{file} is nested too deeply.", "Correct the file.") from None
    except OSError as error:
        raise SettingsError(f"{file} cannot be read: {error.strerror}.") from None


def _nest(dotted: str, value: Any) -> dict[str, Any]:
    for part in reversed(dotted.split(".")):
        value = {part: value}
    result: dict[str, Any] = value
    return result


def _merge(
    into: dict[str, Any], source: dict[str, str], layer: dict[str, Any], name: str, path: str = "$"
) -> None:
    for key, value in layer.items():
        where = f"{path}.{key}"
        if isinstance(value, dict) and isinstance(into.get(key, {}), dict):
            _merge(into.setdefault(key, {}), source, value, name, where)
        else:
            into[key] = value
        source[where] = name


def _by_dotted_name(source: dict[str, str]) -> dict[str, str]:
    return {where.removeprefix("$."): origin for where, origin in source.items()}


def _convert(values: dict[str, Any], origins: dict[str, str], *, strict: bool) -> Settings:
    try:
        return msgspec.convert(values, Settings, strict=strict)
    except msgspec.ValidationError as error:
        from swiftspec_daemon.settings_problems import explain

        raise explain(error, values, origins, Settings) from None
