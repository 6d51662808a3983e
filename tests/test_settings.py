"""What a user hears about a wrong setting: which one, where it is set, what it may be."""

import pytest

from swiftspec_daemon import settings, settings_problems
from swiftspec_daemon.errors import SettingsError


def refused(tmp_path, *, text="", environment=None, flags=None) -> SettingsError:
    """The error; `FILE` stands for the settings file in its message."""
    file = tmp_path / "settings.toml"
    file.write_text(text)
    with pytest.raises(SettingsError) as caught:
        settings.load(flags, file=file, environment=environment or {})
    error = caught.value
    return SettingsError(error.message.replace(str(file), "FILE"), error.hint)


def plain(loaded: settings.Settings, name: str):
    """The value of a setting by its dotted name."""
    section, key = name.split(".")
    return getattr(getattr(loaded, section), key)


def empty_file(tmp_path):
    file = tmp_path / "empty.toml"
    file.touch()
    return file


@pytest.mark.parametrize(
    ("text", "name", "meant"),
    [
        ("[completion]\nmax_tokns = 3", "completion.max_tokns", "completion.max_tokens"),
        ("[compltion]\nmax_tokens = 3", "compltion.max_tokens", "completion.max_tokens"),
        ("[server]\nprot = 3", "server.prot", "server.port"),
        ("port = 3", "port", "server.port"),
        ("[model]\nmax_lines = 3", "model.max_lines", "completion.max_lines"),
        ("[model]\ncolour = 3", "model.colour", ""),
        ("[zzz]", "zzz", ""),
    ],
)
def test_an_unknown_setting(tmp_path, text, name, meant):
    error = refused(tmp_path, text=text)
    question = f"; did you mean {meant}?" if meant else "."
    assert error.message == f"There is no setting {name} (in FILE){question}"
    assert "docs/reference/settings.md" in error.hint


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "[completion]\nmax_tokens = 'many'",
            'completion.max_tokens (in FILE) cannot be the text "many"; '
            "it must be a whole number from 1 to 4096.",
        ),
        (
            "[completion]\nmax_tokens = 0",
            "completion.max_tokens (in FILE) cannot be the number 0; "
            "it must be a whole number from 1 to 4096.",
        ),
        (
            "[model]\nidle_unload_s = -1.5",
            "model.idle_unload_s (in FILE) cannot be the number -1.5; "
            "it must be a number, at least 0.",
        ),
        (
            "[model]\ncontext = 1",
            "model.context (in FILE) cannot be the number 1; "
            "it must be a whole number, at least 64.",
        ),
        (
            "[model]\ntarget = true",
            "model.target (in FILE) cannot be true; it must be a text.",
        ),
        (
            "[server]\nhost = '0.0.0.0'",
            'server.host (in FILE) cannot be the text "0.0.0.0"; '
            'it must be "127.0.0.1", "::1" or "localhost".',
        ),
        (
            "[completion]\nmax_lines = '4'",
            'completion.max_lines (in FILE) cannot be the text "4"; '
            "it must be a whole number from 1 to 1000.",
        ),
        (
            "[server]\nallowed_origins = [1]",
            "server.allowed_origins (in FILE) cannot be the list [1]; it must be a list of texts.",
        ),
        (
            "server = 3",
            "server (in FILE) cannot be the number 3; it must be a table of settings, [server].",
        ),
        (
            "[completion.max_tokens]",
            "completion.max_tokens (in FILE) cannot be a table; "
            "it must be a whole number from 1 to 4096.",
        ),
    ],
)
def test_a_value_that_cannot_be(tmp_path, text, message):
    error = refused(tmp_path, text=text)
    assert error.message == message
    assert error.hint.startswith("Correct ")


def test_the_place_is_named_wherever_it_is_set(tmp_path):
    variable = refused(tmp_path, environment={"SWIFTSPEC_SERVER__PORT": "x"})
    assert variable.message.startswith("server.port (environment variable SWIFTSPEC_SERVER__PORT) ")
    assert "unset SWIFTSPEC_SERVER__PORT" in variable.hint
    flag = refused(tmp_path, flags={"server.prot": "1"})
    assert flag.message == (
        "There is no setting server.prot (on the command line); did you mean server.port?"
    )
    assert "flag" in flag.hint


NUMBERS = [
    name
    for name in settings_problems.names(settings.Settings)
    if isinstance(plain(settings.Settings(), name), int | float)
]


SMALLEST = {
    "model.context": "64",
    "speculation.max_rows": "2",
    "completion.prompt_tokens": "16",
    "server.max_message_bytes": "65536",
    "log.max_bytes": "10000",
}
"""Where 1 is too small."""


def test_there_are_settings_that_are_numbers():
    assert {"server.port", "completion.temperature"} < set(NUMBERS)


@pytest.mark.parametrize("name", [*NUMBERS, "model.context"])
def test_a_number_in_quotes_is_no_number_in_the_file_and_one_elsewhere(tmp_path, name):
    section, key = name.split(".")
    error = refused(tmp_path, text=f"[{section}]\n{key} = '100000'")
    assert error.message.startswith(f'{name} (in FILE) cannot be the text "100000"; ')
    # also where another source has the last word
    overridden = {f"SWIFTSPEC_{section}__{key}".upper(): "1"}
    assert refused(tmp_path, text=f"[{section}]\n{key} = '1'", environment=overridden)
    value = SMALLEST.get(name, "1")
    for source in (
        {"environment": {f"SWIFTSPEC_{section}__{key}".upper(): value}},
        {"flags": {name: value}, "environment": {}},
    ):
        loaded = settings.load(file=empty_file(tmp_path), **source)
        assert plain(loaded, name) == float(value)


def test_long_values_are_cut(tmp_path):
    error = refused(tmp_path, text=f"[server]\nport = '{'x' * 500}'")
    assert len(error.message) < 150


def test_the_last_one_wins(tmp_path):
    file = tmp_path / "settings.toml"
    file.write_text("[server]\nport = 1\nhost = '::1'\n[model]\nthreads = 2")
    loaded, sources = settings.load_with_sources(
        {"server.port": 3},
        file=file,
        environment={"SWIFTSPEC_SERVER__PORT": "2", "SWIFTSPEC_MODEL__THREADS": "4"},
    )
    assert (loaded.server.port, loaded.model.threads, loaded.server.host) == (3, 4, "::1")
    assert sources["server.port"] == "flag for server.port"
    assert sources["server.host"] == str(file)


@pytest.mark.parametrize(
    ("text", "origins"),
    [
        ("http://a:1", ["http://a:1"]),
        ("http://a:1, https://b:2", ["http://a:1", "https://b:2"]),
        ("", []),
    ],
)
def test_lists_can_be_set_as_text(tmp_path, monkeypatch, text, origins):
    monkeypatch.setenv("SWIFTSPEC_HOME", str(tmp_path))
    environment = {"SWIFTSPEC_SERVER__ALLOWED_ORIGINS": text}
    assert settings.load(environment=environment).server.allowed_origins == origins
    flags = {"server.allowed_origins": text}
    assert settings.load(flags, environment={}).server.allowed_origins == origins


def test_text_that_is_not_utf_8_is_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("SWIFTSPEC_HOME", str(tmp_path))
    with pytest.raises(SettingsError, match=r"model\.target .*UTF-8"):
        settings.load(environment={"SWIFTSPEC_MODEL__TARGET": "\udcff"})


@pytest.mark.parametrize("seed", ["99999999999999999999999", "-9223372036854775809"])
def test_seeds_that_no_engine_can_be_sent_are_refused(tmp_path, monkeypatch, seed):
    monkeypatch.setenv("SWIFTSPEC_HOME", str(tmp_path))
    with pytest.raises(SettingsError, match=r"completion\.seed"):
        settings.load(environment={"SWIFTSPEC_COMPLETION__SEED": seed})


@pytest.mark.parametrize(
    ("name", "value", "limits"),
    [
        ("max_rows", 1, "2 to 64"),
        ("max_rows", 65, "2 to 64"),
        ("width", 0, "1 to 64"),
        ("branching", 65, "1 to 64"),
        ("depth", 0, "1 to 64"),
        ("draft_threads", 0, "1 to 256"),
    ],
)
def test_sizes_of_a_tree_have_limits(name, value, limits):
    with pytest.raises(SettingsError) as caught:
        settings.load({f"speculation.{name}": value}, environment={})
    said = f"cannot be the number {value}; it must be a whole number from {limits}."
    assert caught.value.message.startswith(f"speculation.{name} ")
    assert said in caught.value.message
